"""`saccade evaluate`: scores of the plain model over the window it can read, with both in the signature, by stored columns."""

import json
import math

import pytest
import torch

import saccade
from saccade import text
from saccade.cli import main
from saccade.data import Batch, Text
from saccade.errors import DataError
from saccade.models.build import new
from saccade.models.families import gpt2, llama
from saccade.tasks.runs.run import MAX_WINDOW_TOKENS, context_length, open_run
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

LINES = [f"{n} ships and {n * n % 83} boats lay in the bay of {n * 7 % 19} isles\n" for n in range(24)]
TOKENIZER = text.train_tokenizer(LINES, "characters", None, token_template="none")
CONTEXT = 300  # tokens, more than any default of a task
TINY = {"width": 8, "layers": 1, "ffn_width": 8, "heads": 2}


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A model from elsewhere, wide enough that its fast form would be int8, and a text of several windows."""
    home = tmp_path_factory.mktemp("writer")
    torch.manual_seed(2)
    model = new("gpt2", gpt2.Config(vocab=TOKENIZER.vocab, width=128, layers=1, heads=2, max_positions=CONTEXT)).eval()
    model.tokenizer = TOKENIZER
    model.save(home / "model")
    (home / "lines.txt").write_text("".join(LINES))
    return home


def evaluated(capsys, *argv):
    capsys.readouterr()
    assert main(["evaluate", *map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@torch.no_grad()
def _perplexity(home, window):
    """From the model's own scores, window after window."""
    model = saccade.load(home / "model")
    ids = TOKENIZER.encode("".join(LINES), add_special_tokens=False).ids
    nats = 0.0
    for start in range(0, len(ids) - 1, window):
        row = ids[start : start + window + 1]
        state, first = model.body.start(Batch(Text.pad([row[:-1]])))
        scores = model.body.step(first, state)[0].double().log_softmax(-1)
        nats -= float(scores[torch.arange(len(row) - 1), row[1:]].sum())
    return math.exp(nats / (len(ids) - 1))


def test_a_model_from_elsewhere_is_scored_plain_over_its_own_context(writer, capsys):
    found = evaluated(capsys, writer / "model", "--data", writer / "lines.txt")
    assert (found["engine"], found["window"], found["eval_overlap"]) == ("off", CONTEXT, 0)
    first = found["scores"][0]
    assert first["value"] == pytest.approx(_perplexity(writer, CONTEXT), rel=1e-5)
    assert first["signature"] == f"window:{CONTEXT}|eval_overlap:0|engine:off"
    in_python = saccade.evaluate(writer / "model", str(writer / "lines.txt"))
    assert in_python.as_dict() == found
    assert str(in_python).splitlines()[0].endswith(f"[{first['signature']}]")


def test_window_context_and_engine_can_be_chosen_and_stand_in_the_signature(writer, capsys):
    asked = (writer / "model", "--data", writer / "lines.txt", "--set", "max_tokens=64")
    plain = evaluated(capsys, *asked)["scores"][0]
    assert plain["value"] == pytest.approx(_perplexity(writer, 64), rel=1e-5)
    assert plain["signature"] == "window:64|eval_overlap:0|engine:off"
    more = evaluated(capsys, *asked, "eval_overlap=16", "neural_cache=50", "--engine", "int8")
    assert (more["engine"], more["window"], more["eval_overlap"], more["neural_cache"]) == ("int8", 64, 16, 50)
    assert {score["signature"] for score in more["scores"]} == {"window:64|eval_overlap:16|neural_cache:50|engine:int8"}
    coarse = evaluated(capsys, *asked, "--engine", "int8")["scores"][0]
    assert coarse["value"] != plain["value"]


def test_a_text_prints_the_same_signature(writer, capsys):
    assert main(["evaluate", str(writer / "model"), "--data", str(writer / "lines.txt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.endswith(f"[window:{CONTEXT}|eval_overlap:0|engine:off]") for line in lines)


def test_the_window_of_a_long_context_is_bounded():
    sizes = {"vocab": 7, "width": 8, "layers": 1, "heads": 2, "kv_heads": 1, "ffn_width": 8}
    assert context_length(new("llama", llama.Config(**sizes, max_positions=512))) == 512
    assert context_length(new("llama", llama.Config(**sizes, max_positions=131_072))) == MAX_WINDOW_TOKENS == 2048


def test_a_run_keeps_the_window_that_it_was_trained_with(tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("".join(LINES))
    fields = {"max_tokens": 20, "tokenizer": "characters"}
    job = Job("language", (str(tmp_path / "lines.txt"),), "transformer", model_fields=TINY, task_fields=fields)
    list(run_training(prepare(Job(**vars(job) | {"train_fields": {"max_steps": 2}})), tmp_path / "run"))
    found = evaluated(capsys, tmp_path / "run")
    assert found["window"] == 20
    stored = json.loads((tmp_path / "run" / "result.json").read_text())["scores"]["dev"]
    assert [score["signature"] for score in stored] == ["window:20|eval_overlap:0"] * 2
    assert [score["value"] for score in stored] == [score["value"] for score in found["scores"]]


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """A run whose columns were named, in files where other columns have the usual names; dev.csv is read as any other file."""
    home = tmp_path_factory.mktemp("reviews")
    rows = [(f"a {('dull', 'fine')[i % 2]} film {i}", ("bad", "good")[i % 2], f"{i % 5}") for i in range(40)]
    for name, some in (("train", rows[:30]), ("dev", rows[30:])):
        lines = [f"nothing,{words},{stars},{label}" for words, stars, label in some]
        (home / f"{name}.csv").write_text("text,review,stars,label\n" + "\n".join(lines) + "\n")
    files = (str(home / "train.csv"), str(home / "dev.csv"))
    columns = {"text": "review", "label": "stars"}
    list(
        run_training(
            prepare(Job("label", files, columns=columns, model_fields=TINY, train_fields={"max_steps": 2})),
            home / "run",
        )
    )
    return home


def test_columns_that_training_named_need_not_be_named_again(reviews, capsys):
    dev, columns = reviews / "dev.csv", "text=review,label=stars"
    named = evaluated(capsys, reviews / "run", "--data", dev, "--columns", columns)
    assert evaluated(capsys, reviews / "run", "--data", dev) == named
    assert saccade.evaluate(reviews / "run", str(dev)).as_dict() == named
    assert evaluated(capsys, reviews / "run")["scores"] == named["scores"]


def test_columns_that_are_named_now_come_before_those_of_training(reviews, tmp_path, capsys):
    (tmp_path / "other.csv").write_text("words,review,stars\nan odd film,ignored,good\na dull film,ignored,bad\n")
    asked = (reviews / "run", "--data", tmp_path / "other.csv", "--columns", "text=words")
    assert evaluated(capsys, *asked)["examples"] == 2
    assert main(["evaluate", str(reviews / "run"), "--data", str(tmp_path / "other.csv"), "--columns", "text=no"]) == 3


def test_prediction_and_audit_read_the_same_columns(reviews, capsys):
    dev = str(reviews / "dev.csv")
    found = []
    for columns in ([], ["--columns", "text=review,label=stars"]):
        assert main(["predict", str(reviews / "run"), "--data", dev, "--json", *columns]) == 0
        predicted = capsys.readouterr().out
        assert (
            main(["audit", str(reviews / "run"), "--suite", "counterfactual", "--data", dev, "--json", *columns]) == 0
        )
        found.append((predicted, capsys.readouterr().out))
    assert found[0] == found[1]
    assert open_run(reviews / "run").task.column_names == {"text": "review", "label": "stars"}


def test_a_stored_column_that_a_file_lacks_is_said_with_where_it_came_from(reviews, tmp_path):
    (tmp_path / "plain.csv").write_text("words,stars\na fine film,good\n")
    with pytest.raises(DataError, match=r"trained with --columns text=review.* --columns text=words"):
        saccade.evaluate(reviews / "run", str(tmp_path / "plain.csv"))
