"""The one loop: forward, backward and step, again and again; it yields steps and the caller decides.

    learner = Learner(model, task, feed, config, world)
    for step in train(learner):
        ...                                   # print, look at held-out data, save, break

What a step reads and draws is a function of the seed and of its number, so a learner that is put back to where it was goes
on as if nothing had happened. A loss or gradient that is not finite never reaches the weights.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.data import Batch
from saccade.models.model import Model
from saccade.tasks.feed import Feed
from saccade.tasks.task import Task
from saccade.training.config import Config
from saccade.training.optimizer import optimizer
from saccade.training.schedule import rate
from saccade.training.world import World, alone


@dataclass(frozen=True)
class Step:
    """What one step did."""

    number: int  # from 1
    epoch: int  # from 0
    loss: float  # per example, word or token
    rate: float
    norm: float  # of the gradient, before it was clipped
    tokens: int  # read and written, padding not counted
    seconds: float


class Diverged(ArithmeticError):
    """A loss or a gradient that is not finite; the weights are as they were before the step."""

    def __init__(self, step: int, loss: float, norm: float, batches: list[Batch]):
        self.step, self.loss, self.norm, self.batches = step, loss, norm, batches
        super().__init__(
            f"step {step}: the loss is {loss} and the gradient {norm}, so nothing was learnt from it. "
            "Lower train.rate, lengthen train.warmup, or look at the examples."
        )


class Learner:
    """A model and everything else that changes as it learns: the optimiser's moments, the mean of the weights, the count."""

    def __init__(self, model: Model, task: Task, feed: Feed, config: Config, world: World | None = None):
        self.world = world or alone(config.device)
        self.model, self.task, self.feed, self.config = model.to(self.world.device), task, feed, config
        self.optimizer = optimizer(model, config)
        self.learnt = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.horizon = feed.steps(config.epochs)
        self.done = 0
        self.mean: dict[str, Tensor] = {}
        if config.average:
            self.mean = {name: p.detach().clone() for name, p in self.learnt.items()}

    def step(self) -> Step:
        """Learn from the next batch."""
        began, config = time.perf_counter(), self.config
        self.model.train()
        torch.manual_seed(_mixed(config.seed, self.done, self.world.rank))  # dropout and other draws of this step
        batches = self.feed.batches(self.done, parts=config.parts, rank=self.world.rank, size=self.world.size)
        count = sum(self.task.count(batch) for batch in batches)
        loss = 0.0
        for batch in batches:
            with self._precision():
                part = self.task.loss(self.model, batch.to(self.world.device)) / max(1, count)
            part.backward()
            loss += float(part.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(self.learnt.values(), config.clip or math.inf))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            raise Diverged(self.done + 1, loss, norm, batches)
        now = rate(self.done, self.horizon, highest=config.rate, schedule=config.schedule, warmup=config.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = now * group["share"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.mean:
            self._average()
        epoch = self.feed.epoch(self.done)
        self.done += 1
        tokens = sum(sum(item.lengths) for batch in batches for item in batch.rows)
        return Step(self.done, epoch, loss, now, norm, tokens, time.perf_counter() - began)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """All tensors of a checkpoint, by group; tied parameters are written once."""
        out = {"model": dict(self.model.named_parameters()) | dict(self.model.named_buffers()), "optimizer": {}}
        for name, parameter in self.learnt.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                out["optimizer"][f"{name}:{key}"] = value
        if self.mean:
            out["mean"] = self.mean
        return out

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]], done: int) -> None:
        """Be where a checkpoint was written."""
        self._put(tensors["model"])
        for key, value in tensors["optimizer"].items():
            name, _, what = key.rpartition(":")
            # only a fused optimiser counts its steps where the weights are
            here = what != "step" or self.optimizer.defaults["fused"]
            self.optimizer.state[self.learnt[name]][what] = value.to(self.world.device if here else "cpu")
        for name, value in tensors.get("mean", {}).items():
            self.mean[name].copy_(value)
        self.done = done

    @contextmanager
    def averaged(self) -> Iterator[Model]:
        """The model with the mean of its weights, where one is kept, and as it is where not."""
        kept = {name: self.learnt[name].detach().clone() for name in self.mean}
        self._put(self.mean)
        try:
            yield self.model
        finally:
            self._put(kept)

    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        own = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        with torch.no_grad():
            for name, value in tensors.items():
                own[name].copy_(value)

    def _average(self) -> None:
        # the first steps count for more, so that where training began is soon forgotten
        stay = min(self.config.average, (1 + self.done) / (10 + self.done))
        names = list(self.mean)
        with torch.no_grad():
            torch._foreach_lerp_([self.mean[name] for name in names], [self.learnt[name] for name in names], 1 - stay)

    def _precision(self) -> Any:
        low = self.config.precision == "bfloat16"
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=low)


def train(learner: Learner) -> Iterator[Step]:
    """Steps up to the end of the schedule, each taken when it is asked for."""
    while learner.done < learner.horizon:
        yield learner.step()


def _mixed(*numbers: int) -> int:
    """One seed of several numbers, far from that of their neighbours (SplitMix64)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed
