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
from saccade.tasks.base import Task
from saccade.tasks.batches import BatchSource
from saccade.training.autocast import resolve_precision
from saccade.training.config import Config
from saccade.training.distributed import World, single_process_world
from saccade.training.distributed.strategy import make_strategy
from saccade.training.optim.optimizer import make_optimizer
from saccade.training.optim.schedule import lr_at


@dataclass(frozen=True)
class TrainStep:
    """What one step did."""

    number: int  # from 1
    epoch: int  # from 0
    loss: float  # per example, word or token
    lr: float
    grad_norm: float  # of the gradient, before it was clipped
    tokens: int  # read and written, padding not counted
    seconds: float


class NonFiniteLoss(DivergedError):
    """A loss or a gradient that is not finite; the weights are as they were before the step."""

    def __init__(self, step: int, loss: float, grad_norm: float, batches: list[Batch]):
        self.step, self.loss, self.grad_norm, self.batches = step, loss, grad_norm, batches
        super().__init__(
            f"step {step}: the loss is {loss} and the gradient {grad_norm}, so nothing was learnt from it. "
            "Lower train.lr, lengthen train.warmup, or look at the examples."
        )


class Learner:
    """A model and everything else that changes as it learns: the optimiser's moments, the mean of the weights, the count."""

    def __init__(self, model: Model, task: Task, batch_source: BatchSource, config: Config, world: World | None = None):
        self.world, config = world or single_process_world(config.device), resolve_precision(config)
        self.model, self.task, self.batch_source, self.config = model.to(self.world.device), task, batch_source, config
        make_optimizer(
            model, config
        )  # says what is learnt and what stays, which has to be known before a model is spread
        self.strategy = make_strategy(model, task, self.world, fsdp=config.fsdp)
        self.optimizer = make_optimizer(model, config)
        self.trainable_parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.total_steps = batch_source.count_steps(config.epochs)
        self.step_count = 0
        self.ema: dict[str, Tensor] = {}
        if config.ema:
            self.ema = {name: p.detach().clone() for name, p in self.trainable_parameters.items()}

    def step(self) -> TrainStep:
        """Learn from the next batch."""
        began, config = time.perf_counter(), self.config
        self.model.train()
        torch.manual_seed(
            _mix_seeds(config.seed, self.step_count, self.world.rank)
        )  # dropout and other draws of this step
        self.task.before_step(self.model, self.step_count, self.total_steps)
        batches = self._read_batches()
        read = sum(sum(item.lengths) for batch in batches for item in batch.items)
        said = self.world.all_gather(sum(self.task.count_targets(batch) for batch in batches), len(batches), read)
        count, parts, tokens = (
            sum(one[0] for one in said),
            int(max(one[1] for one in said)),
            sum(one[2] for one in said),
        )
        loss, norm = self._accumulate_gradients(batches, parts, max(1, count) / self.world.size)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            alone = self.world.size == 1
            raise NonFiniteLoss(
                self.step_count + 1, loss, norm, batches if alone else self.batch_source.batches(self.step_count)
            )
        now = lr_at(self.step_count, self.total_steps, max_lr=config.lr, schedule=config.schedule, warmup=config.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = now * group["lr_scale"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema:
            self._update_ema()
        epoch = self.batch_source.epoch_at(self.step_count)
        self.step_count += 1
        return TrainStep(self.step_count, epoch, loss, now, norm, int(tokens), time.perf_counter() - began)

    def skip_step(self) -> None:
        """Leave the next step out: nothing changes but the count."""
        self.step_count += 1

    def _read_batches(self) -> list[Batch]:
        """This process's share of the next step; where rows are too few for all processes it is empty."""
        world = self.world
        return self.batch_source.batches(
            self.step_count, micro_batches=self.config.micro_batches, rank=world.rank, world_size=world.size
        )

    def _accumulate_gradients(self, batches: list[Batch], micro_batches: int, count: float) -> tuple[float, float]:
        """The gradient of a step, clipped; its loss and how long it was, the same in all processes.

        All processes make as many passes. Who has nothing left to read takes what the first reads, times nothing.
        """
        loss, idle = 0.0, micro_batches - len(batches)
        if idle:
            batches = (
                batches
                + self.batch_source.batches(
                    self.step_count, micro_batches=self.config.micro_batches, world_size=self.world.size
                )[:1]
                * idle
            )
        for number, batch in enumerate(batches):
            with self.strategy.micro_batch(is_last=number == micro_batches - 1):
                with self._autocast():
                    part = self.strategy.loss(batch.to(self.world.device)) / count
                    part = part * 0.0 if number >= micro_batches - idle else part
                self.world.report_progress()  # to where it waits for the others, as they exchange gradients
                part.backward()
                loss += float(part.detach())
        norm = self.strategy.clip_gradients(list(self.trainable_parameters.values()), self.config.clip_grad_norm)
        told = self.world.all_gather(loss, norm)
        return sum(one[0] for one in told) / self.world.size, sum(one[1] for one in told) / self.world.size

    def checkpoint_tensors(self) -> dict[str, dict[str, Tensor]]:
        """All tensors of a checkpoint, by group; tied parameters are written once."""
        out = {"model": dict(self.model.named_parameters()) | dict(self.model.named_buffers()), "optimizer": {}}
        for name, parameter in self.trainable_parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                out["optimizer"][f"{name}:{key}"] = value
        if self.ema:
            out["ema"] = self.ema
        return out

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]], step_count: int) -> None:
        """Be where a checkpoint was written."""
        self.strategy.load_tensors(tensors["model"])
        for key, value in tensors["optimizer"].items():
            name, _, what = key.rpartition(":")
            # only a fused optimiser counts its steps where the weights are
            here = what != "step" or self.optimizer.defaults["fused"]
            state, parameter = self.optimizer.state, self.trainable_parameters[name]
            kept = value if what == "step" else self.strategy.shard_tensor(value, parameter)
            state[parameter][what] = kept.to(self.world.device if here else "cpu")
        for name, value in tensors.get("ema", {}).items():
            self.ema[name].copy_(self.strategy.shard_tensor(value, self.ema[name]))
        self.step_count = step_count

    def with_ema(self) -> AbstractContextManager[Model]:
        """The model with the mean of its weights, where one is kept, and as it is where not; for the first process alone."""
        return self.strategy.full_model(self.ema)

    def _update_ema(self) -> None:
        # the first steps count for more, so that where training began is soon forgotten
        stay = min(self.config.ema, (1 + self.step_count) / (10 + self.step_count))
        means, now = (
            self.strategy.to_local([table[name] for name in self.ema])
            for table in (self.ema, self.trainable_parameters)
        )
        with torch.no_grad():
            torch._foreach_lerp_(means, now, 1 - stay)

    def _autocast(self) -> Any:
        low = self.config.precision == "bfloat16"
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=low)


def train_steps(learner: Learner) -> Iterator[TrainStep]:
    """Steps up to the end of the schedule, each taken when it is asked for."""
    while learner.step_count < learner.total_steps:
        yield learner.step()


def _mix_seeds(*numbers: int) -> int:
    """One seed of several numbers, far from that of their neighbours (SplitMix64)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed
