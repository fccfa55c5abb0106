"""`saccade runs` and `saccade.list_runs`: what they say of a run is what its files say, and an odd file hides only itself."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from safetensors.torch import load_file

import saccade
from saccade.cli import main
from saccade.errors import UsageError
from saccade.training.checkpoint.run_lock import lock_run

TINY = {"width": 8, "layers": 1, "heads": 2, "ffn_width": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three runs, one of them in a folder of its own, that differ in the learning rate and the seed."""
    home = tmp_path_factory.mktemp("folder") / "runs"
    for name, lr, seed in (("first", 1e-3, 0), ("sweep/second", 1e-2, 0), ("sweep/third", 1e-2, 1)):
        settings = {"lr": lr, "seed": seed, "max_steps": 4, "eval_every": 2}
        saccade.train("label", out=home / name, architecture=TINY, train=settings)
    return home


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "runs")


def named(folder):
    return {run.name: run for run in saccade.list_runs(folder)}


def test_the_facts_of_a_run_are_those_of_its_files(folder):
    runs = named(folder)
    assert set(runs) == {"first", "sweep/second", "sweep/third"}
    for name, run in runs.items():
        result = json.loads((folder / name / "result.json").read_text())
        stored = result["scores"]["dev"][0]
        weights = load_file(folder / name / "model" / "model.safetensors")
        assert (run.split, run.score.value, run.score.low) == ("dev", stored["value"], stored["low"])
        assert run.parameters == result["parameters"] == sum(x.numel() for x in weights.values())
        assert run.weight_bytes == os.path.getsize(folder / name / "model" / "model.safetensors")
        assert (run.state, run.step, run.task) == ("finished", 4, "label")
        speed = [json.loads(line) for line in (folder / name / "speed.jsonl").read_text().splitlines()]
        assert run.minutes >= 0.9 * sum(row.get("seconds", 0) for row in speed) / 60


def test_only_the_settings_that_differ_are_columns(folder):
    runs = saccade.list_runs(folder)
    assert runs.settings == ("train.seed", "train.lr")
    frame = runs.to_pandas()
    assert dict(zip(frame["name"], frame["train.lr"], strict=True)) == {
        "first": 1e-3,
        "sweep/second": 1e-2,
        "sweep/third": 1e-2,
    }
    assert "train.epochs" not in frame
    assert runs[:1].settings == ()


def test_the_order_is_by_date_or_by_score(copy):
    for name, value in (("first", 0.5), ("sweep/second", 0.75), ("sweep/third", 0.25)):
        result = json.loads((copy / name / "result.json").read_text())
        result["scores"]["dev"][0]["value"] = value
        (copy / name / "result.json").write_text(json.dumps(result))
    for time, name in enumerate(("sweep/third", "first", "sweep/second")):
        for file in ("config.toml", "metrics.jsonl", "result.json"):
            os.utime(copy / name / file, (time, time))
    assert [run.name for run in saccade.list_runs(copy)] == ["sweep/second", "first", "sweep/third"]
    by_score = saccade.list_runs(copy, sort="score")
    assert [run.score.value for run in by_score] == [0.75, 0.5, 0.25]
    with pytest.raises(UsageError, match="did you mean 'score'"):
        saccade.list_runs(copy, sort="scores")  # type: ignore[arg-type]


def test_a_run_that_was_stopped_says_at_which_step_and_one_in_progress_that_it_runs(copy):
    (copy / "first" / "result.json").unlink()
    shutil.rmtree(copy / "first" / "model")
    run = named(copy)["first"]
    last = [json.loads(line) for line in (copy / "first" / "metrics.jsonl").read_text().splitlines() if "dev" in line]
    assert run.describe_state() == "stopped at step 4"
    assert run.score.value == last[-1]["dev"]["accuracy"]
    assert run.describe_score() == f"dev accuracy {run.score.value:.3f}"  # an interval is measured at the end
    shutil.rmtree(copy / "first" / "checkpoints")
    assert named(copy)["first"].describe_state() == "stopped at step 4"
    with lock_run(copy / "first"):
        assert named(copy)["first"].describe_state() == "running, step 4"
    shutil.copytree(copy / "sweep" / "second" / "checkpoints", copy / "first" / "checkpoints")
    newest = max((copy / "first" / "checkpoints").glob("step-*"))
    newest.rename(newest.with_name("step-00000009"))
    assert named(copy)["first"].describe_state() == "stopped at step 9"


DAMAGE = {
    "config.toml": ("[run", "config.toml"),
    "result.json": ('{"scores": 3}', "result.json"),
    "model/model.safetensors": ("x", "model/model.safetensors: 1 bytes are too few"),
}


@pytest.mark.parametrize("file", DAMAGE)
def test_a_damaged_run_is_listed_with_the_reason(copy, file, capsys):
    (copy / "first" / file).write_text(DAMAGE[file][0])
    run = named(copy)["first"]
    assert run.state == "damaged"
    assert DAMAGE[file][1] in run.problem
    assert str(copy) not in run.problem
    assert main(["runs", str(copy)]) == 0
    out, err = capsys.readouterr()
    assert f"first: {run.problem}" in out
    assert not err


@pytest.mark.parametrize(
    "result",
    ["[]", "null", '{"scores": {"dev": [3]}}', '{"scores": {"dev": [{"name": 3}]}}', '{"scores": {"dev": [{}]}}',
     '{"steps": "x", "scores": []}', '{"scores": {"dev": {"name": "a"}}}', "[" * 5000,
     '{"scores": {"dev": [{"name": "a", "value": "x", "low": 1, "high": 2, "count": 3}]}}'],
)  # fmt: skip
def test_no_result_of_others_ends_in_a_traceback(tmp_path, result):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text(result)
    (run,) = saccade.list_runs(tmp_path)
    assert run.state == "damaged"
    assert json.dumps(run.as_dict())
    assert repr(saccade.list_runs(tmp_path)).count("\n") == 2


def test_the_command_prints_a_table_csv_and_json(folder, tmp_path, capsys):
    assert main(["runs", str(folder), "--csv", str(tmp_path / "runs.csv")]) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].split()[:3] == ["run", "task", "score"]
    assert "seed 1, lr 0.01" in table
    frame = saccade.list_runs(folder).to_pandas()
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "runs.csv")[["name", "value", "train.lr"]], frame[["name", "value", "train.lr"]]
    )
    assert main(["runs", str(folder), "--csv", "-"]) == 0
    assert [row["name"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == list(frame["name"])
    assert main(["runs", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == saccade.list_runs(folder).as_dicts()
    assert main(["runs", str(folder), "--json", "--csv", "-"]) == 2


def test_a_folder_without_runs_and_a_folder_that_is_missing(tmp_path, capsys):
    assert main(["runs", str(tmp_path)]) == 0
    assert f"no runs in {tmp_path}" in capsys.readouterr().out
    assert main(["runs", str(tmp_path / "nothing")]) == 2
    assert "there is no such directory" in capsys.readouterr().err
    assert repr(saccade.list_runs(tmp_path)) == "no runs"


def test_a_single_run_is_listed_alone(folder):
    (run,) = saccade.list_runs(folder / "first")
    assert (run.name, run.path) == ("first", folder / "first")


def test_a_loop_of_links_ends(copy):
    (copy / "sweep" / "again").symlink_to("..", target_is_directory=True)
    (copy / "back").symlink_to(".", target_is_directory=True)
    assert {Path(run.name).name for run in saccade.list_runs(copy)} == {"first", "second", "third"}
