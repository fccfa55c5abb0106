"""How one model is spread over processes: it is whole in one, a copy in each (DDP), or a part of it in each (FSDP2).

The three say the same things: the loss of a batch, the clipped gradient, tensors put in and taken out. Gradients come out as the
mean over processes of what each one's loss gives, so a loss is divided by count / size.
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

MAX_GROUP_PARAMETERS = 2**21  # parameters of layers that are put together at one time
MAX_UNSHARDED_BYTES = 2**30  # bytes of a model that stays put together from its forward to its backward pass


class LossModule(nn.Module):
    """A task's loss as the forward pass of a module, since what spreads modules listens to their forward passes."""

    def __init__(self, task: Task, model: Model):
        super().__init__()
        self.task, self.model = task, model

    def forward(self, batch: Batch) -> Tensor:
        return self.task.loss(self.model, batch)


class SingleProcessStrategy:
    """The model in one process."""

    def __init__(self, model: Model, task: Task, world: World):
        self.model, self.world = model, world
        self.loss_module: Any = LossModule(task, model)

    def loss(self, batch: Batch) -> Tensor:
        return self.loss_module(batch)

    @contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        """Around the forward and backward pass of one part of a step; processes exchange gradients in the last."""
        yield

    def clip_gradients(self, parameters: Sequence[nn.Parameter], max_norm: float) -> float:
        """Shorten the gradient to a limit; how long it was."""
        return float(clip_grad_norm_(parameters, max_norm or math.inf))

    def shard_tensor(self, value: Tensor, like: Tensor) -> Tensor:
        """Of a whole tensor what this process keeps of it."""
        return value.to(self.world.device)

    def to_local(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors as plain ones, or of each the part that is kept here."""
        return list(tensors)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Whole tensors into the parameters and buffers of their names."""
        own = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        with torch.no_grad():
            for name, value in tensors.items():
                own[name].copy_(self.shard_tensor(value, own[name]))

    @contextmanager
    def full_model(self, replacements: Mapping[str, Tensor]) -> Iterator[Model]:
        """The whole model, with some parameters replaced for a while; only the first process may use it."""
        own = dict(self.model.named_parameters())
        kept = {name: own[name].detach().clone() for name in replacements}
        self.load_tensors(replacements)
        try:
            yield self.model
        finally:
            self.load_tensors(kept)

    def save(
        self, checkpoints: CheckpointStore, step: int, tensors: TensorGroups, facts: Mapping[str, Any], *, best: bool
    ) -> Path:
        """A checkpoint, by the first process."""
        return Path(self.world.run_on_first(lambda: str(checkpoints.save(step, tensors, facts, best=best))))


class DDPStrategy(SingleProcessStrategy):
    """A copy of the model in each process; gradients are exchanged while the backward pass goes on."""

    def __init__(self, model: Model, task: Task, world: World):
        super().__init__(model, task, world)
        # unused parameters are looked for not only as there may be some: torch would otherwise regroup the gradients after
        # the first step, and a run that goes on would sum over three or more processes in another order than before
        self.loss_module.idle = nn.Parameter(
            torch.zeros(1, device=world.device)
        )  # never used: else torch advises against looking
        self.loss_module = DistributedDataParallel(self.loss_module, find_unused_parameters=True)

    @contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        if is_last:
            yield
        else:
            with self.loss_module.no_sync():
                yield


def group_layers(model: nn.Module) -> list[list[nn.Module]]:
    """Neighbouring layers that are put together at one time: a message costs the same for few weights as for many."""
    groups: list[list[nn.Module]] = []
    room = 0
    for layer in [part for part in model.modules() if isinstance(part, Layer)]:
        size = sum(p.numel() for p in layer.parameters())
        if not groups or size > room:
            groups.append([])
            room = MAX_GROUP_PARAMETERS
        groups[-1].append(layer)
        room -= size
    return groups


class FSDPStrategy(SingleProcessStrategy):
    """A part of every parameter, its gradient and its moments in each process.

    A layer is put together while it is at work; the layers of a model that is not large stay so until its gradient is known,
    since to put them together a second time takes a third of all that is sent.
    """

    def __init__(self, model: Model, task: Task, world: World):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        for name, parameter in model.named_parameters():
            if parameter.dim() == 0:
                raise UsageError(f"{name} is a single number, which cannot be shared out; leave --train.fsdp out.")
        super().__init__(model, task, world)
        self.empty_copy = _copy_without_weights(model) if world.is_first else model
        mesh = init_device_mesh(world.device.type, (world.size,))
        large = sum(p.numel() * p.element_size() for p in model.parameters()) > MAX_UNSHARDED_BYTES
        for layers in group_layers(model):
            fully_shard(layers, mesh=mesh, reshard_after_forward=large)
        fully_shard(self.loss_module, mesh=mesh)

    @contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        self.loss_module.set_requires_gradient_sync(is_last)
        yield

    def clip_gradients(self, parameters: Sequence[nn.Parameter], max_norm: float) -> float:
        """By the norm of the whole gradient: the squares of the parts are summed over all processes."""
        grads = self.to_local([p.grad for p in parameters if p.grad is not None])
        squares = torch.stack([grad.double().square().sum() for grad in grads]).sum().item()
        norm = math.sqrt(sum(told[0] for told in self.world.all_gather(squares)))
        if max_norm:
            torch._foreach_mul_(grads, min(1.0, max_norm / (norm + 1e-6)))  # torch's own rule for whole gradients
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
        """The first puts the parts together in a model of its own; all processes have to send theirs."""
        own: dict[str, Any] = dict(self.model.named_parameters())
        into = dict(self.empty_copy.named_parameters())
        for name, parameter in own.items():
            whole = _full_tensor(replacements.get(name, parameter.detach()))
            if self.world.is_first:
                into[name].data = whole
        if self.world.is_first:
            for name, buffer in self.model.named_buffers():
                self.empty_copy.get_buffer(name).copy_(buffer)
        try:
            yield self.empty_copy
        finally:
            if self.world.is_first:
                for parameter in into.values():
                    parameter.data = parameter.data.new_empty(0)

    def save(
        self, checkpoints: CheckpointStore, step: int, tensors: TensorGroups, facts: Mapping[str, Any], *, best: bool
    ) -> Path:
        """By all: each writes the parts that it keeps, and the first makes a checkpoint of them."""
        from saccade.training.distributed.sharded_checkpoint import ShardWriter

        writing = ShardWriter(self.world)
        if not self.world.is_first:
            writing.write_groups(checkpoints.temporary_path(step), tensors)
            return Path(self.world.run_on_first(lambda: None))
        try:
            path = checkpoints.save(step, tensors, facts, best=best, write_group=writing.write_group)
        except BaseException as error:
            self.world.run_on_first(partial(_raise, error))  # so that the others do not wait
            raise
        return Path(self.world.run_on_first(lambda: str(path)))


def _raise(error: BaseException) -> None:
    raise error


def _full_tensor(x: Any) -> Tensor:
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _copy_without_weights(model: Model) -> Model:
    """A copy of a model without its weights, into which whole ones can be put."""
    without: dict[int, Any] = {
        id(p): nn.Parameter(p.detach().new_empty(0), requires_grad=p.requires_grad) for p in model.parameters()
    }
    return copy.deepcopy(model, without | {id(model.tokenizer): model.tokenizer})


def make_strategy(model: Model, task: Task, world: World, *, fsdp: bool) -> SingleProcessStrategy:
    """The way that suits the number of processes."""
    if world.size == 1:
        return SingleProcessStrategy(model, task, world)
    return (FSDPStrategy if fsdp else DDPStrategy)(model, task, world)
