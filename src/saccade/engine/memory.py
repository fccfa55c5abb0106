"""The state of a fast writer: keys and values lie in rooms with space for what will come, so that a new token is written to its
place and what was there is not moved.

What callers see is `State`: what it hands out is never changed, since only space that nobody was given is written.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from weakref import ref

import torch
from torch import Tensor

from saccade.engine import native
from saccade.parts.state import Mark, Slot, State

FIRST = 64  # tokens that a room holds at least


class Room(Slot):
    """A remembered tensor that is the front of a larger one, cut out only when somebody asks for it.

    Rows that have changed places need not have been moved: `origin` (B, K) then says in which row of the whole each place of a
    row lies. What comes next is written to the row's own places.
    """

    def __init__(self, whole: Tensor, length: int, axis: int, *, private: bool = True, origin: Tensor | None = None):
        self.__dict__.update(whole=whole, length=length, axis=axis, grows=True, private=private, origin=origin)

    whole: Tensor
    length: int
    private: bool  # whether nobody was given a view of it, so that it may be written anew once it is left
    origin: Tensor | None

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        assert self.axis is not None, "a room grows along an axis"
        if self.origin is not None:
            return self.settled().tensor
        self.shown()
        return self.whole.narrow(self.axis, 0, self.length)

    def shown(self) -> None:
        """Somebody may look at it from now on, at any time."""
        self.__dict__["private"] = False

    def placed(self, rows: Tensor) -> Tensor | None:
        """The origin of these rows, (B, K): what comes next will lie in the row itself. None: this room must be moved."""
        if self.axis != 2 or self.whole.dim() != 4:
            return None
        if self.origin is None:
            origin = rows.to(torch.int32)[:, None].repeat(1, self.whole.size(2))
        else:
            origin = self.origin.index_select(0, rows)
        origin[:, self.length :] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)[:, None]
        return origin

    def swapped(self, origin: Tensor) -> "Room":
        """The same space, with rows that lie where `origin` says."""
        assert self.axis is not None, "a room grows along an axis"
        return Room(self.whole, self.length, self.axis, private=self.private, origin=origin)

    def settled(self, spare: Tensor | None = None) -> "Room":
        """A room of the same size, maybe a spare one, with every row in one piece; the space behind is not copied."""
        assert self.origin is not None, "a room whose rows have not changed places is settled"
        return Room(native.gather(self.whole, self.origin, self.length, spare), self.length, 2)

    def chosen(self, rows: Tensor) -> "Room":
        """Some of its rows in a room of the same size, along whatever axis it grows."""
        assert self.axis is not None, "a room grows along an axis"
        whole = self.whole.new_empty(len(rows), *self.whole.shape[1:])
        front = self.whole.narrow(self.axis, 0, self.length)
        torch.index_select(front, 0, rows, out=whole.narrow(self.axis, 0, self.length))
        return Room(whole, self.length, self.axis)


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

    @staticmethod
    def of(state: State) -> "Memory":
        """The same memory, in rooms from now on."""
        memory = Memory()
        memory.__dict__ |= {name: value for name, value in vars(state._root).items() if name not in ("_above", "_path")}
        memory._slots = dict(memory._slots)
        return memory

    def at(self, name: str) -> "Memory":
        return Memory(self._root, f"{self._path}{name}.")

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
            shape[axis] = max(FIRST, 2 * end)
            room = Room(x.new_empty(shape), end, axis)
            if slot is not None:
                room.whole.narrow(axis, 0, start).copy_(slot.tensor)
        slots[path] = room
        return room

    def reorder(self, rows: Tensor) -> None:
        """As ever; where a room has enough rows nothing is moved but the table of where they lie, the same for all layers."""
        root = self._root
        rooms = {name: slot for name, slot in root._slots.items() if isinstance(slot, Room)}
        root._slots = {name: slot for name, slot in root._slots.items() if name not in rooms}
        super().reorder(rows)
        origins: dict[Hashable, Tensor | None] = {}
        for name, room in rooms.items():
            like = id(room.origin), room.whole.shape[1:], room.length, room.axis
            origins[like] = origin = origins[like] if like in origins else room.placed(rows)
            root._slots[name] = room.chosen(rows) if origin is None else room.swapped(origin)
            if origin is not None and len(rows) > len(room.whole):
                self._settle(name, room.swapped(origin))

    def _settle(self, path: str, room: Room) -> None:
        """Move the rows of a room to where they belong; the space that is left serves the next who moves."""
        root = self._root
        root._slots[path] = room.settled(root._spare.pop(path, None))
        if room.private:  # new memory has to be cleared by the system first, which takes longer than copying
            root._spare[path] = room.whole

    def group(self, path: str) -> int:
        """How many rows beside each other share what is remembered there: the beams of a text share its source."""
        root = self._root
        slot = root._slots.get(path)
        shared = slot is not None and not slot.grows and slot.tensor is root._alike.get(path)
        return root._times if shared else 1

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


def _writable(whole: Tensor) -> bool:
    """What inference mode has made can only be written in inference mode."""
    return torch.is_inference_mode_enabled() or not whole.is_inference()
