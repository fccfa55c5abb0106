"""The study of grammar: its likelihoods are those of single steps, its files are read in every shape, and bad ones are named."""

import json
import zipfile

import numpy as np
import pytest
import torch

from saccade.cli import main
from saccade.data import Batch, Text
from saccade.errors import DataError
from saccade.models.build import new
from saccade.models.families import transformer
from saccade.studies.grammar.study import MinimalPair, compare_pairs, plan_runs, read_pairs
from saccade.studies.study import StudyPlan
from saccade.text import train_tokenizer as train_tokenizer

LINES = [("the cats sleep", "the cats sleeps", "agreement"), ("she sees herself", "she sees himself", "binding")]


def lines(pairs=LINES):
    keys = ("sentence_good", "sentence_bad", "linguistics_term")
    return "".join(json.dumps(dict(zip(keys, pair, strict=True))) + "\n" for pair in pairs)


@pytest.fixture(scope="module")
def writer():
    torch.manual_seed(0)
    tokenizer = train_tokenizer(
        [f"{good}\n{bad}\n" for good, bad, _ in LINES], "characters", None, token_template="none"
    )
    model = new("transformer_lm", transformer.Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=16))
    model.tokenizer = tokenizer
    return model.eval()


@torch.no_grad()
def test_a_sentence_is_as_likely_as_its_tokens_one_after_the_other(writer):
    pairs = [MinimalPair(*pair) for pair in LINES] + [MinimalPair("a cat", "a cat", "same")]

    def likely(text):
        ids = writer.tokenizer.encode("\n" + text, add_special_tokens=False).ids
        state, total = None, 0.0
        for at in range(1, len(ids)):
            state, seen = writer.body.start(Batch(Text.pad([ids[:at]])))
            total += float(writer.body.step(seen, state)[0, -1].log_softmax(-1)[ids[at]])
        return total

    wanted = [float(likely(pair.good) > likely(pair.bad)) for pair in pairs[:2]]
    assert compare_pairs(writer, pairs).tolist() == [*wanted, 0.5]
    turned = [MinimalPair(pair.bad, pair.good, pair.phenomenon) for pair in pairs]
    assert np.all(compare_pairs(writer, pairs) + compare_pairs(writer, turned) == 1)


def test_a_file_a_directory_and_an_archive_are_the_same(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines(LINES[:1]) + "\n")
    (folder / "b.jsonl").write_text(lines(LINES[1:]))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("data/a.jsonl", lines(LINES[:1]))
        archive.writestr("data/b.jsonl", lines(LINES[1:]))
        archive.writestr("data/readme.txt", "no pairs")
        archive.writestr("__MACOSX/data/._a.jsonl", b"\x00\x05\x16\x07 what a Mac writes beside a file")
    (folder / "._b.jsonl").write_bytes(b"\x00\x05\x16\x07")
    wanted = [MinimalPair(*pair) for pair in LINES]
    assert read_pairs([str(folder)]) == read_pairs([str(tmp_path / "all.zip")]) == wanted
    assert read_pairs([str(folder / "a.jsonl"), str(folder / "b.jsonl")]) == wanted


def test_what_is_no_pair_is_named(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(lines() + '{"sentence_good": "only one"}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl:3: this is not a pair of sentences"):
        read_pairs([str(path)])
    path.write_text("")
    with pytest.raises(DataError, match="there are no pairs"):
        read_pairs([str(path)])
    with pytest.raises(DataError, match="there is no such file"):
        read_pairs([str(tmp_path / "none.jsonl")])


def test_runs_and_pairs_are_both_needed(tmp_path):
    with pytest.raises(ValueError, match="grammar needs language models"):
        plan_runs(StudyPlan(tmp_path, data=("BLiMP.zip",)))


def test_the_whole_study_and_that_it_moves(tmp_path, capsys):
    """A model that learnt one word order finds it likelier."""
    (tmp_path / "text.txt").write_text("dogs bark\ncats sleep\n" * 200)
    small = [
        "--model.width",
        "16",
        "--model.layers",
        "1",
        "--model.heads",
        "2",
        "--model.ffn-width",
        "32",
        "--task.max-tokens",
        "16",
    ]
    settings = [
        *small,
        "--train.max-steps",
        "150",
        "--train.batch-tokens",
        "256",
        "--train.lr",
        "1e-2",
        "--task.tokenizer",
        "characters",
    ]
    text, run = str(tmp_path / "text.txt"), str(tmp_path / "learnt")
    assert main(["train", "language", "--data", text, "--out", run, *settings]) == 0
    pairs = [
        ("dogs bark", "dogs sleep", "who"),
        ("cats sleep", "cats bark", "who"),
        ("dogs bark", "bark dogs", "order"),
    ]
    (tmp_path / "pairs.jsonl").write_text(lines(pairs))
    capsys.readouterr()
    asked = [
        "study",
        "grammar",
        "--data",
        str(tmp_path / "pairs.jsonl"),
        "--trained-runs",
        run,
        "--out",
        str(tmp_path / "study"),
    ]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "learnt" in said
    assert "order" in said
    record = json.loads((tmp_path / "study" / "record.json").read_text())
    assert record["overall"]["learnt"]["value"] == 1.0
    assert [kind["name"] for kind in record["phenomena"]] == ["order", "who"]
    assert (tmp_path / "study" / "plot.png").stat().st_size > 5_000
