"""What a chain is made of: its steps and the rooms they look at, each also in the form that chain.cpp reads."""

import ctypes
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.engine.operands import check_memory, check_origin
from saccade.engine.packed import Packed

LINEAR, ATTEND, NORM, RMS, TURN, GATE = range(6)
INPUT, OUTPUT, NOTHING = -1, -2, -3
INT, POINTER = ctypes.c_int64, ctypes.c_void_p
NUMBERS = ("kind", "x", "to", "add", "rows", "columns", "act", "heads", "groups", "room")


class BoundStep(ctypes.Structure):
    """A step with addresses."""

    _fields_ = (
        *((name, INT) for name in NUMBERS),
        *((name, POINTER) for name in ("first", "second", "third", "fourth")),
        ("number", ctypes.c_double),
    )


class BoundRoom(ctypes.Structure):
    """A room with addresses."""

    _fields_ = (
        ("keys", POINTER),
        ("values", POINTER),
        *((name, INT) for name in ("half", "row", "head", "step", "rows", "limit", "share", "keep_row", "origin_row")),
        *((name, POINTER) for name in ("lengths", "keep", "origin")),
    )


@dataclass(frozen=True)
class Step:
    """One operator of a chain; results are numbered in the order of their making, and 0 is the input."""

    kind: int
    x: int
    to: int
    rows: int
    columns: int = 0
    add: int | None = None
    act: int = 0
    heads: int = 0
    groups: int = 0
    room: int = 0
    number: float = 0.0
    layer: Packed | None = None
    tensors: tuple[Tensor, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether it looks at a room and has keys and values of its own, which are first written to it."""
        return self.kind == ATTEND and self.rows > self.heads * self.columns

    def bound(self, places: dict[int | None, int]) -> BoundStep:
        """The step with addresses for names."""
        there = replace(self, x=places[self.x], to=places[self.to], add=places[self.add])
        given = [t.data_ptr() for t in (self.tensors if self.layer is None else self.layer.parts)]
        return BoundStep(*(getattr(there, name) for name in NUMBERS), *given, *[None] * (4 - len(given)), self.number)


class Room:
    """The memory of one attention: keys and values (B, G, K, D), how much of each row counts, and what of it may be seen.

    They are float32, or float16, which takes half the space and half the time to be read; sums are float32.
    `lengths` (B,) may be filled with other numbers between calls. `share` rows in turn, such as beams, look at one row. Where
    rows have changed places and the memory has not, `origin` (B, K) says in which of its rows each place of a row lies.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        lengths: Tensor,
        keep: Tensor | None = None,
        share: int = 1,
        origin: Tensor | None = None,
    ):
        if origin is not None:
            check_origin(origin, keys, share)
        check_memory(keys, values, lengths, keep, rows=len(keys if origin is None else origin))
        if share < 1:
            raise ValueError(f"At least one row looks at each row of a memory; got share = {share}.")
        self.keys, self.values, self.lengths, self.keep = keys, values, lengths, keep
        self.share, self.origin = share, origin
        self.shape = keys.size(1), keys.size(3)
        half = keys.dtype is torch.float16
        addresses = (keys.data_ptr(), values.data_ptr(), half, *keys.stride()[:3], len(keys), keys.size(2), share)
        strides = [0 if given is None else given.stride(0) for given in (keep, origin)]
        pointers = [None if given is None else given.data_ptr() for given in (lengths, keep, origin)]
        self.bound = BoundRoom(*addresses, *strides, *pointers)
