"""With train.on_nan = skip a step with a non-finite loss is skipped: weights unchanged, at most three times per run."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import cli
from saccade.tasks.label import Label
from saccade.training.config import Config
from saccade.training.events import Event, Message
from saccade.training.loop import Learner, NonFiniteLoss, TrainStep
from saccade.training.metrics_log import MetricsLog
from saccade.training.run import run_training
from support.small_runs import SIZES, TRAIN, get_result, make_learner, prepare_run, read_outputs, weights_equal


def poison(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> list[Learner]:
    """At these steps, from 0, the loss is not finite; the learners that were made."""
    made: list[Learner] = []
    real, loss = Learner.__init__, Label.loss

    def remember(self: Learner, *given: Any) -> None:
        real(self, *given)
        made.append(self)

    def wrong(self: Label, model: Any, batch: Any) -> torch.Tensor:
        return loss(self, model, batch) * (math.nan if made[-1].step_count in steps else 1.0)

    monkeypatch.setattr(Learner, "__init__", remember)
    monkeypatch.setattr(Label, "loss", wrong)
    return made


@pytest.mark.parametrize("at", [{0}, {1, 2}, {4, 9, 10}, {3, 7, 14}])
def test_weights_moments_and_mean_stay_as_they_are(home, monkeypatch, at):
    made = poison(monkeypatch, at)
    events: list[Event] = []
    before: dict[str, Any] = {}
    seen = 0
    for event in run_training(prepare_run(home, on_nan="skip", ema=0.9), home / "out"):
        one = made[-1]
        if isinstance(event, Message) and "skipped" in event.text:
            seen += 1
            assert event.text.startswith(f"step {one.step_count} skipped ({seen} of at most 3): loss nan")
            assert one.step_count - 1 in at
            after = one.checkpoint_tensors()
            assert all(weights_equal(before[group], after[group]) for group in before)
            assert one.step_count == 1 or before["optimizer"]
        before = copy.deepcopy(one.checkpoint_tensors())
        events.append(event)
    assert seen == len(at)
    assert get_result(events).steps == made[-1].total_steps
    steps = [event.number - 1 for event in events if isinstance(event, TrainStep)]
    assert sorted(steps + list(at)) == list(range(made[-1].total_steps))
    lines = MetricsLog(home / "out" / "metrics.jsonl").read()
    assert [line["step"] - 1 for line in lines if "skipped_steps" in line] == sorted(at)
    written = {row["step"] - 1 for row in map(json.loads, (home / "out" / "diverged.jsonl").read_text().splitlines())}
    assert written == at


def test_the_fourth_ends_the_run_and_the_count_survives_a_stop(home, monkeypatch, capsys):
    args = ["train", "label", "--data", str(home / "label.tsv"), "--family", "transformer", "--out", str(home / "out")]
    args += [f"--model.{key}={value}" for key, value in SIZES.items()]
    args += [f"--train.{key.replace('_', '-')}={value}" for key, value in TRAIN.items()] + ["--train.on-nan=skip"]
    poison(monkeypatch, {2, 5, 9, 11})
    assert cli.main([*args, "--train.max-steps=7"]) == 0  # two of them are behind us
    assert cli.main(args) == 6
    out, err = capsys.readouterr()
    assert out.count("skipped (3 of at most 3)") == 1
    assert "step 12: the loss is nan" in err
    assert "3 steps have been skipped already, the maximum per run." in err
    rows = [json.loads(line)["step"] for line in (home / "out" / "diverged.jsonl").read_text().splitlines()]
    assert sorted(set(rows)) == [3, 6, 10, 12]


def test_a_run_that_stopped_may_go_on_by_leaving_the_step_out(home, monkeypatch):
    poison(monkeypatch, {6})
    with pytest.raises(NonFiniteLoss):
        list(run_training(prepare_run(home), home / "out"))
    assert get_result(list(run_training(prepare_run(home, on_nan="skip"), home / "out"))).steps > 7
    list(run_training(prepare_run(home, on_nan="skip"), home / "whole"))
    assert read_outputs(home / "out") == read_outputs(home / "whole")


def test_a_word_that_is_no_choice_is_refused():
    with pytest.raises(ValueError, match=r"train.on_nan is 'pass'; known are stop, skip"):
        Config(on_nan="pass")


def test_skipping_is_all_that_skip_does(home: Path):
    one, other = make_learner(home), make_learner(home)
    one.step()
    other.step()
    before = copy.deepcopy(one.checkpoint_tensors())
    one.skip_step()
    assert one.step_count == 2
    assert all(weights_equal(before[group], one.checkpoint_tensors()[group]) for group in before)
    assert weights_equal(one.checkpoint_tensors()["model"], other.checkpoint_tensors()["model"])
