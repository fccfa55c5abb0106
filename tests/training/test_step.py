"""A step, whole or in parts; and what is not finite never reaches the weights."""

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade import cli
from saccade.tasks.label import Label
from saccade.training.config import Config
from saccade.training.loop import Learner, NonFiniteLoss
from saccade.training.run import run_training
from support.small_runs import (
    SIZES,
    TASKS,
    TRAIN,
    clone_weights,
    make_learner,
    prepare_run,
    read_outputs,
    record_gradients,
    weights_equal,
)


@pytest.mark.parametrize("task", TASKS)
def test_parts_of_a_step_give_the_same_step(home, task):
    """In one, two, three and five parts, and example by example without the loop; lengths differ and rows do not divide."""
    whole = make_learner(home, task, double=True, clip_grad_norm=0.0)
    seen = record_gradients(whole)
    steps = [whole.step() for _ in range(3)]
    read = [whole.batch_source.batches(step)[0].items for step in range(3)]
    assert task == "language" or any(len({item.lengths for item in rows}) > 1 for rows in read)
    for parts in (2, 3, 5):
        other = make_learner(home, task, double=True, clip_grad_norm=0.0, micro_batches=parts)
        assert len(other.batch_source.batches(0, micro_batches=parts)) > 1
        again = record_gradients(other)
        for step in steps:
            assert other.step().loss == pytest.approx(step.loss, abs=1e-12)
        for a, b in zip(seen, again, strict=True):
            assert_close(a, b, rtol=1e-10, atol=1e-12)
        assert_close(clone_weights(whole.model), clone_weights(other.model), rtol=0, atol=1e-10)
    alone = make_learner(home, task, double=True)
    items = alone.batch_source.batches(0)[0].items
    batches = [alone.task.batch([item]) for item in items]
    loss: Any = sum(alone.task.loss(alone.model, batch) for batch in batches) / sum(
        map(alone.task.count_targets, batches)
    )
    loss.backward()
    assert_close(
        {n: p.grad for n, p in alone.trainable_parameters.items() if p.grad is not None},
        seen[0],
        rtol=1e-10,
        atol=1e-12,
    )


def test_the_last_step_of_an_epoch_is_not_worth_less(home):
    """A loss is per example, however few are left for the last batch."""
    one = make_learner(home, double=True)
    losses = []
    for step in range(one.batch_source.plan.count_steps(0)):
        batch = one.batch_source.batches(step)[0]
        losses.append(one.task.loss(one.model, batch).item() / len(batch.items))
    sizes = [len(one.batch_source.batches(step)[0].items) for step in range(len(losses))]
    assert len(set(sizes)) > 1
    for i, loss in enumerate(losses):
        one.step_count = i
        one.optimizer.param_groups[0]["lr"] = 0.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one.optimizer, "step", lambda: None)
            assert one.step().loss == pytest.approx(loss, rel=1e-12)


def test_rows_bound_a_step_of_every_task(home):
    for task in TASKS:
        one = make_learner(home, task, batch_size=2)
        assert {len(one.batch_source.batches(step)[0].items) for step in range(one.total_steps)} <= {1, 2}


# what is not finite


def poison(monkeypatch: pytest.MonkeyPatch, one: Any, where: str, value: float, at: int) -> None:
    """At one step the loss, or one gradient, is not finite; the learner is looked up when the step comes."""
    real = Label.loss

    def loss(self: Label, model: Any, batch: Any) -> Tensor:
        out = real(self, model, batch)
        if one().step_count != at:
            return out
        if where == "loss":
            return out * value
        grown = list(model.parameters())[3]
        grown.register_hook(lambda grad: torch.where(torch.arange(grad.numel()).view_as(grad) == 1, value, grad))
        return out

    monkeypatch.setattr(Label, "loss", loss)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_what_is_not_finite_never_reaches_the_weights(home, monkeypatch, where, value):
    for at in (0, 1, 4, 9):
        for clip in (0.0, 1.0):
            one = make_learner(home, ema=0.9, clip_grad_norm=clip)
            with monkeypatch.context() as patch:
                poison(patch, lambda one=one: one, where, value, at)
                for _ in range(at):
                    one.step()
                before = copy.deepcopy(one.checkpoint_tensors())
                with pytest.raises(NonFiniteLoss, match=f"step {at + 1}: .*the weights were not updated") as caught:
                    one.step()
            assert caught.value.batches[0].items == one.batch_source.batches(at)[0].items
            assert one.step_count == at
            after = one.checkpoint_tensors()
            assert all(weights_equal(before[group], after[group]) for group in ("model", "optimizer", "ema"))
            assert all(p.grad is None for p in one.model.parameters())


def test_a_run_that_diverges_names_the_examples_and_can_go_on(home, monkeypatch, capsys):
    args = ["train", "label", "--data", str(home / "label.tsv"), "--family", "transformer"]
    args += [f"--model.{key}={value}" for key, value in SIZES.items()]
    args += [f"--train.{key.replace('_', '-')}={value}" for key, value in TRAIN.items()]
    assert cli.main([*args, "--out", str(home / "calm")]) == 0
    made: list[Learner] = []
    real = Learner.__init__

    def remember(self: Learner, *given: Any) -> None:
        real(self, *given)
        made.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "__init__", remember)
        poison(patch, lambda: made[-1], "loss", math.nan, 6)
        for _ in range(2):
            capsys.readouterr()
            assert cli.main([*args, "--out", str(home / "wild")]) == 6
            said = capsys.readouterr().err
            assert re.search(r"saccade train: step 7: the loss is nan .* Lower train.lr", said)
            assert "Traceback" not in said
    rows = [json.loads(line) for line in (home / "wild" / "diverged.jsonl").read_text().splitlines()]
    read = made[-1].batch_source.batches(6)[0].items
    assert [row["line"] for row in rows] == [item.example.line for item in read]
    lines = (home / "label.tsv").read_text().splitlines()
    for row in rows:
        assert lines[row["line"] - 1] == f"{row['example_label']}\t{row['example_text']}"
        assert (row["step"], Path(row["file"]).name) == (7, "label.tsv")
    assert cli.main([*args, "--out", str(home / "wild")]) == 0
    assert read_outputs(home / "wild") == read_outputs(home / "calm")


def test_a_window_of_running_text_is_written_down_as_text(home, monkeypatch):
    made = prepare_run(home, "language")
    monkeypatch.setattr(
        type(made.task), "loss", lambda self, model, batch: sum(p.sum() for p in model.parameters()) * math.nan
    )
    with pytest.raises(NonFiniteLoss):
        list(run_training(made, home / "out"))
    rows = [json.loads(line) for line in (home / "out" / "diverged.jsonl").read_text().splitlines()]
    text = (home / "language.txt").read_text()
    assert rows
    assert all(len(row["example_text"]) == 16 and row["example_text"] in text for row in rows)


@pytest.mark.parametrize("name", ["lr", "clip_grad_norm", "weight_decay", "warmup"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_settings_are_finite(name, value):
    with pytest.raises(ValueError, match=rf"train\.{name} is {value}"):
        Config(**{name: value})
