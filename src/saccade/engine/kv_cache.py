"""The state of a fast writer: keys and values lie in rooms with space for what will come, so that a new token is written to its
place and what was there is not moved.

What callers see is `State`: what it hands out is never changed, since only space that nobody was given is written.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from weakref import ref

import torch
from torch import Tensor

from saccade.engine.kv_buffers import KVBuffer, SharedKVBuffer, count_rows, group_indices, mmap_empty, mmap_zeros
from saccade.parts.state import Slot, Snapshot, State
from saccade.system import trim_heap

MIN_BUFFER_TOKENS = 64  # tokens that a room holds at least, if it is not said how many will come
MAX_GROWTH_FACTOR = 4  # times what is there: so far a room is made for what is said to come


@dataclass(frozen=True, eq=False)
class TrackedSnapshot(Snapshot):
    """A mark that can be asked whether anybody still holds it."""


class KVCache(State):
    """A state with room to grow.

    >>> memory = KVCache()
    >>> memory.append("key", torch.zeros(1, 2, 3, 4)).shape
    torch.Size([1, 2, 3, 4])
    >>> address = memory.get("key").data_ptr()
    >>> memory.append("key", torch.ones(1, 2, 1, 4)).data_ptr() == address
    True
    """

    def __init__(self, root: "KVCache | None" = None, path: str = ""):
        super().__init__(root, path)
        if root is None:
            self._snapshots: list[ref[TrackedSnapshot]] = []
            self._spare_buffers: dict[str, Tensor] = {}  # rooms that were left, for the next who moves
            self._max_length = 0  # tokens that there will be in the end, if somebody has said so

    @staticmethod
    def from_state(state: State) -> "KVCache":
        """The same memory, in rooms from now on."""
        memory = KVCache()
        memory.__dict__ |= {
            name: value for name, value in vars(state._root).items() if name not in ("_root_state", "_path")
        }
        memory._slots = dict(memory._slots)
        return memory

    def at(self, name: str) -> "KVCache":
        return KVCache(self._root, f"{self._path}{name}.")

    def expect_tokens(self, count: int) -> None:
        """So many tokens will come at most: rooms are made as large as that, and no larger."""
        self._root._max_length = self.length + count

    def append(self, name: str, x: Tensor, axis: int = 2) -> Tensor:
        """Write x behind what was there, and return it all; the room moves only when it is full."""
        room = self.reserve(self._path + name, x, axis)
        room.storage.narrow(axis, room.length - x.size(axis), x.size(axis)).copy_(x)
        return room.tensor

    def reserve(self, path: str, x: Tensor, axis: int = 2) -> KVBuffer:
        """A room in which x counts as remembered, every row in one piece; the caller has to write it to the last places."""
        slot = self._root._slots.get(path)
        if isinstance(slot, KVBuffer) and slot.indirection is not None:
            self._make_contiguous(path, slot)
        return self.reserve_unordered(path, x, axis)

    def reserve_unordered(self, path: str, x: Tensor, axis: int = 2) -> KVBuffer:
        """As `reserve`, for a caller who looks rows up where their `indirection` says."""
        slots = self._root._slots
        slot = slots.get(path)
        start = 0 if slot is None else slot.length if isinstance(slot, KVBuffer) else slot.tensor.size(axis)
        end = start + x.size(axis)
        if isinstance(slot, KVBuffer) and slot.storage.size(axis) >= end and _is_writable(slot.storage):
            room = KVBuffer(slot.storage, end, axis, is_private=slot.is_private, indirection=slot.indirection)
        else:
            shape = list(x.shape)
            shape[axis] = self._buffer_size(end)
            room = KVBuffer(mmap_empty(shape, x), end, axis)
            if slot is not None:
                room.storage.narrow(axis, 0, start).copy_(slot.tensor)
        slots[path] = room
        return room

    def view(self, rows: Tensor, batch_shape: tuple[int, int]) -> "KVCacheView":
        """Some rows of all that will be read, `of` so many rows and tokens, before the others; it remembers nothing yet."""
        return KVCacheView(self, rows, batch_shape)

    def _buffer_size(self, length: int) -> int:
        """Tokens that a room is made for which has to hold so many now."""
        known = self._root._max_length
        return (
            min(known, max(MIN_BUFFER_TOKENS, MAX_GROWTH_FACTOR * length))
            if known > length
            else max(MIN_BUFFER_TOKENS, 2 * length)
        )

    def expand_rows(self, times: int) -> None:
        """As ever; what does not grow is kept once for all rows of a group."""
        root = self._root
        if not root._slots:
            super().expand_rows(times)  # which refuses
        trim_heap()  # what reading the source took, before there are several of everything else
        first = next(iter(root._slots.values()))
        device = (first.storage if isinstance(first, KVBuffer) else first.tensor).device
        shared = {
            name: SharedKVBuffer(slot.tensor, slot.axis, times) for name, slot in root._slots.items() if not slot.grows
        }
        root._slots = {name: slot for name, slot in root._slots.items() if name not in shared}
        self.reorder(torch.arange(count_rows(first), device=device).repeat_interleave(times))
        root._slots |= shared

    def reorder(self, rows: Tensor) -> None:
        """As ever; where a room has enough rows nothing is moved but the table of where they lie, the same for all layers."""
        root = self._root
        rooms = {name: slot for name, slot in root._slots.items() if isinstance(slot, KVBuffer)}
        kept = {name: slot for name, slot in root._slots.items() if isinstance(slot, SharedKVBuffer)}
        groups = {times: group_indices(rows, times) for times in {slot.rows_per_source for slot in kept.values()}}
        shared = {name: slot.select_rows(rows, groups[slot.rows_per_source]) for name, slot in kept.items()}
        root._slots = {name: slot for name, slot in root._slots.items() if name not in rooms.keys() | shared.keys()}
        super().reorder(rows)
        root._slots |= shared
        origins: dict[Hashable, Tensor | None] = {}
        for name in list(rooms):
            room = rooms.pop(name)  # so that what is left is let go before the next moves
            like = id(room.indirection), room.storage.shape[1:], room.length, room.axis
            origins[like] = origin = origins[like] if like in origins else room.reorder_indirection(rows)
            root._slots[name] = room.select_rows(rows) if origin is None else room.with_indirection(origin)
            if origin is not None and len(rows) > len(room.storage):
                self._make_contiguous(name, room.with_indirection(origin))

    def _make_contiguous(self, path: str, buffer: KVBuffer) -> None:
        """Move the rows of a room to where they belong; the space that is left serves the next who moves."""
        root = self._root
        root._slots[path] = settled = buffer.make_contiguous(root._spare_buffers.pop(path, None))
        if buffer.is_private and buffer.storage.shape == settled.storage.shape:
            # new memory has to be cleared by the system first, which takes longer than copying
            root._spare_buffers[path] = buffer.storage

    def per_source(self, name: str) -> Tensor | None:
        """What is remembered, with one row for all rows beside each other that share it: beams share their source."""
        slot = self._root._slots.get(self._path + name)
        return slot.per_source if isinstance(slot, SharedKVBuffer) else None if slot is None else slot.tensor

    def rows_per_source(self, name: str) -> int:
        """How many rows share a row of that."""
        slot = self._root._slots.get(self._path + name)
        return slot.rows_per_source if isinstance(slot, SharedKVBuffer) else 1

    def snapshot(self) -> Snapshot:
        root = self._root
        for slot in root._slots.values():
            if isinstance(slot, KVBuffer):
                slot.expose()
        moment = TrackedSnapshot(dict(root._slots), root._keep, root._length, root._new_tokens, root._document_ids)
        root._snapshots = [*(old for old in root._snapshots if old() is not None), ref(moment)]
        return moment

    def restore(self, snapshot: Snapshot) -> None:
        """Forget all that came after the mark; its space is written again, unless a later mark still holds it."""
        super().restore(snapshot)
        held = [moment() for moment in self._root._snapshots]
        if any(moment is not None and moment.length > snapshot.length for moment in held):
            self._freeze_buffers()

    def append_rows(self, other: State) -> None:
        self._freeze_buffers()
        super().append_rows(other)

    def drop_rows(self, rows: Tensor) -> None:
        self._freeze_buffers()
        super().drop_rows(rows)

    def _freeze_buffers(self) -> None:
        """Give the space up: what grows next moves to a room of its own."""
        slots = self._root._slots
        self._root._slots = {name: Slot(slot.tensor, slot.axis, slot.grows) for name, slot in slots.items()}


class KVCacheView(State):
    """Some rows of a memory, read by themselves: what they append lies where it belongs among all rows, and padding is zero."""

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
        memory, path = self._cache._root, self._path + name
        rows, length = self._batch_shape
        room = memory._slots.get(path)
        if room is None:
            shape = [rows, *x.shape[1:]]
            shape[axis] = memory._buffer_size(length)
            room = memory._slots[path] = KVBuffer(mmap_zeros(shape, x), length, axis)
        assert isinstance(room, KVBuffer), "the first to read has made it"
        x = x.to(room.storage.dtype)
        room.storage.narrow(axis, 0, x.size(axis))[self._rows] = x
        return x


def _is_writable(storage: Tensor) -> bool:
    """What inference mode has made can only be written in inference mode."""
    return torch.is_inference_mode_enabled() or not storage.is_inference()
