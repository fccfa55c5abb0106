"""The range test of learning rates: it finds the steepest fall, stops in time, and leaves the model alone."""

import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from saccade.cli import main
from saccade.cli.commands.find_lr import format_table
from saccade.errors import DivergedError
from saccade.training.loop import Learner, NonFiniteLoss
from saccade.training.lr_finder import (
    DEFAULT_STEPS,
    MAX_LOSS_RATIO,
    SMOOTHING_STEPS,
    Trial,
    lr_sweep,
    smooth_losses,
    suggest_lr,
    try_lrs,
)
from saccade.training.prepare import Job, prepare

SMALL = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 32}


@pytest.fixture
def ready(tmp_path):
    path = tmp_path / "reviews.tsv"
    rows = (f"{'good fine' if i % 2 else 'bad poor'} number {i}\t{'pos' if i % 2 else 'neg'}\n" for i in range(60))
    path.write_text("text\tlabel\n" + "".join(rows))
    train = {"batch_tokens": 256, "device": "cpu"}
    return prepare(Job("label", (str(path),), "", {}, "error", SMALL, {"tokenizer": "characters"}, train))


def curve(rate, *, middle, spread=0.25):
    """A loss that falls from 3 to 1 as a logistic of the rate's logarithm: steepest where that is `middle`."""
    return 1 + 2 / (1 + math.exp((math.log10(rate) - middle) / spread))


@pytest.mark.parametrize("middle", [-4.0, -3.1, -2.0])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_the_steepest_fall_is_found(middle, noise):
    draw = random.Random(0)
    tried = [Trial(rate, curve(rate, middle=middle) + draw.gauss(0, noise)) for rate in lr_sweep()]
    step = math.log10(tried[1].lr / tried[0].lr)
    found = suggest_lr(tried)
    assert math.log10(found.lr) == pytest.approx(middle, abs=step if not noise else 5 * step)
    assert found.slope < 0
    assert f"{found.slope:+.2g}" in found.reason


def test_what_comes_after_the_lowest_loss_is_not_asked():
    """A loss that runs away and drops again: the drop is steeper than the fall before, and no rate to train with."""
    tried = [Trial(rate, curve(rate, middle=-4)) for rate in lr_sweep()]
    tried = [replace(t, loss=t.loss + (30 if i == 85 else 15 if 85 < i < 95 else 0)) for i, t in enumerate(tried)]
    assert math.log10(suggest_lr(tried).lr) == pytest.approx(-4, abs=0.1)


def test_a_loss_that_never_falls_and_one_that_runs_away_at_once():
    with pytest.raises(ValueError, match=r"does not fall at any learning rate from 1\.0e-06 to 1\.0e\+00"):
        suggest_lr([Trial(rate, 1 + i) for i, rate in enumerate(lr_sweep())])
    with pytest.raises(DivergedError, match=f"after 3 learning rates.*{SMOOTHING_STEPS} are needed"):
        suggest_lr([Trial(rate, 1.0) for rate in lr_sweep()[:3]])


def test_means_by_hand():
    values = [float(i * i) for i in range(20)]
    half = SMOOTHING_STEPS // 2
    found = smooth_losses(values)
    assert found[10] == pytest.approx(sum(i * i for i in range(10 - half, 11 + half)) / SMOOTHING_STEPS)
    assert found[0] == pytest.approx(sum(i * i for i in range(half + 1)) / (half + 1))


def test_rates_grow_by_one_factor_and_wrong_ones_are_refused():
    found = lr_sweep()
    factors = [b / a for a, b in pairwise(found)]
    assert (len(found), found[0], found[-1]) == (DEFAULT_STEPS, 1e-6, pytest.approx(1.0))
    assert factors == pytest.approx([factors[0]] * (DEFAULT_STEPS - 1))
    with pytest.raises(ValueError, match="0 < lowest < highest"):
        lr_sweep(1.0, 1e-6)


def test_the_steps_are_those_of_training_and_the_model_stays(ready):
    before = {name: value.clone() for name, value in ready.model.state_dict().items()}
    found = list(try_lrs(ready, [1e-3] * 4))
    assert all(torch.equal(value, before[name]) for name, value in ready.model.state_dict().items())
    from saccade.tasks.batches import make_batches

    config = replace(ready.config, lr=1e-3, schedule="constant", warmup=0.0)
    read = make_batches(
        ready.task, ready.splits.train.examples, ready.model, batch_tokens=config.batch_tokens, seed=config.seed
    )
    learner = Learner(ready.model, ready.task, read, config)
    assert [step.loss for step in found] == [learner.step().loss for _ in range(4)]


def test_it_stops_when_the_loss_is_far_above_its_best(ready):
    found = [step.loss for step in try_lrs(ready, lr_sweep(1e-3, 1e4, 60))]
    assert len(found) < 60
    means = [
        sum(found[max(0, i - SMOOTHING_STEPS + 1) : i + 1]) / min(i + 1, SMOOTHING_STEPS) for i in range(len(found))
    ]
    above = [mean > MAX_LOSS_RATIO * min(means[: i + 1]) for i, mean in enumerate(means)]
    assert above == [False] * (len(found) - 1) + [True] or not any(above)  # or it was not finite any more


def test_a_loss_that_is_not_finite_ends_it(ready, monkeypatch):
    step, seen = Learner.step, []

    def broken(self):
        if len(seen) == 5:
            raise NonFiniteLoss(6, math.nan, math.nan, [])
        seen.append(step(self))
        return seen[-1]

    monkeypatch.setattr(Learner, "step", broken)
    assert len(list(try_lrs(ready))) == 5
    with pytest.raises(NonFiniteLoss):  # at the first step no rate is to blame
        list(try_lrs(ready))


def test_the_table_marks_the_chosen_rate():
    tried = [Trial(rate, curve(rate, middle=-3) + (50 if rate > 0.5 else 0)) for rate in lr_sweep()]
    found = suggest_lr(tried)
    (marked,) = [
        line for line in format_table(tried, smooth_losses([t.loss for t in tried]), found).splitlines() if "<-" in line
    ]
    assert marked.startswith(f"{found.lr:.1e}")


def test_the_command_names_a_rate_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = (f"{'good fine' if i % 2 else 'bad poor'} number {i}\t{'pos' if i % 2 else 'neg'}\n" for i in range(60))
    Path("reviews.tsv").write_text("text\tlabel\n" + "".join(rows))
    words = ["find-lr", "label", "--data", "reviews.tsv", *(f"--model.{name}={value}" for name, value in SMALL.items())]
    words += ["--task.tokenizer=characters", "--train.batch-tokens=256", "--train.device=cpu"]
    assert main([*words, "--png", "rates.png"]) == 0
    out = capsys.readouterr().out
    assert Path("rates.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rates.png", "reviews.tsv"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert f"--train.lr {found['lr']:.1e}" in out
    assert 1e-5 < found["lr"] < found["lr_at_lowest_loss"]
    assert [step["lr"] for step in found["steps"]] == lr_sweep()[: len(found["steps"])]
