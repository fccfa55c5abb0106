"""`saccade bench quality`: the figures are those of the engine's own comparison, on the texts that a person gave."""

import json

import pytest

from saccade.cli import main
from saccade.engine.quantization_quality import measure_quality
from saccade.tasks.runs.run import open_run

SMALL = [
    "--model.width",
    "16",
    "--model.layers",
    "1",
    "--model.heads",
    "2",
    "--model.ffn-width",
    "16",
    "--train.max-steps",
    "2",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("quality")
    (home / "text.txt").write_text("".join(f"line {n} of a text\n\n" for n in range(60)))
    (home / "more.txt").write_text("a\n\nanother text\nand one more\n")
    (home / "label.tsv").write_text("label\ttext\n" + "".join(f"{'ab'[n % 2]}\tword {n}\n" for n in range(40)))
    train = ["--train.batch-tokens", "128", *SMALL]
    pieces = ["--task.tokenizer", "characters", "--task.max-tokens", "32"]
    text = ["--data", str(home / "text.txt"), "--out", str(home / "run")]
    assert main(["train", "language", *text, *pieces, *train]) == 0
    assert main(["train", "label", "--data", str(home / "label.tsv"), "--out", str(home / "labels"), *train]) == 0
    return home


def test_it_is_what_the_engine_says_of_these_texts(home, capsys):
    asked = ["bench", "quality", str(home / "run"), "--data", str(home / "more.txt"), "--precisions", "float32", "int8"]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    model = open_run(home / "run").model
    for one, precision in zip(found, ("float32", "int8"), strict=True):
        wanted = measure_quality(model, ["a\n", "another text\n", "and one more\n"], precision)
        assert one["texts"] == 3  # an empty line has nothing to foresee
        assert one["tokens"] == wanted.tokens
        assert (one["base_perplexity"], one["agreement"]) == (
            pytest.approx(wanted.base_perplexity),
            pytest.approx(wanted.agreement),
        )
        assert one["fast_perplexity"] == pytest.approx(wanted.fast_perplexity)
    assert main(asked) == 0
    assert capsys.readouterr().out.count("tokens equal") == 2


def test_without_data_it_is_the_held_out_part(home, capsys):
    assert main(["bench", "quality", str(home / "run"), "--precisions", "float32", "--max-texts", "2"]) == 0
    assert "100.00% of" in capsys.readouterr().out


def test_who_does_not_write_is_refused(home, capsys):
    assert main(["bench", "quality", str(home / "labels")]) == 4
    assert "an autoregressive model with a tokenizer is needed" in capsys.readouterr().err
    assert main(["bench", "quality", str(home / "run"), "--max-texts", "0"]) == 2
    assert "--max-texts is 0; it must be at least 1" in capsys.readouterr().err
