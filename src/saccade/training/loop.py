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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.data import Batch
from saccade.errors import DivergedError
from saccade.models.model import Model
from saccade.tasks.feed import Feed
from saccade.tasks.task import Task
from saccade.training.config import Config
from saccade.training.optimizer import optimizer
from saccade.training.precision import settled
from saccade.training.schedule import rate
from saccade.training.world import World, alone
from saccade.training.world.spread import spread


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


class Diverged(DivergedError):
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
        self.world, config = world or alone(config.device), settled(config)
        self.model, self.task, self.feed, self.config = model.to(self.world.device), task, feed, config
        optimizer(model, config)  # says what is learnt and what stays, which has to be known before a model is spread
        self.spread = spread(model, task, self.world, shard=config.shard)
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
        self.task.onward(self.model, self.done, self.horizon)
        batches = self._batches()
        read = sum(sum(item.lengths) for batch in batches for item in batch.rows)
        said = self.world.gather(sum(self.task.count(batch) for batch in batches), len(batches), read)
        count, parts, tokens = (
            sum(one[0] for one in said),
            int(max(one[1] for one in said)),
            sum(one[2] for one in said),
        )
        loss, norm = self._learn(batches, parts, max(1, count) / self.world.size)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            alone = self.world.size == 1
            raise Diverged(self.done + 1, loss, norm, batches if alone else self.feed.batches(self.done))
        now = rate(self.done, self.horizon, highest=config.rate, schedule=config.schedule, warmup=config.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = now * group["share"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.mean:
            self._average()
        epoch = self.feed.epoch(self.done)
        self.done += 1
        return Step(self.done, epoch, loss, now, norm, int(tokens), time.perf_counter() - began)

    def skip(self) -> None:
        """Leave the next step out: nothing changes but the count."""
        self.done += 1

    def _batches(self) -> list[Batch]:
        """This process's share of the next step; where rows are too few for all processes it is empty."""
        world = self.world
        return self.feed.batches(self.done, parts=self.config.parts, rank=world.rank, size=world.size)

    def _learn(self, batches: list[Batch], parts: int, count: float) -> tuple[float, float]:
        """The gradient of a step, clipped; its loss and how long it was, the same in all processes.

        All processes make as many passes. Who has nothing left to read takes what the first reads, times nothing.
        """
        loss, idle = 0.0, parts - len(batches)
        if idle:
            batches = batches + self.feed.batches(self.done, parts=self.config.parts, size=self.world.size)[:1] * idle
        for number, batch in enumerate(batches):
            with self.spread.part(last=number == parts - 1):
                with self._precision():
                    part = self.spread.loss(batch.to(self.world.device)) / count
                    part = part * 0.0 if number >= parts - idle else part
                self.world.come()  # to where it waits for the others, as they exchange gradients
                part.backward()
                loss += float(part.detach())
        norm = self.spread.clip(list(self.learnt.values()), self.config.clip)
        told = self.world.gather(loss, norm)
        return sum(one[0] for one in told) / self.world.size, sum(one[1] for one in told) / self.world.size

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
        self.spread.put(tensors["model"])
        for key, value in tensors["optimizer"].items():
            name, _, what = key.rpartition(":")
            # only a fused optimiser counts its steps where the weights are
            here = what != "step" or self.optimizer.defaults["fused"]
            state, parameter = self.optimizer.state, self.learnt[name]
            kept = value if what == "step" else self.spread.mine(value, parameter)
            state[parameter][what] = kept.to(self.world.device if here else "cpu")
        for name, value in tensors.get("mean", {}).items():
            self.mean[name].copy_(self.spread.mine(value, self.mean[name]))
        self.done = done

    def averaged(self) -> AbstractContextManager[Model]:
        """The model with the mean of its weights, where one is kept, and as it is where not; for the first process alone."""
        return self.spread.shown(self.mean)

    def _average(self) -> None:
        # the first steps count for more, so that where training began is soon forgotten
        stay = min(self.config.average, (1 + self.done) / (10 + self.done))
        means, now = (self.spread.local([table[name] for name in self.mean]) for table in (self.mean, self.learnt))
        with torch.no_grad():
            torch._foreach_lerp_(means, now, 1 - stay)

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
