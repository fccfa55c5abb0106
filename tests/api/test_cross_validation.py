"""Cross-validation: a run for each fold, tested on what it was not trained on, and the mean of their scores."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.api.cross_validation import CrossValidation, make_folds
from saccade.cli import main
from saccade.errors import DataError, UsageError
from saccade.metrics import Score
from saccade.tasks.runs.run import Run
from saccade.training.events import DevEvaluation
from saccade.training.prepare import Job

SIZES = {"width": 8, "layers": 1, "heads": 2, "ffn_width": 12}
FLAGS = [f"--model.{name.replace('_', '-')}={size}" for name, size in SIZES.items()]
PEOPLE = 12


def make_rows(count=60):
    words = ["ash", "birch", "elm", "fir", "oak"]
    return [
        {
            "text": f"{words[i % 5]} {words[i % 3]} {i}",
            "label": "odd" if i % 2 else "even",
            "person": f"p{i % PEOPLE}",
        }
        for i in range(count)
    ]


def held_out_texts(directory):
    data = Run(directory).data
    assert data is not None
    assert data.test is not None
    return {name: [example["text"] for example in table.examples] for name, table in data.as_dict().items()}


def test_every_row_is_tested_once_and_the_summary_is_that_of_numpy(tmp_path):
    rows = make_rows()
    call = lambda: saccade.cross_validate(
        "label", data=rows, folds=3, out=tmp_path / "cv", train={"epochs": 2}, architecture=SIZES
    )
    found = call()
    parts = [held_out_texts(directory) for directory in found.directories]
    assert Counter(text for part in parts for text in part["test"]) == Counter(row["text"] for row in rows)
    for part in parts:
        assert sorted(sum(part.values(), [])) == sorted(row["text"] for row in rows)  # noqa: RUF017
    values = [Run(tmp_path / "cv" / f"fold-{i}").scores["test"][0].value for i in (1, 2, 3)]
    assert found.values("accuracy") == values
    assert (found.mean("accuracy"), found.std("accuracy")) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert json.loads((tmp_path / "cv" / "cross_validation.json").read_text()) == json.loads(
        json.dumps(found.as_dict())
    )
    assert "fold 3" in str(found)
    assert "fold 3" in found._repr_html_()
    assert call().as_dict() == found.as_dict()  # finished folds are read, not trained again


def test_an_interrupted_cross_validation_goes_on_where_it_was(tmp_path):
    rows = make_rows()

    class Stop(Exception):
        pass

    evaluations = []

    def stop_in_the_second_fold(event):
        evaluations.append(event)
        if sum(isinstance(event, DevEvaluation) for event in evaluations) == 3:
            raise Stop

    call = {"folds": 2, "train": {"epochs": 2, "save_every": 1}, "architecture": SIZES}
    with pytest.raises(Stop):
        saccade.cross_validate("label", data=rows, out=tmp_path / "a", on_event=stop_in_the_second_fold, **call)
    assert not (tmp_path / "a" / "cross_validation.json").exists()
    resumed = saccade.cross_validate("label", data=rows, out=tmp_path / "a", **call)
    whole = saccade.cross_validate("label", data=rows, out=tmp_path / "b", **call)
    assert resumed.scores == whole.scores


def test_the_command_keeps_groups_together_and_prints_a_table_or_json(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows()))
    call = [
        "train",
        "label",
        "--data",
        str(path),
        "--folds",
        "3",
        "--group-by",
        "person",
        "--out",
        str(tmp_path / "cv"),
    ]
    call += [*FLAGS, "--train.epochs", "1"]
    assert main(call) == 0
    said = capsys.readouterr().out
    assert "fold 2 of 3" in said
    assert "by column person: 20 of 60 records are the test set" in said
    header, first, *_ = said.rstrip().split("\n\n")[-1].splitlines()
    assert header.split() == ["score", "mean", "std", "fold", "1", "fold", "2", "fold", "3"]
    people = {row["text"]: row["person"] for row in make_rows()}
    tested = []
    for i in (1, 2, 3):
        parts = held_out_texts(tmp_path / "cv" / f"fold-{i}")
        groups = [{people[text] for text in part} for part in parts.values()]
        assert sum(map(len, groups)) == len(set.union(*groups)) == PEOPLE
        tested += groups[2]
    assert sorted(tested) == sorted(set(people.values()))
    assert main([*call, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [Path(fold["out"]).name for fold in found["folds"]] == ["fold-1", "fold-2", "fold-3"]
    assert first.split()[:2] == ["accuracy", f"{found['mean']['accuracy']:.3f}"]


def test_one_run_can_keep_groups_together_too(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows()))
    call = ["train", "label", "--data", str(path), "--group-by", "person", "--out", str(tmp_path / "run"), *FLAGS]
    assert main([*call, "--train.epochs", "1"]) == 0
    data = Run(tmp_path / "run").data
    assert data is not None
    people = {row["text"]: row["person"] for row in make_rows()}
    sides = [{people[example["text"]] for example in table.examples} for table in data.as_dict().values()]
    assert not sides[0] & sides[1]
    assert main([*call, "--group-by", "persona"]) == 3
    assert "person" in capsys.readouterr().err


def test_what_cannot_be_cross_validated_says_why(tmp_path, capsys):
    with pytest.raises(UsageError, match="1 folds: cross-validation needs at least 2"):
        make_folds(Job("label"), tmp_path, 1)
    with pytest.raises(UsageError, match=r"leave out train\.fold"):
        make_folds(Job("label", train_fields={"fold": "1/2"}), tmp_path, 2)
    with pytest.raises(DataError, match="20 folds need at least 20 groups, and the data have 12"):
        saccade.cross_validate("label", data=make_rows(), folds=20, group_by="person", out=tmp_path / "a")
    with pytest.raises(UsageError, match="has no folds"):
        saccade.cross_validate("language", folds=2, out=tmp_path / "b")
    assert main(["train", "label", "--folds", "2", "--processes", "2"]) == 2
    assert "leave out --processes" in capsys.readouterr().err


def test_a_score_that_a_fold_lacks_is_not_averaged():
    folds = [[Score("accuracy", 0.5, 0, 1, 9), Score("f1", 0.5, 0, 1, 9)], [Score("accuracy", 0.7, 0, 1, 9)]]
    found = CrossValidation([Path("a"), Path("b")], folds)
    assert found.names == ["accuracy"]
    assert found.as_dict()["mean"] == {"accuracy": pytest.approx(0.6)}
