"""KV cache for fast decoding: keys and values are stored in preallocated buffers, so that appending a token copies nothing.

To callers it is a `State`: tensors that it has returned never change, because only unused positions are written.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from weakref import ref

import torch
from torch import Tensor

from saccade.engine.kv_buffers import KVBuffer, SharedKVBuffer, count_rows, group_indices, mmap_empty, mmap_zeros
from saccade.parts.state import Slot, Snapshot, State
from saccade.system import trim_heap

MIN_BUFFER_TOKENS = 64  # smallest capacity of a buffer in tokens, unless `expect_tokens` announced fewer
MAX_GROWTH_FACTOR = (
    4  # a buffer is allocated for the expected tokens, but for at most this multiple of the current length
)


@dataclass(frozen=True, eq=False)
class TrackedSnapshot(Snapshot):
    """A snapshot that can be weakly referenced, so that the cache knows whether it is still in use."""


class KVCache(State):
    """A decoding state whose keys and values grow in place.

    >>> cache = KVCache()
    >>> cache.append("key", torch.zeros(1, 2, 3, 4)).shape
    torch.Size([1, 2, 3, 4])
    >>> address = cache.get("key").data_ptr()
    >>> cache.append("key", torch.ones(1, 2, 1, 4)).data_ptr() == address
    True
    """

    def __init__(self, root: "KVCache | None" = None, path: str = ""):
        super().__init__(root, path)
        if root is None:
            self._snapshots: list[ref[TrackedSnapshot]] = []
            self._spare_buffers: dict[str, Tensor] = {}  # storage of former buffers, to be reused
            self._max_length = 0  # expected final length in tokens; 0 if unknown

    @staticmethod
    def from_state(state: State) -> "KVCache":
        """Convert a plain state, such as the one that the model's `start` returns."""
        cache = KVCache()
        cache.__dict__ |= {
            name: value for name, value in vars(state._root).items() if name not in ("_root_state", "_path")
        }
        cache._slots = dict(cache._slots)
        return cache

    def at(self, name: str) -> "KVCache":
        return KVCache(self._root, f"{self._path}{name}.")

    def expect_tokens(self, count: int) -> None:
        """Announce that at most `count` tokens will follow: buffers are allocated for them, and no larger."""
        self._root._max_length = self.length + count

    def append(self, name: str, x: Tensor, axis: int = 2) -> Tensor:
        """Append x and return the whole tensor; the buffer is reallocated only when it is full."""
        buffer = self.reserve(self._path + name, x, axis)
        buffer.storage.narrow(axis, buffer.length - x.size(axis), x.size(axis)).copy_(x)
        return buffer.tensor

    def reserve(self, path: str, x: Tensor, axis: int = 2) -> KVBuffer:
        """Extend a buffer by the length of x, with every row contiguous; the caller has to write x to the last positions."""
        slot = self._root._slots.get(path)
        if isinstance(slot, KVBuffer) and slot.indirection is not None:
            self._make_contiguous(path, slot)
        return self.reserve_unordered(path, x, axis)

    def reserve_unordered(self, path: str, x: Tensor, axis: int = 2) -> KVBuffer:
        """Like `reserve`, for a caller that reads rows through their `indirection` table."""
        slots = self._root._slots
        slot = slots.get(path)
        start = 0 if slot is None else slot.length if isinstance(slot, KVBuffer) else slot.tensor.size(axis)
        end = start + x.size(axis)
        if isinstance(slot, KVBuffer) and slot.storage.size(axis) >= end and _is_writable(slot.storage):
            buffer = KVBuffer(slot.storage, end, axis, is_private=slot.is_private, indirection=slot.indirection)
        else:
            shape = list(x.shape)
            shape[axis] = self._buffer_size(end)
            buffer = KVBuffer(mmap_empty(shape, x), end, axis)
            if slot is not None:
                buffer.storage.narrow(axis, 0, start).copy_(slot.tensor)
        slots[path] = buffer
        return buffer

    def view(self, rows: Tensor, batch_shape: tuple[int, int]) -> "KVCacheView":
        """A view of some rows of a batch of shape `batch_shape`, for prefill in chunks; the cache must be empty."""
        return KVCacheView(self, rows, batch_shape)

    def _buffer_size(self, length: int) -> int:
        """The capacity in tokens of a new buffer that holds `length` tokens now."""
        expected = self._root._max_length
        return (
            min(expected, max(MIN_BUFFER_TOKENS, MAX_GROWTH_FACTOR * length))
            if expected > length
            else max(MIN_BUFFER_TOKENS, 2 * length)
        )

    def expand_rows(self, times: int) -> None:
        """Repeat every row, as for beam search; tensors that do not grow are stored once per group of rows."""
        root = self._root
        if not root._slots:
            super().expand_rows(times)  # raises
        trim_heap()  # frees what prefill needed, before the cache grows
        first = next(iter(root._slots.values()))
        device = (first.storage if isinstance(first, KVBuffer) else first.tensor).device
        shared = {
            name: SharedKVBuffer(slot.tensor, slot.axis, times) for name, slot in root._slots.items() if not slot.grows
        }
        root._slots = {name: slot for name, slot in root._slots.items() if name not in shared}
        self.reorder(torch.arange(count_rows(first), device=device).repeat_interleave(times))
        root._slots |= shared

    def reorder(self, rows: Tensor) -> None:
        """Select and reorder rows; where possible only the indirection table changes, which all layers share."""
        root = self._root
        buffers = {name: slot for name, slot in root._slots.items() if isinstance(slot, KVBuffer)}
        sources = {name: slot for name, slot in root._slots.items() if isinstance(slot, SharedKVBuffer)}
        groups = {times: group_indices(rows, times) for times in {slot.rows_per_source for slot in sources.values()}}
        shared = {name: slot.select_rows(rows, groups[slot.rows_per_source]) for name, slot in sources.items()}
        root._slots = {name: slot for name, slot in root._slots.items() if name not in buffers.keys() | shared.keys()}
        super().reorder(rows)
        root._slots |= shared
        tables: dict[Hashable, Tensor | None] = {}
        for name in list(buffers):
            buffer = buffers.pop(
                name
            )  # drops the last reference, so that its memory is free before the next one is copied
            key = id(buffer.indirection), buffer.storage.shape[1:], buffer.length, buffer.axis
            tables[key] = table = tables[key] if key in tables else buffer.reorder_indirection(rows)
            root._slots[name] = buffer.select_rows(rows) if table is None else buffer.with_indirection(table)
            if table is not None and len(rows) > len(buffer.storage):
                self._make_contiguous(name, buffer.with_indirection(table))

    def _make_contiguous(self, path: str, buffer: KVBuffer) -> None:
        """Copy the rows of a buffer into one piece each; its former storage is kept for the next such copy."""
        root = self._root
        root._slots[path] = contiguous = buffer.make_contiguous(root._spare_buffers.pop(path, None))
        if buffer.is_private and buffer.storage.shape == contiguous.storage.shape:
            # the system has to clear new memory first, which takes longer than the copy
            root._spare_buffers[path] = buffer.storage

    def per_source(self, name: str) -> Tensor | None:
        """A tensor with one row per source: the beams of a source share its row."""
        slot = self._root._slots.get(self._path + name)
        return slot.per_source if isinstance(slot, SharedKVBuffer) else None if slot is None else slot.tensor

    def rows_per_source(self, name: str) -> int:
        """The number of rows that share one row of `per_source`."""
        slot = self._root._slots.get(self._path + name)
        return slot.rows_per_source if isinstance(slot, SharedKVBuffer) else 1

    def snapshot(self) -> Snapshot:
        root = self._root
        for slot in root._slots.values():
            if isinstance(slot, KVBuffer):
                slot.expose()
        new = TrackedSnapshot(dict(root._slots), root._keep, root._length, root._new_tokens, root._document_ids)
        root._snapshots = [*(old for old in root._snapshots if old() is not None), ref(new)]
        return new

    def restore(self, snapshot: Snapshot) -> None:
        """Drop all tokens after the snapshot; their space is reused unless a later snapshot still refers to it."""
        super().restore(snapshot)
        live = [old() for old in self._root._snapshots]
        if any(old is not None and old.length > snapshot.length for old in live):
            self._freeze_buffers()

    def append_rows(self, other: State) -> None:
        self._freeze_buffers()
        super().append_rows(other)

    def drop_rows(self, rows: Tensor) -> None:
        self._freeze_buffers()
        super().drop_rows(rows)

    def _freeze_buffers(self) -> None:
        """Give up the space of all buffers: a tensor that grows next is copied to a new buffer."""
        slots = self._root._slots
        self._root._slots = {name: Slot(slot.tensor, slot.axis, slot.grows) for name, slot in slots.items()}


class KVCacheView(State):
    """A view of some rows of an empty cache, for prefill in chunks: keys and values are written to the rows of the full batch."""

    def __init__(
        self,
        cache: KVCache,
        rows: Tensor,
        batch_shape: tuple[int, int],
        root: "KVCacheView | None" = None,
        path: str = "",
    ):
        super().__init__(root, path)
        self._cache, self._rows, self._batch_shape = cache, rows, batch_shape

    def at(self, name: str) -> "KVCacheView":
        return KVCacheView(self._cache, self._rows, self._batch_shape, self._root, f"{self._path}{name}.")

    def append(self, name: str, x: Tensor, axis: int = 2) -> Tensor:
        cache, path = self._cache._root, self._path + name
        rows, length = self._batch_shape
        buffer = cache._slots.get(path)
        if buffer is None:
            shape = [rows, *x.shape[1:]]
            shape[axis] = cache._buffer_size(length)
            buffer = cache._slots[path] = KVBuffer(mmap_zeros(shape, x), length, axis)
        assert isinstance(buffer, KVBuffer), "the view that reads first makes the buffer"
        x = x.to(buffer.storage.dtype)
        buffer.storage.narrow(axis, 0, x.size(axis))[self._rows] = x
        return x


def _is_writable(storage: Tensor) -> bool:
    """Whether a tensor may be written: inference tensors only in inference mode."""
    return torch.is_inference_mode_enabled() or not storage.is_inference()
