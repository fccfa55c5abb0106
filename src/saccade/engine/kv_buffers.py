"""What a fast state remembers in another form than a plain one: rooms with space behind, and what several rows have alike.

Both are slots as any other to whoever asks for their tensor, which is only made then.
"""

import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.engine.native import ops
from saccade.parts.state import Slot

MIN_MMAP_BYTES = 2**20  # bytes; space of this size is asked of the system itself, and goes back to it
MMAP_FLAGS = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)  # no process shares it


def mmap_empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Room for numbers of that kind, which may be anything; what is not written takes no memory.

    Among what the allocator keeps, large rooms that come and go would leave holes, and other tensors would lie behind them.
    """
    if _is_below_mmap_size(shape, like):
        return like.new_empty(shape)
    size = math.prod(shape) * like.element_size()
    return torch.frombuffer(mmap.mmap(-1, size, **MMAP_FLAGS), dtype=like.dtype).view(*shape)


def mmap_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """As `mmap_empty`, and all of it zero, as the system hands out large ones: where padding is, nothing is ever written."""
    return like.new_zeros(shape) if _is_below_mmap_size(shape, like) else mmap_empty(shape, like)


def _is_below_mmap_size(shape: Sequence[int], like: Tensor) -> bool:
    """Whether it comes from the allocator, with whatever stood there before."""
    return not like.is_cpu or math.prod(shape) * like.element_size() < MIN_MMAP_BYTES


class KVBuffer(Slot):
    """A remembered tensor that is the front of a larger one, cut out only when somebody asks for it.

    Rows that have changed places need not have been moved: `indirection` (B, K) then says in which row of the whole each
    place of a row lies. What comes next is written to the row's own places.
    """

    def __init__(
        self, storage: Tensor, length: int, axis: int, *, is_private: bool = True, indirection: Tensor | None = None
    ):
        self.__dict__.update(
            storage=storage, length=length, axis=axis, grows=True, is_private=is_private, indirection=indirection
        )

    storage: Tensor
    length: int
    is_private: bool  # whether nobody was given a view of it, so that it may be written anew once it is left
    indirection: Tensor | None

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        assert self.axis is not None, "a room grows along an axis"
        if self.indirection is not None:
            return self.make_contiguous().tensor
        self.expose()
        return self.storage.narrow(self.axis, 0, self.length)

    def expose(self) -> None:
        """Somebody may look at it from now on, at any time."""
        self.__dict__["is_private"] = False

    def reorder_indirection(self, rows: Tensor) -> Tensor | None:
        """The origin of these rows, (B, K): what comes next will lie in the row itself. None: this room must be moved."""
        if self.axis != 2 or self.storage.dim() != 4:
            return None
        if self.indirection is None:
            origin = rows.to(torch.int32)[:, None].repeat(1, self.storage.size(2))
        else:
            origin = self.indirection.index_select(0, rows)
        origin[:, self.length :] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)[:, None]
        return origin

    def with_indirection(self, indirection: Tensor) -> "KVBuffer":
        """The same space, with rows that lie where `indirection` says."""
        assert self.axis is not None, "a room grows along an axis"
        return KVBuffer(self.storage, self.length, self.axis, is_private=self.is_private, indirection=indirection)

    def make_contiguous(self, buffer: Tensor | None = None) -> "KVBuffer":
        """A room of the same size, maybe `buffer`, with every row in one piece; the space behind is not copied."""
        assert self.indirection is not None, "a room whose rows have not changed places is settled"
        place = mmap_empty((len(self.indirection), *self.storage.shape[1:]), self.storage) if buffer is None else buffer
        return KVBuffer(ops.gather(self.storage, self.indirection, self.length, place), self.length, 2)

    def select_rows(self, rows: Tensor) -> "KVBuffer":
        """Some of its rows in a room of the same size, along whatever axis it grows."""
        assert self.axis is not None, "a room grows along an axis"
        whole = mmap_empty((len(rows), *self.storage.shape[1:]), self.storage)
        front = self.storage.narrow(self.axis, 0, self.length)
        torch.index_select(front, 0, rows, out=whole.narrow(self.axis, 0, self.length))
        return KVBuffer(whole, self.length, self.axis)


class SharedKVBuffer(Slot):
    """What the rows of a group have alike, such as the source of several beams: kept once, repeated only for who asks."""

    def __init__(self, per_source: Tensor, axis: int | None, rows_per_source: int):
        self.__dict__.update(
            per_source=per_source, axis=axis, grows=False, rows_per_source=rows_per_source, repeated_tensor=None
        )

    per_source: Tensor  # one row for each group
    rows_per_source: int  # rows of a group
    repeated_tensor: Tensor | None

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        if self.repeated_tensor is None:
            self.__dict__["repeated_tensor"] = self.per_source.repeat_interleave(self.rows_per_source, 0)
        assert self.repeated_tensor is not None
        return self.repeated_tensor

    def select_rows(self, rows: Tensor, groups: Tensor | None) -> Slot:
        """These rows of it: still kept once where they are whole `groups`, wherever they go."""
        if groups is None:
            return Slot(self.tensor.index_select(0, rows), self.axis)
        if len(groups) == len(self.per_source) and bool(
            (groups == torch.arange(len(groups), device=groups.device)).all()
        ):
            return self
        return SharedKVBuffer(self.per_source.index_select(0, groups), self.axis, self.rows_per_source)


def group_indices(rows: Tensor, rows_per_source: int) -> Tensor | None:
    """Which groups of so many rows these are; None where one of them does not stay together."""
    if len(rows) % rows_per_source:
        return None
    groups = (rows // rows_per_source).view(-1, rows_per_source)
    return groups[:, 0] if bool((groups == groups[:, :1]).all()) else None


def count_rows(slot: Slot) -> int:
    """How many rows it has, without making its tensor."""
    if isinstance(slot, SharedKVBuffer):
        return len(slot.per_source) * slot.rows_per_source
    if isinstance(slot, KVBuffer):
        return len(slot.storage if slot.indirection is None else slot.indirection)
    return len(slot.tensor)
