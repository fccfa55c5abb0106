"""A run is one object: its settings, task, model, data and scores are opened in one place, each once, when they are needed."""

import ast
import json
import math
from pathlib import Path

import pytest
import torch

import saccade
from saccade.cli import main
from saccade.data import Role
from saccade.errors import DataError, ModelError, UsageError
from saccade.models.build import new
from saccade.models.families import bert
from saccade.tasks.runs import stored_config
from saccade.tasks.runs.run import Run, open_run
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

ROWS = [
    {"review": f"the {'good' if i % 2 else 'bad'} soup {i}", "stars": str(i % 2), "town": "Bern"} for i in range(60)
]
TINY = {"width": 8, "layers": 1, "ffn_width": 8, "heads": 2}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run on rows whose columns had to be named."""
    home = tmp_path_factory.mktemp("run")
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    job = Job(
        "label",
        (str(home / "rows.jsonl"),),
        "bert",
        columns={"text": "review", "label": "stars"},
        model_fields=TINY,
        train_fields={"max_steps": 2},
    )
    list(run_training(prepare(job), home / "out"))
    return home


def test_settings_task_model_data_and_scores(home):
    found = open_run(home / "out", "label")
    assert found.settings["run"]["task"] == found.task.name == "label"
    assert found.task.config.max_tokens == found.settings["task"]["max_tokens"]
    assert found.model.family.name == "bert"
    assert found.task.labels == ("0", "1")
    splits = found.data
    assert splits is not None
    read = [example["text"] for table in splits.as_dict().values() for example in table.examples]
    assert sorted(read) == sorted(row["review"] for row in ROWS)
    assert found.held_out == splits.dev.examples
    stored = json.loads((home / "out" / "result.json").read_text())
    assert found.result["steps"] == stored["steps"] == 2
    assert {split: [vars(one) for one in some] for split, some in found.scores.items()} == stored["scores"]


def test_nothing_is_read_before_it_is_used(home, monkeypatch):
    monkeypatch.setattr("saccade.tasks.runs.run.load", lambda path: pytest.fail("the model was loaded"))
    monkeypatch.setattr("saccade.tasks.runs.run.read_json", lambda path: pytest.fail("the result was read"))
    found = Run(home / "out")
    assert found.columns == {"text": "review", "label": "stars"}
    assert len(found.held_out) == 6  # without its model


def test_its_settings_are_read_once(home, monkeypatch, capsys):
    """By each command that evaluates, audits, asks or looks, whatever it needs of the run."""
    times = []
    read = stored_config.read_toml
    monkeypatch.setattr(stored_config, "read_toml", lambda path: times.append(path) or read(path))
    for command in ("evaluate", "predict", "label", "look"):
        times.clear()
        asked = [] if command == "evaluate" else ["the good soup"]
        assert main([command, str(home / "out"), *asked]) == 0
        assert times == [home / "out" / "config.toml"], command
    times.clear()
    assert main(["audit", str(home / "out"), "--suite", "counterfactual"]) == 0
    assert len(times) == 1
    capsys.readouterr()


def test_config_toml_is_parsed_in_one_place():
    """`read_run_settings` has one caller: everybody else asks a Run."""
    home = Path(saccade.__file__).parent
    users = {
        str(path.relative_to(home))
        for path in home.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and any(one.name == "read_run_settings" for one in node.names)
    }
    assert users == {"tasks/runs/run.py"}


def test_further_columns_of_the_same_data(home):
    found = Run(home / "out")
    splits = found.read_data_with((Role("by", "label", required=False),), {"by": "town"})
    assert splits is not None
    assert found.data is not None
    assert [example["by"] for example in splits.dev.examples] == ["Bern"] * 6
    assert [one["text"] for one in splits.dev.examples] == [one["text"] for one in found.data.dev.examples]


def test_data_that_have_changed_are_refused(home, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes((home / "rows.jsonl").read_bytes())
    config = (home / "out" / "config.toml").read_text().replace(str(home / "rows.jsonl"), str(tmp_path / "rows.jsonl"))
    (tmp_path / "config.toml").write_text(config)
    assert len(Run(tmp_path).held_out) == 6
    (tmp_path / "rows.jsonl").write_bytes(b'{"review": "odd", "stars": "1"}\n' * 60)
    with pytest.raises(DataError, match="have changed since it was trained"):
        _ = Run(tmp_path).held_out


def test_settings_that_scoring_shall_have(home):
    found = open_run(home / "out")
    trained = found.task.config.max_tokens
    found.change_settings({"max_tokens": 7})
    assert found.task.config.max_tokens == 7 != trained
    assert found.task.labels == ("0", "1")
    assert found.task.column_names == found.columns
    assert open_run(home / "out").task.config.max_tokens == trained


def test_a_model_alone_has_no_data_and_an_encoder_no_task(tmp_path):
    torch.manual_seed(0)
    new("bert", bert.Config(vocab=20, **TINY)).save(tmp_path / "encoder")
    found = Run(tmp_path / "encoder")
    assert (found.settings, found.result, found.scores, found.data, found.find_task()) == ({}, {}, {}, None, None)
    with pytest.raises(ModelError, match="no head that answers"):
        open_run(tmp_path / "encoder")
    with pytest.raises(UsageError, match="is no run, so it has no held-out data"):
        _ = found.held_out


def test_a_run_of_another_task_is_refused(home):
    with pytest.raises(ModelError, match="was made to label, not to tag"):
        open_run(home / "out", "tag")


def test_a_score_that_is_no_number(tmp_path):
    """result.json has words for numbers that JSON has not."""
    score = {"name": "pearson", "value": "float:nan", "low": "float:-inf", "high": 1.0, "count": 3}
    (tmp_path / "result.json").write_text(json.dumps({"scores": {"dev": [score]}}))
    (found,) = Run(tmp_path).scores["dev"]
    assert math.isnan(found.value)
    assert (found.name, found.low, found.high, found.count) == ("pearson", -math.inf, 1.0, 3)
