"""Rows whose labels are kept back: left out of every score, aloud, and counted; a label that was learnt is none of them."""

import json

import pytest

from saccade.cli import main
from saccade.data import Example, read_examples
from saccade.data.example import LABEL, TEXT
from saccade.errors import DataError
from saccade.tasks.label import Config, Label
from saccade.tasks.pair import Config as OfPairs
from saccade.tasks.pair import Pair
from saccade.tasks.runs.run import open_run
from saccade.tasks.unlabeled import filter_labeled, is_unlabeled, make_gold_optional
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

TINY = {"width": 8, "layers": 1, "ffn_width": 8, "heads": 2}
SHORT = {"max_steps": 2, "max_eval_examples": 5}
COLOURS = ("red", "blue", "green")


def texts(count):
    return [f"a {COLOURS[i % 3]} thing number {i}" for i in range(count)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A trained run of two labels, 0 and 1, whose test file hides its labels."""
    home = tmp_path_factory.mktemp("labelled")
    rows = [{"text": text, "label": i % 2} for i, text in enumerate(texts(30))]
    write_jsonl(home / "train.jsonl", rows[:20])
    write_jsonl(home / "dev.jsonl", [*rows[20:], {"text": "a grey thing", "label": -1}])
    write_jsonl(home / "test.jsonl", [{"text": text, "label": -1} for text in texts(7)])
    files = tuple(str(home / f"{name}.jsonl") for name in ("train", "dev", "test"))
    ready = prepare(Job("label", files, model_fields=TINY, train_fields=SHORT))
    list(run_training(ready, home / "run"))
    return home, ready


def test_the_mark_of_a_hidden_label_is_one_only_where_it_was_not_learnt():
    for gold in ("-1", "-1.0", "?", None, ["-1"]):
        assert is_unlabeled(gold, ("0", "1"))
    assert not is_unlabeled("-1", ("-1", "1"))
    assert not is_unlabeled("?", ("?", "!"))
    assert not is_unlabeled("2", ("0", "1"))  # a label that training did not have is wrong, not hidden
    assert not is_unlabeled([], ("a", "b"))  # none of several labels is an answer


def test_training_leaves_hidden_rows_out_of_dev_and_a_hidden_test_out_altogether(labelled):
    home, ready = labelled
    assert ready.splits.test is None
    assert len(ready.splits.dev.examples) == 10
    assert any("test: all 7 labels are hidden" in line and "predict" in line for line in ready.notes)
    assert any(line.strip().startswith("dev: 1 of 11 rows are not scored") for line in ready.notes)
    assert len(open_run(home / "run").held_out) == 10


def test_evaluate_scores_the_rows_that_are_told_and_says_how_many_are_not(labelled, capsys):
    home, _ = labelled
    told = [{"text": text, "label": i % 2} for i, text in enumerate(texts(9))]
    marks = [{"label": -1}, {"label": ""}, {"label": None}, {"label": "?"}, {}]
    secret = [{"text": text, **marks[i]} for i, text in enumerate(texts(5))]
    mixed = write_jsonl(home / "mixed.jsonl", [*secret[:2], *told, *secret[2:]])
    plain = write_jsonl(home / "plain.jsonl", told)
    assert main(["evaluate", str(home / "run"), "--data", mixed, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert "5 of 14 rows are not scored because their labels are hidden" in said.err
    assert (found["examples"], found["unlabeled"]) == (9, 5)
    assert main(["evaluate", str(home / "run"), "--data", plain, "--json"]) == 0
    said = capsys.readouterr()
    assert "left out" not in said.err
    alone = json.loads(said.out)
    places = [[mistake.pop(name) for name in ("file", "line")] for one in (found, alone) for mistake in one["mistakes"]]
    assert {file for file, _ in places} == {mixed, plain}  # the same mistakes, in other files and lines
    assert alone == {**found, "unlabeled": 0}
    assert main(["predict", str(home / "run"), "--data", plain, "--json"]) == 0
    answers = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
    right = [answer == str(row["label"]) for answer, row in zip(answers, told, strict=True)]
    assert found["scores"][0]["value"] == pytest.approx(sum(right) / 9)


def test_nothing_to_score_is_an_error_that_names_predict(labelled, capsys):
    home, _ = labelled
    assert main(["evaluate", str(home / "run"), "--data", str(home / "test.jsonl")]) == 3
    said = capsys.readouterr().err
    for word in ("all 7 rows are hidden", "nothing to score", "saccade predict", "test.jsonl:1", "'-1'"):
        assert word in said


def test_an_empty_cell_is_still_refused_where_it_would_be_learnt(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\na red thing\t0\na blue thing\t\n")
    with pytest.raises(DataError, match="label is missing"):
        read_examples([path], (TEXT, LABEL))
    found = read_examples([path], make_gold_optional((TEXT, LABEL))).examples
    assert ["label" in example for example in found] == [True, False]


def test_pairs_of_classes_and_of_numbers():
    def pairs(*golds):
        return [Example({"first": "a", "second": "b"} | ({} if gold is None else {"label": gold})) for gold in golds]

    classes = Pair(OfPairs(target_type="label"), ("0", "1"))
    assert classes.unlabeled_mask(pairs("0", "-1", "1", "?", None)) == [False, True, False, True, True]
    numbers = Pair(OfPairs(target_type="number"), ("score",))
    assert numbers.unlabeled_mask(pairs(-1.0, 0.5, None)) == [False, False, True]  # a number like others
    assert numbers.unlabeled_mask(pairs(-1.0, -1.0)) == [True, True]  # throughout: STS-B's test set
    assert filter_labeled(numbers, pairs(-1.0, 0.5, None))[1] == 1


def test_several_labels_at_once():
    task = Label(Config(multi_label=True), ("a", "b"))
    rows = [Example({"text": "x", "labels": labels}) for labels in ([], ["a"], ["-1"], ["a", "?"])]
    assert task.unlabeled_mask(rows) == [False, False, True, False]


def test_a_run_that_learnt_the_mark_scores_it(tmp_path):
    rows = [{"text": text, "label": (-1, 1)[i % 2]} for i, text in enumerate(texts(20))]
    data = write_jsonl(tmp_path / "train.jsonl", rows)
    list(run_training(prepare(Job("label", (data,), model_fields=TINY, train_fields=SHORT)), tmp_path / "run"))
    task = open_run(tmp_path / "run").task
    assert task.labels == ("-1", "1")
    assert main(["evaluate", str(tmp_path / "run"), "--data", data]) == 0
