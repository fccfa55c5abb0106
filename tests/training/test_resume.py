"""A run goes on with what it began with, and with nothing else."""

import re
from typing import Any

import pytest

from saccade import cli
from saccade.training.events import RunRefused
from saccade.training.resume import check_same_run
from saccade.training.run import run_training
from support.small_runs import SIZES, TRAIN, get_result, prepare_run, read_outputs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "train.seed was 0 and is 1"),
        ({"batch_tokens": 81}, "train.batch_tokens was 80 and is 81"),
        ({"lr": 1e-3}, "train.lr was 0.003 and is 0.001"),
        ({"micro_batches": 2}, "train.micro_batches was 1 and is 2"),
        ({"precision": "bfloat16"}, "train.precision was 'float32' and is 'bfloat16'"),
        ({"epochs": 4}, "train.epochs was 3 and is 4"),
        ({"sizes": SIZES | {"width": 16}}, "model.width was 8 and is 16"),
        ({"task_fields": {"label_smoothing": 0.1}}, "task.label_smoothing was 0.0 and is 0.1"),
    ],
)
def test_a_run_refuses_to_go_on_with_other_settings(home, change, words):
    list(run_training(prepare_run(home, max_steps=4), home / "out"))
    before = (home / "out" / "metrics.jsonl").read_bytes()
    with pytest.raises(RunRefused, match=f"out cannot resume.*{re.escape(words)}.*--out"):
        list(run_training(prepare_run(home, **change), home / "out"))
    assert (home / "out" / "metrics.jsonl").read_bytes() == before


def test_a_checkpoint_that_is_older_than_a_setting_goes_on_where_the_setting_is_its_default(home):
    now = prepare_run(home, max_steps=4)
    older = {
        name: value
        for name, value in now.resume_facts().items()
        if name not in ("train.optimizer", "task.label_smoothing")
    }
    check_same_run(older, now, home / "out")
    with pytest.raises(RunRefused, match=r"task\.label_smoothing was 0\.0 and is 0\.1"):
        check_same_run(older, prepare_run(home, task_fields={"label_smoothing": 0.1}), home / "out")
    gone = {**now.resume_facts(), "train.retired": 3}
    with pytest.raises(RunRefused, match=r"train\.retired was 3 and is 'missing'"):
        check_same_run(gone, now, home / "out")


def test_a_run_refuses_other_data_and_other_labels(home, capsys):
    path = home / "label.tsv"
    old = path.read_text()
    list(run_training(prepare_run(home, max_steps=4), home / "out"))
    path.write_text(old.replace("\told ", "\tyoung ", 1))
    with pytest.raises(RunRefused, match=r"have changed: data was '\w+' and is '\w+'\. Restore the old values"):
        list(run_training(prepare_run(home, max_steps=6), home / "out"))
    path.write_text(old.replace("odd\t", "unlike\t"))
    with pytest.raises(RunRefused, match=r"data was .*; labels was \['even', 'odd'\] and is \['even', 'unlike'\]"):
        list(run_training(prepare_run(home, max_steps=6), home / "out"))
    told = [f"--train.{key.replace('_', '-')}={value}" for key, value in TRAIN.items()]
    told += [f"--model.{key}={value}" for key, value in SIZES.items()]
    assert (
        cli.main(["train", "label", "--data", str(path), "--family", "transformer", "--out", str(home / "out"), *told])
        == 2
    )
    assert "cannot resume, since data or settings have changed" in capsys.readouterr().err
    path.write_text(old)
    assert get_result(list(run_training(prepare_run(home, max_steps=6), home / "out"))).steps == 6


def test_what_only_says_when_to_stop_or_to_save_may_change(home):
    list(run_training(prepare_run(home), home / "calm"))
    free: list[dict[str, Any]] = [
        {"max_steps": 3},
        {"max_steps": 7, "save_every": 1},
        {"max_steps": 9, "save_minutes": 1e-9, "patience": 50},
        {"max_minutes": 1e-9},
        {"max_minutes": 60.0, "device": "cpu", "save_every": 0, "save_minutes": 5.0},
    ]
    steps = [get_result(list(run_training(prepare_run(home, **change), home / "wild"))).steps for change in free]
    assert steps[:4] == [3, 7, 9, 9]
    assert read_outputs(home / "wild") == read_outputs(home / "calm")


def test_a_seed_is_a_run(home):
    for out, seed in (("one", 5), ("same", 5), ("other", 6)):
        list(run_training(prepare_run(home, seed=seed, sizes=SIZES | {"dropout": 0.3}), home / out))
    assert read_outputs(home / "one") == read_outputs(home / "same")
    assert all(a != b for a, b in zip(read_outputs(home / "one"), read_outputs(home / "other"), strict=True))
