"""The mean of the weights, the best of them, and when a run ends early."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small import ended, learner, left, ready, same, weights
from torch.testing import assert_close

from saccade.tasks.label import Label
from saccade.tasks.metrics import Score
from saccade.training.disk import Disk
from saccade.training.events import Looked
from saccade.training.loop import train
from saccade.training.run import Run, run
from saccade.training.stops import Stops


def test_the_mean_is_a_plain_loop(home):
    one = learner(home, average=0.8)
    mean = {name: p.detach().clone().double() for name, p in one.learnt.items()}
    for n in range(12):
        one.step()
        stay = min(0.8, (1 + n) / (10 + n))
        mean = {name: stay * mean[name] + (1 - stay) * p.detach().double() for name, p in one.learnt.items()}
    assert_close(one.mean, {name: x.float() for name, x in mean.items()}, rtol=1e-5, atol=1e-6)
    before = weights(one.model)
    with one.averaged() as model:
        assert same(dict(model.named_parameters()), one.mean)
    assert same(weights(one.model), before)


def scripted(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """The looks on the way find these scores, one after the other; whoever asks about all held-out data finds 0."""
    left = iter(values)
    inside = [False]
    look = Run.look

    def looking(self: Run, stops: Stops) -> Looked:
        inside[0] = True
        try:
            return look(self, stops)
        finally:
            inside[0] = False

    def score(self: Label, answers: Any, examples: Any) -> list[Score]:
        return [Score("accuracy", next(left) if inside[0] else 0.0, 0.0, 1.0, 7)]

    monkeypatch.setattr(Run, "look", looking)
    monkeypatch.setattr(Label, "score", score)


def test_patience_ends_a_run_and_the_best_is_what_is_written(home, monkeypatch):
    scripted(monkeypatch, [0.2, 0.6, 0.6, 0.5, 0.7, math.nan, 0.6, 0.1])
    given = {"look_every": 2, "save_every": 1, "epochs": 6}
    events = list(run(ready(home, patience=2, **given), home / "out"))
    result = ended(events)
    assert (result.steps, result.why) == (8, "no better score for long")
    assert [event.best for event in events if isinstance(event, Looked)] == [True, True, False, False]
    stored = load_file(home / "out" / "checkpoints" / "step-00000004" / "model.safetensors")
    assert same(load_file(home / "out" / "model" / "model.safetensors"), stored)
    assert ended(list(run(ready(home, patience=2, **given), home / "out"))).steps == 8  # it is over, and stays so
    assert ended(list(run(ready(home, patience=3, **given), home / "out"))).steps == 16  # who has more patience goes on
    stored = load_file(home / "out" / "checkpoints" / "step-00000010" / "model.safetensors")
    assert same(load_file(home / "out" / "model" / "model.safetensors"), stored)


def test_the_best_is_marked_even_if_its_writer_died_before(home, monkeypatch):
    """Between a checkpoint and the mark that it is the best, a process can be killed."""
    scripted(monkeypatch, [0.2, 0.6, 0.1, 0.2, 0.6, 0.1])
    list(run(ready(home), home / "calm"))
    real = Disk.rename

    def rename(self: Disk, old: Path, new: Path) -> None:
        if new.name == "best.json" and (home / "wild" / "checkpoints" / "best.json").exists():
            raise KeyboardInterrupt
        real(self, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            list(run(ready(home), home / "wild"))
    list(run(ready(home), home / "wild"))
    marks = [json.loads((home / out / "checkpoints" / "best.json").read_text()) for out in ("calm", "wild")]
    assert marks[0] == marks[1]
    assert left(home / "calm") == left(home / "wild")


def test_a_run_that_ends_before_its_first_look_writes_what_it_has(home):
    list(run(ready(home, max_steps=3), home / "out"))
    stored = load_file(home / "out" / "checkpoints" / "step-00000003" / "model.safetensors")
    assert same(load_file(home / "out" / "model" / "model.safetensors"), stored)
    assert "dev" not in (home / "out" / "metrics.jsonl").read_text()


def test_bfloat16_learns(home):
    one = learner(home, precision="bfloat16", epochs=30, rate=1e-2)
    losses = [step.loss for step in train(one)]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert {p.dtype for p in one.model.parameters()} == {torch.float32}
    other = learner(home, epochs=30, rate=1e-2)
    assert other.step().loss != losses[0]
    assert other.step().loss == pytest.approx(losses[1], rel=0.05)
