"""What a fast state remembers in another form than a plain one: rooms with space behind, and what several rows have alike.

Both are slots as any other to whoever asks for their tensor, which is only made then.
"""

import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.engine import native
from saccade.parts.state import Slot

LARGE = 2**20  # bytes; space of this size is asked of the system itself, and goes back to it
OWN = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # no process shares it


def space(shape: Sequence[int], like: Tensor) -> Tensor:
    """Room for numbers of that kind, which may be anything; what is not written takes no memory.

    Among what the allocator keeps, large rooms that come and go would leave holes, and other tensors would lie behind them.
    """
    if _small(shape, like):
        return like.new_empty(shape)
    size = math.prod(shape) * like.element_size()
    return torch.frombuffer(mmap.mmap(-1, size, **OWN), dtype=like.dtype).view(*shape)


def cleared(shape: Sequence[int], like: Tensor) -> Tensor:
    """As `space`, and all of it zero, as the system hands out large ones: where padding is, nothing is ever written."""
    return like.new_zeros(shape) if _small(shape, like) else space(shape, like)


def _small(shape: Sequence[int], like: Tensor) -> bool:
    """Whether it comes from the allocator, with whatever stood there before."""
    return not like.is_cpu or math.prod(shape) * like.element_size() < LARGE


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
        place = space((len(self.origin), *self.whole.shape[1:]), self.whole) if spare is None else spare
        return Room(native.gather(self.whole, self.origin, self.length, place), self.length, 2)

    def chosen(self, rows: Tensor) -> "Room":
        """Some of its rows in a room of the same size, along whatever axis it grows."""
        assert self.axis is not None, "a room grows along an axis"
        whole = space((len(rows), *self.whole.shape[1:]), self.whole)
        front = self.whole.narrow(self.axis, 0, self.length)
        torch.index_select(front, 0, rows, out=whole.narrow(self.axis, 0, self.length))
        return Room(whole, self.length, self.axis)


class Shared(Slot):
    """What the rows of a group have alike, such as the source of several beams: kept once, repeated only for who asks."""

    def __init__(self, few: Tensor, axis: int | None, times: int):
        self.__dict__.update(few=few, axis=axis, grows=False, times=times, repeated=None)

    few: Tensor  # one row for each group
    times: int  # rows of a group
    repeated: Tensor | None

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        if self.repeated is None:
            self.__dict__["repeated"] = self.few.repeat_interleave(self.times, 0)
        assert self.repeated is not None
        return self.repeated

    def chosen(self, rows: Tensor, groups: Tensor | None) -> Slot:
        """These rows of it: still kept once where they are whole `groups`, wherever they go."""
        if groups is None:
            return Slot(self.tensor.index_select(0, rows), self.axis)
        if len(groups) == len(self.few) and bool((groups == torch.arange(len(groups), device=groups.device)).all()):
            return self
        return Shared(self.few.index_select(0, groups), self.axis, self.times)


def groups_of(rows: Tensor, times: int) -> Tensor | None:
    """Which groups of so many rows these are; None where one of them does not stay together."""
    if len(rows) % times:
        return None
    groups = (rows // times).view(-1, times)
    return groups[:, 0] if bool((groups == groups[:, :1]).all()) else None


def count(slot: Slot) -> int:
    """How many rows it has, without making its tensor."""
    if isinstance(slot, Shared):
        return len(slot.few) * slot.times
    if isinstance(slot, Room):
        return len(slot.whole if slot.origin is None else slot.origin)
    return len(slot.tensor)
