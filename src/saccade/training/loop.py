"""The training loop: forward pass, backward pass, gradient clipping, optimizer step, EMA. It yields steps; the caller decides.

    learner = Learner(model, task, batches, config, world)
    for step in train_steps(learner):
        ...                                   # print, evaluate on the dev set, save a checkpoint, break

The batches and random numbers of a step depend only on the seed and on the number of the step, so a learner that is restored
from a checkpoint continues exactly as it would have. A non-finite loss or gradient never reaches the weights.
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
    """The loss, learning rate and gradient norm of one training step, and how long it took."""

    number: int  # from 1
    epoch: int  # from 0
    loss: float  # mean per target: example, word or token
    lr: float
    grad_norm: float  # before clipping
    tokens: int  # of inputs and targets, without padding
    seconds: float


class NonFiniteLoss(DivergedError):
    """The loss or the gradient is not finite; the weights are as they were before the step."""

    def __init__(self, step: int, loss: float, grad_norm: float, batches: list[Batch]):
        self.step, self.loss, self.grad_norm, self.batches = step, loss, grad_norm, batches
        super().__init__(
            f"step {step}: the loss is {loss} and the gradient norm {grad_norm}, so the weights were not updated. "
            "Lower train.lr, lengthen train.warmup, or check the examples."
        )


class Learner:
    """The training state: the model, the optimizer with its moments, the EMA of the weights, and the number of steps taken."""

    def __init__(self, model: Model, task: Task, batch_source: BatchSource, config: Config, world: World | None = None):
        self.world, config = world or single_process_world(config.device), resolve_precision(config)
        self.model, self.task, self.batch_source, self.config = model.to(self.world.device), task, batch_source, config
        make_optimizer(model, config)  # sets `requires_grad`, which DDP and FSDP need to know when they wrap the model
        self.strategy = make_strategy(model, task, self.world, fsdp=config.fsdp)
        self.optimizer = make_optimizer(model, config)
        self.trainable_parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.total_steps = batch_source.count_steps(config.epochs)
        self.step_count = 0
        self.ema: dict[str, Tensor] = {}
        if config.ema:
            self.ema = {name: p.detach().clone() for name, p in self.trainable_parameters.items()}

    def step(self) -> TrainStep:
        """Train on the next batch; raises NonFiniteLoss and leaves the weights alone if loss or gradient is not finite."""
        started_at, config = time.perf_counter(), self.config
        self.model.train()
        torch.manual_seed(_mix_seeds(config.seed, self.step_count, self.world.rank))  # for dropout and other sampling
        self.task.before_step(self.model, self.step_count, self.total_steps)
        batches = self._read_batches()
        local_targets = sum(self.task.count_targets(batch) for batch in batches)
        local_tokens = sum(sum(item.lengths) for batch in batches for item in batch.items)
        by_rank = self.world.all_gather(local_targets, len(batches), local_tokens)
        targets, tokens = sum(row[0] for row in by_rank), sum(row[2] for row in by_rank)
        micro_batches = int(max(row[1] for row in by_rank))
        loss, norm = self._accumulate_gradients(batches, micro_batches, max(1, targets) / self.world.size)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            if self.world.size > 1:
                batches = self.batch_source.batches(self.step_count)  # those of all processes
            raise NonFiniteLoss(self.step_count + 1, loss, norm, batches)
        lr = lr_at(self.step_count, self.total_steps, max_lr=config.lr, schedule=config.schedule, warmup=config.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["lr_scale"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema:
            self._update_ema()
        epoch = self.batch_source.epoch_at(self.step_count)
        self.step_count += 1
        return TrainStep(self.step_count, epoch, loss, lr, norm, int(tokens), time.perf_counter() - started_at)

    def skip_step(self) -> None:
        """Skip the next step: only the step count changes."""
        self.step_count += 1

    def _read_batches(self) -> list[Batch]:
        """The micro-batches of this process for the next step; empty if there are fewer rows than processes."""
        world = self.world
        return self.batch_source.batches(
            self.step_count, micro_batches=self.config.micro_batches, rank=world.rank, world_size=world.size
        )

    def _accumulate_gradients(self, batches: list[Batch], micro_batches: int, count: float) -> tuple[float, float]:
        """Gradient accumulation over micro-batches, then clipping; returns loss and gradient norm, the same in all processes.

        Every process makes the same number of backward passes: one that has fewer micro-batches repeats the first one of rank 0
        with its loss multiplied by zero.
        """
        loss, idle = 0.0, micro_batches - len(batches)
        if idle:
            filler = self.batch_source.batches(
                self.step_count, micro_batches=self.config.micro_batches, world_size=self.world.size
            )
            batches = batches + filler[:1] * idle
        for index, batch in enumerate(batches):
            with self.strategy.micro_batch(is_last=index == micro_batches - 1):
                with self._autocast():
                    micro_loss = self.strategy.loss(batch.to(self.world.device)) / count
                    micro_loss = micro_loss * 0.0 if index >= micro_batches - idle else micro_loss
                self.world.report_progress()  # the backward pass waits for the other processes to exchange gradients
                micro_loss.backward()
                loss += float(micro_loss.detach())
        norm = self.strategy.clip_gradients(list(self.trainable_parameters.values()), self.config.clip_grad_norm)
        by_rank = self.world.all_gather(loss, norm)
        return sum(row[0] for row in by_rank) / self.world.size, sum(row[1] for row in by_rank) / self.world.size

    def checkpoint_tensors(self) -> dict[str, dict[str, Tensor]]:
        """All tensors of a checkpoint, by group (model, optimizer, ema); tied parameters are saved once."""
        out = {"model": dict(self.model.named_parameters()) | dict(self.model.named_buffers()), "optimizer": {}}
        for name, parameter in self.trainable_parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                out["optimizer"][f"{name}:{key}"] = value
        if self.ema:
            out["ema"] = self.ema
        return out

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]], step_count: int) -> None:
        """Restore model, optimizer and EMA from the tensors of a checkpoint, and set the step count."""
        self.strategy.load_tensors(tensors["model"])
        for key, value in tensors["optimizer"].items():
            name, _, state_name = key.rpartition(":")
            # `step` is on the device of the weights only in a fused optimizer
            is_on_device = state_name != "step" or self.optimizer.defaults["fused"]
            state, parameter = self.optimizer.state, self.trainable_parameters[name]
            local = value if state_name == "step" else self.strategy.shard_tensor(value, parameter)
            state[parameter][state_name] = local.to(self.world.device if is_on_device else "cpu")
        for name, value in tensors.get("ema", {}).items():
            self.ema[name].copy_(self.strategy.shard_tensor(value, self.ema[name]))
        self.step_count = step_count

    def with_ema(self) -> AbstractContextManager[Model]:
        """A context with the full model, with EMA weights if `config.ema` is set; only the first process may use it."""
        return self.strategy.full_model(self.ema)

    def _update_ema(self) -> None:
        # the decay is smaller in the first steps, so that the initial weights are soon forgotten
        decay = min(self.config.ema, (1 + self.step_count) / (10 + self.step_count))
        means, weights = (
            self.strategy.to_local([tensors[name] for name in self.ema])
            for tensors in (self.ema, self.trainable_parameters)
        )
        with torch.no_grad():
            torch._foreach_lerp_(means, weights, 1 - decay)

    def _autocast(self) -> Any:
        is_bfloat16 = self.config.precision == "bfloat16"
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=is_bfloat16)


def train_steps(learner: Learner) -> Iterator[TrainStep]:
    """Yield training steps until the end of the schedule; a step is taken when the iterator is advanced."""
    while learner.step_count < learner.total_steps:
        yield learner.step()


def _mix_seeds(*numbers: int) -> int:
    """Hash several numbers to one seed, so that neighboring numbers give unrelated seeds (SplitMix64)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed
