"""How a model is distributed over processes: a single process, a replica in each (DDP), or a shard in each (FSDP2).

All three have the same interface: loss, gradient clipping, and conversion between full tensors and shards. Gradients are
averaged over processes, so a loss is divided by count / world size.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from saccade.data import Batch
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.parts.layer import Layer
from saccade.tasks.base import Task
from saccade.training.checkpoint.store import CheckpointStore
from saccade.training.distributed.world import World

TensorGroups = Mapping[str, Mapping[str, Tensor]]

MAX_GROUP_PARAMETERS = 2**21  # of the layers that are gathered together
MAX_UNSHARDED_BYTES = 2**30  # size of a model that stays gathered from its forward to its backward pass


class LossModule(nn.Module):
    """A task's loss as the forward pass of a module, since DDP and FSDP hook into forward passes."""

    def __init__(self, task: Task, model: Model):
        super().__init__()
        self.task, self.model = task, model

    def forward(self, batch: Batch) -> Tensor:
        return self.task.loss(self.model, batch)


class SingleProcessStrategy:
    """The full model in one process."""

    def __init__(self, model: Model, task: Task, world: World):
        self.model, self.world = model, world
        self.loss_module: Any = LossModule(task, model)

    def loss(self, batch: Batch) -> Tensor:
        return self.loss_module(batch)

    @contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        """Context of the forward and backward pass of a micro-batch; gradients are synchronized only in the last one."""
        yield

    def clip_gradients(self, parameters: Sequence[nn.Parameter], max_norm: float) -> float:
        """Clip the gradient to this norm (0: no clipping); returns its norm before clipping."""
        return float(clip_grad_norm_(parameters, max_norm or math.inf))

    def shard_tensor(self, value: Tensor, like: Tensor) -> Tensor:
        """The shard of a full tensor that this process holds."""
        return value.to(self.world.device)

    def to_local(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors as plain tensors: of a sharded one, the local shard."""
        return list(tensors)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy full tensors into the parameters and buffers of these names."""
        targets = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        with torch.no_grad():
            for name, value in tensors.items():
                targets[name].copy_(self.shard_tensor(value, targets[name]))

    @contextmanager
    def full_model(self, replacements: Mapping[str, Tensor]) -> Iterator[Model]:
        """The full model, with some parameters replaced temporarily; only rank 0 may use it."""
        params = dict(self.model.named_parameters())
        originals = {name: params[name].detach().clone() for name in replacements}
        self.load_tensors(replacements)
        try:
            yield self.model
        finally:
            self.load_tensors(originals)

    def save(
        self, checkpoints: CheckpointStore, step: int, tensors: TensorGroups, facts: Mapping[str, Any], *, best: bool
    ) -> Path:
        """Save a checkpoint from rank 0."""
        return Path(self.world.run_on_first(lambda: str(checkpoints.save(step, tensors, facts, best=best))))


class DDPStrategy(SingleProcessStrategy):
    """A replica of the model in each process; gradients are synchronized during the backward pass."""

    def __init__(self, model: Model, task: Task, world: World):
        super().__init__(model, task, world)
        # find_unused_parameters also keeps torch from rebuilding its gradient buckets after the first step, after which a
        # resumed run would sum over three or more processes in another order than before; the unused parameter `idle` keeps
        # torch from warning that there are none
        self.loss_module.idle = nn.Parameter(torch.zeros(1, device=world.device))
        self.loss_module = DistributedDataParallel(self.loss_module, find_unused_parameters=True)

    @contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        if is_last:
            yield
        else:
            with self.loss_module.no_sync():
                yield


def group_layers(model: nn.Module) -> list[list[nn.Module]]:
    """Neighbouring layers that FSDP gathers together: a small all-gather takes as long as a larger one."""
    groups: list[list[nn.Module]] = []
    capacity = 0
    for layer in [module for module in model.modules() if isinstance(module, Layer)]:
        size = sum(p.numel() for p in layer.parameters())
        if not groups or size > capacity:
            groups.append([])
            capacity = MAX_GROUP_PARAMETERS
        groups[-1].append(layer)
        capacity -= size
    return groups


class FSDPStrategy(SingleProcessStrategy):
    """A shard of every parameter, its gradient and its optimizer state in each process.

    A layer is gathered while it computes; the layers of a model up to MAX_UNSHARDED_BYTES stay gathered until the backward
    pass, since gathering them again would be a third of all communication.
    """

    def __init__(self, model: Model, task: Task, world: World):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        for name, parameter in model.named_parameters():
            if parameter.dim() == 0:
                raise UsageError(f"{name} is a scalar, which FSDP cannot shard; drop --train.fsdp.")
        super().__init__(model, task, world)
        self.empty_copy = _copy_without_weights(model) if world.is_first else model
        mesh = init_device_mesh(world.device.type, (world.size,))
        is_large = sum(p.numel() * p.element_size() for p in model.parameters()) > MAX_UNSHARDED_BYTES
        for layers in group_layers(model):
            fully_shard(layers, mesh=mesh, reshard_after_forward=is_large)
        fully_shard(self.loss_module, mesh=mesh)

    @contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        self.loss_module.set_requires_gradient_sync(is_last)
        yield

    def clip_gradients(self, parameters: Sequence[nn.Parameter], max_norm: float) -> float:
        """Clip by the norm of the full gradient: the squares of the shards are summed over all processes."""
        grads = self.to_local([p.grad for p in parameters if p.grad is not None])
        squares = torch.stack([grad.double().square().sum() for grad in grads]).sum().item()
        norm = math.sqrt(sum(row[0] for row in self.world.all_gather(squares)))
        if max_norm:
            torch._foreach_mul_(grads, min(1.0, max_norm / (norm + 1e-6)))  # as in torch.nn.utils.clip_grad_norm_
        return norm

    def shard_tensor(self, value: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        value = value.to(self.world.device)
        if isinstance(value, DTensor) or not isinstance(like, DTensor):
            return value
        return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)

    def to_local(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [getattr(x, "to_local", lambda x=x: x)() for x in tensors]

    @contextmanager
    def full_model(self, replacements: Mapping[str, Tensor]) -> Iterator[Model]:
        """Gather the full model on rank 0; all processes must call it."""
        params: dict[str, Any] = dict(self.model.named_parameters())
        target = dict(self.empty_copy.named_parameters())
        for name, parameter in params.items():
            full = _full_tensor(replacements.get(name, parameter.detach()))
            if self.world.is_first:
                target[name].data = full
        if self.world.is_first:
            for name, buffer in self.model.named_buffers():
                self.empty_copy.get_buffer(name).copy_(buffer)
        try:
            yield self.empty_copy
        finally:
            if self.world.is_first:
                for parameter in target.values():
                    parameter.data = parameter.data.new_empty(0)

    def save(
        self, checkpoints: CheckpointStore, step: int, tensors: TensorGroups, facts: Mapping[str, Any], *, best: bool
    ) -> Path:
        """Each process writes its shards, and rank 0 makes a checkpoint of them."""
        from saccade.training.distributed.sharded_checkpoint import ShardWriter

        writer = ShardWriter(self.world)
        if not self.world.is_first:
            writer.write_groups(checkpoints.temporary_path(step), tensors)
            return Path(self.world.run_on_first(lambda: None))
        try:
            path = checkpoints.save(step, tensors, facts, best=best, write_group=writer.write_group)
        except BaseException as error:
            self.world.run_on_first(partial(_raise, error))  # so that the others do not wait
            raise
        return Path(self.world.run_on_first(lambda: str(path)))


def _raise(error: BaseException) -> None:
    raise error


def _full_tensor(x: Any) -> Tensor:
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _copy_without_weights(model: Model) -> Model:
    """A copy of a model with empty parameters, to be filled with full tensors."""
    empty: dict[int, Any] = {
        id(p): nn.Parameter(p.detach().new_empty(0), requires_grad=p.requires_grad) for p in model.parameters()
    }
    return copy.deepcopy(model, empty | {id(model.tokenizer): model.tokenizer})


def make_strategy(model: Model, task: Task, world: World, *, fsdp: bool) -> SingleProcessStrategy:
    """The strategy for this number of processes."""
    if world.size == 1:
        return SingleProcessStrategy(model, task, world)
    return (FSDPStrategy if fsdp else DDPStrategy)(model, task, world)
