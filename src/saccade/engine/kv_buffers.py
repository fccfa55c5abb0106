"""Buffers of the KV cache: preallocated keys and values with room to grow, and tensors that several rows share.

Both are `Slot`s like any other; the plain tensor of one is only computed when it is read.
"""

import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.engine.native import ops
from saccade.parts.state import Slot

MIN_MMAP_BYTES = (
    2**20
)  # bytes; larger buffers are mapped directly, so that freeing them returns the memory to the system
MMAP_FLAGS = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)  # private to this process


def mmap_empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialized tensor of the dtype of `like`; pages that are never written take no memory.

    Large buffers that come and go would fragment the heap, so they bypass the allocator.
    """
    if _is_below_mmap_size(shape, like):
        return like.new_empty(shape)
    size = math.prod(shape) * like.element_size()
    return torch.frombuffer(mmap.mmap(-1, size, **MMAP_FLAGS), dtype=like.dtype).view(*shape)


def mmap_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Like `mmap_empty`, but filled with zeros; mapped pages start as zeros, so padding costs no memory."""
    return like.new_zeros(shape) if _is_below_mmap_size(shape, like) else mmap_empty(shape, like)


def _is_below_mmap_size(shape: Sequence[int], like: Tensor) -> bool:
    """Whether a tensor of this shape comes from PyTorch's allocator rather than from `mmap`."""
    return not like.is_cpu or math.prod(shape) * like.element_size() < MIN_MMAP_BYTES


class KVBuffer(Slot):
    """Keys or values in a preallocated tensor, of which the first `length` positions are in use.

    Reordering rows, as beam search does at every step, need not copy them: `indirection` (B, K) then gives for each position of a
    row the row of the storage that holds it. New tokens are written to the row itself.
    """

    def __init__(
        self, storage: Tensor, length: int, axis: int, *, is_private: bool = True, indirection: Tensor | None = None
    ):
        self.__dict__.update(
            storage=storage, length=length, axis=axis, grows=True, is_private=is_private, indirection=indirection
        )

    storage: Tensor
    length: int
    is_private: bool  # whether no view of the storage was handed out, so that it can be reused
    indirection: Tensor | None

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        assert self.axis is not None, "a KV buffer grows along an axis"
        if self.indirection is not None:
            return self.make_contiguous().tensor
        self.expose()
        return self.storage.narrow(self.axis, 0, self.length)

    def expose(self) -> None:
        """Mark the storage as visible to callers, so that it is never reused."""
        self.__dict__["is_private"] = False

    def reorder_indirection(self, rows: Tensor) -> Tensor | None:
        """The indirection table (B, K) after selecting `rows`; None if the layout of this buffer requires a copy instead."""
        if self.axis != 2 or self.storage.dim() != 4:
            return None
        if self.indirection is None:
            table = rows.to(torch.int32)[:, None].repeat(1, self.storage.size(2))
        else:
            table = self.indirection.index_select(0, rows)
        table[:, self.length :] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)[:, None]
        return table

    def with_indirection(self, indirection: Tensor) -> "KVBuffer":
        """The same storage with another indirection table."""
        assert self.axis is not None, "a KV buffer grows along an axis"
        return KVBuffer(self.storage, self.length, self.axis, is_private=self.is_private, indirection=indirection)

    def make_contiguous(self, buffer: Tensor | None = None) -> "KVBuffer":
        """Copy every row into one piece, into `buffer` if it is given; unused positions are not copied."""
        assert self.indirection is not None, "without an indirection table the rows are contiguous"
        target = (
            mmap_empty((len(self.indirection), *self.storage.shape[1:]), self.storage) if buffer is None else buffer
        )
        return KVBuffer(ops.gather(self.storage, self.indirection, self.length, target), self.length, 2)

    def select_rows(self, rows: Tensor) -> "KVBuffer":
        """Copy some rows into a new buffer of the same capacity."""
        assert self.axis is not None, "a KV buffer grows along an axis"
        storage = mmap_empty((len(rows), *self.storage.shape[1:]), self.storage)
        used = self.storage.narrow(self.axis, 0, self.length)
        torch.index_select(used, 0, rows, out=storage.narrow(self.axis, 0, self.length))
        return KVBuffer(storage, self.length, self.axis)


class SharedKVBuffer(Slot):
    """A tensor that groups of rows share, such as the encoded source of several beams: stored once per group."""

    def __init__(self, per_source: Tensor, axis: int | None, rows_per_source: int):
        self.__dict__.update(
            per_source=per_source, axis=axis, grows=False, rows_per_source=rows_per_source, repeated_tensor=None
        )

    per_source: Tensor  # one row per group
    rows_per_source: int  # number of rows in a group
    repeated_tensor: Tensor | None

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        if self.repeated_tensor is None:
            self.__dict__["repeated_tensor"] = self.per_source.repeat_interleave(self.rows_per_source, 0)
        assert self.repeated_tensor is not None
        return self.repeated_tensor

    def select_rows(self, rows: Tensor, groups: Tensor | None) -> Slot:
        """Select rows; the tensor stays shared if they consist of whole `groups`."""
        if groups is None:
            return Slot(self.tensor.index_select(0, rows), self.axis)
        if len(groups) == len(self.per_source) and bool(
            (groups == torch.arange(len(groups), device=groups.device)).all()
        ):
            return self
        return SharedKVBuffer(self.per_source.index_select(0, groups), self.axis, self.rows_per_source)


def group_indices(rows: Tensor, rows_per_source: int) -> Tensor | None:
    """The indices of the groups that these rows consist of; None if a group is split."""
    if len(rows) % rows_per_source:
        return None
    groups = (rows // rows_per_source).view(-1, rows_per_source)
    return groups[:, 0] if bool((groups == groups[:, :1]).all()) else None


def count_rows(slot: Slot) -> int:
    """The number of rows of a slot, without computing its tensor."""
    if isinstance(slot, SharedKVBuffer):
        return len(slot.per_source) * slot.rows_per_source
    if isinstance(slot, KVBuffer):
        return len(slot.storage if slot.indirection is None else slot.indirection)
    return len(slot.tensor)
