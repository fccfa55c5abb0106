"""The state of a fast writer: keys and values lie in rooms with space for what will come, so that a new token is written to its
place and what was there is not moved.

What callers see is `State`: what it hands out is never changed, since only space that nobody was given is written.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from weakref import ref

import torch
from torch import Tensor

from saccade.engine.rooms import Room, Shared, cleared, count, groups_of, space
from saccade.heap import give_back
from saccade.parts.state import Mark, Slot, State

FIRST = 64  # tokens that a room holds at least, if it is not said how many will come
AHEAD = 4  # times what is there: so far a room is made for what is said to come


@dataclass(frozen=True, eq=False)
class Moment(Mark):
    """A mark that can be asked whether anybody still holds it."""


class Memory(State):
    """A state with room to grow.

    >>> memory = Memory()
    >>> memory.append("key", torch.zeros(1, 2, 3, 4)).shape
    torch.Size([1, 2, 3, 4])
    >>> address = memory.get("key").data_ptr()
    >>> memory.append("key", torch.ones(1, 2, 1, 4)).data_ptr() == address
    True
    """

    def __init__(self, root: "Memory | None" = None, path: str = ""):
        super().__init__(root, path)
        if root is None:
            self._moments: list[ref[Moment]] = []
            self._spare: dict[str, Tensor] = {}  # rooms that were left, for the next who moves
            self._end = 0  # tokens that there will be in the end, if somebody has said so

    @staticmethod
    def of(state: State) -> "Memory":
        """The same memory, in rooms from now on."""
        memory = Memory()
        memory.__dict__ |= {name: value for name, value in vars(state._root).items() if name not in ("_above", "_path")}
        memory._slots = dict(memory._slots)
        return memory

    def at(self, name: str) -> "Memory":
        return Memory(self._root, f"{self._path}{name}.")

    def expect(self, tokens: int) -> None:
        """So many tokens will come at most: rooms are made as large as that, and no larger."""
        self._root._end = self.length + tokens

    def append(self, name: str, x: Tensor, axis: int = 2) -> Tensor:
        """Write x behind what was there, and return it all; the room moves only when it is full."""
        room = self.reserve(self._path + name, x, axis)
        room.whole.narrow(axis, room.length - x.size(axis), x.size(axis)).copy_(x)
        return room.tensor

    def reserve(self, path: str, x: Tensor, axis: int = 2) -> Room:
        """A room in which x counts as remembered, every row in one piece; the caller has to write it to the last places."""
        slot = self._root._slots.get(path)
        if isinstance(slot, Room) and slot.origin is not None:
            self._settle(path, slot)
        return self.extend(path, x, axis)

    def extend(self, path: str, x: Tensor, axis: int = 2) -> Room:
        """As `reserve`, for a caller who looks rows up where their `origin` says."""
        slots = self._root._slots
        slot = slots.get(path)
        start = 0 if slot is None else slot.length if isinstance(slot, Room) else slot.tensor.size(axis)
        end = start + x.size(axis)
        if isinstance(slot, Room) and slot.whole.size(axis) >= end and _writable(slot.whole):
            room = Room(slot.whole, end, axis, private=slot.private, origin=slot.origin)
        else:
            shape = list(x.shape)
            shape[axis] = self._size(end)
            room = Room(space(shape, x), end, axis)
            if slot is not None:
                room.whole.narrow(axis, 0, start).copy_(slot.tensor)
        slots[path] = room
        return room

    def part(self, rows: Tensor, of: tuple[int, int]) -> "Part":
        """Some rows of all that will be read, `of` so many rows and tokens, before the others; it remembers nothing yet."""
        return Part(self, rows, of)

    def _size(self, end: int) -> int:
        """Tokens that a room is made for which has to hold so many now."""
        known = self._root._end
        return min(known, max(FIRST, AHEAD * end)) if known > end else max(FIRST, 2 * end)

    def spread(self, times: int) -> None:
        """As ever; what does not grow is kept once for all rows of a group."""
        root = self._root
        if not root._slots:
            super().spread(times)  # which refuses
        give_back()  # what reading the source took, before there are several of everything else
        first = next(iter(root._slots.values()))
        device = (first.whole if isinstance(first, Room) else first.tensor).device
        shared = {name: Shared(slot.tensor, slot.axis, times) for name, slot in root._slots.items() if not slot.grows}
        root._slots = {name: slot for name, slot in root._slots.items() if name not in shared}
        self.reorder(torch.arange(count(first), device=device).repeat_interleave(times))
        root._slots |= shared

    def reorder(self, rows: Tensor) -> None:
        """As ever; where a room has enough rows nothing is moved but the table of where they lie, the same for all layers."""
        root = self._root
        rooms = {name: slot for name, slot in root._slots.items() if isinstance(slot, Room)}
        kept = {name: slot for name, slot in root._slots.items() if isinstance(slot, Shared)}
        groups = {times: groups_of(rows, times) for times in {slot.times for slot in kept.values()}}
        shared = {name: slot.chosen(rows, groups[slot.times]) for name, slot in kept.items()}
        root._slots = {name: slot for name, slot in root._slots.items() if name not in rooms.keys() | shared.keys()}
        super().reorder(rows)
        root._slots |= shared
        origins: dict[Hashable, Tensor | None] = {}
        for name in list(rooms):
            room = rooms.pop(name)  # so that what is left is let go before the next moves
            like = id(room.origin), room.whole.shape[1:], room.length, room.axis
            origins[like] = origin = origins[like] if like in origins else room.placed(rows)
            root._slots[name] = room.chosen(rows) if origin is None else room.swapped(origin)
            if origin is not None and len(rows) > len(room.whole):
                self._settle(name, room.swapped(origin))

    def _settle(self, path: str, room: Room) -> None:
        """Move the rows of a room to where they belong; the space that is left serves the next who moves."""
        root = self._root
        root._slots[path] = settled = room.settled(root._spare.pop(path, None))
        if room.private and room.whole.shape == settled.whole.shape:
            # new memory has to be cleared by the system first, which takes longer than copying
            root._spare[path] = room.whole

    def few(self, name: str) -> Tensor | None:
        """What is remembered, with one row for all rows beside each other that share it: beams share their source."""
        slot = self._root._slots.get(self._path + name)
        return slot.few if isinstance(slot, Shared) else None if slot is None else slot.tensor

    def group(self, name: str) -> int:
        """How many rows share a row of that."""
        slot = self._root._slots.get(self._path + name)
        return slot.times if isinstance(slot, Shared) else 1

    def mark(self) -> Mark:
        root = self._root
        for slot in root._slots.values():
            if isinstance(slot, Room):
                slot.shown()
        moment = Moment(dict(root._slots), root._keep, root._length, root._new, root._parts)
        root._moments = [*(old for old in root._moments if old() is not None), ref(moment)]
        return moment

    def rewind(self, mark: Mark) -> None:
        """Forget all that came after the mark; its space is written again, unless a later mark still holds it."""
        super().rewind(mark)
        held = [moment() for moment in self._root._moments]
        if any(moment is not None and moment.length > mark.length for moment in held):
            self._close()

    def join(self, other: State) -> None:
        self._close()
        super().join(other)

    def leave(self, rows: Tensor) -> None:
        self._close()
        super().leave(rows)

    def _close(self) -> None:
        """Give the space up: what grows next moves to a room of its own."""
        slots = self._root._slots
        self._root._slots = {name: Slot(slot.tensor, slot.axis, slot.grows) for name, slot in slots.items()}


class Part(State):
    """Some rows of a memory, read by themselves: what they append lies where it belongs among all rows, and padding is zero."""

    def __init__(self, whole: Memory, rows: Tensor, of: tuple[int, int], above: "Part | None" = None, path: str = ""):
        super().__init__(above, path)
        self._whole_memory, self._rows, self._of = whole, rows, of

    def at(self, name: str) -> "Part":
        return Part(self._whole_memory, self._rows, self._of, self._root, f"{self._path}{name}.")

    def append(self, name: str, x: Tensor, axis: int = 2) -> Tensor:
        memory, path = self._whole_memory._root, self._path + name
        rows, length = self._of
        room = memory._slots.get(path)
        if room is None:
            shape = [rows, *x.shape[1:]]
            shape[axis] = memory._size(length)
            room = memory._slots[path] = Room(cleared(shape, x), length, axis)
        assert isinstance(room, Room), "the first to read has made it"
        x = x.to(room.whole.dtype)
        room.whole.narrow(axis, 0, x.size(axis))[self._rows] = x
        return x


def _writable(whole: Tensor) -> bool:
    """What inference mode has made can only be written in inference mode."""
    return torch.is_inference_mode_enabled() or not whole.is_inference()
