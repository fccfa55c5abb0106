"""Several native operators on one new token a row, in one call: no Python runs between them and nothing is allocated.

chain = Chain(768)                                  # takes (B, 768); every operator returns the number of its result
x = chain.norm(0, weight, bias, 1e-5)
x = chain.attend(chain.linear(x, joint), 12, 12, 64, 0.125, room=0)
x = chain.linear(x, output, add=0)
chain(new, [Room(keys, values, lengths)])           # (B, 768) to (B, 768)
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from saccade.engine import fallback, native

LINEAR, ATTEND, NORM, RMS, TURN, GATE = range(6)
INPUT, OUTPUT, NOTHING = -1, -2, -3
INT, POINTER = ctypes.c_int64, ctypes.c_void_p
NUMBERS = ("kind", "x", "to", "add", "rows", "columns", "act", "heads", "groups", "room")


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, INT) for name in NUMBERS),
        *((name, POINTER) for name in ("first", "second", "third", "fourth")),
        ("number", ctypes.c_double),
    )


class _Room(ctypes.Structure):
    _fields_ = (
        ("keys", POINTER),
        ("values", POINTER),
        *((name, INT) for name in ("row", "head", "limit", "share", "keep_row", "origin_row")),
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
    layer: native.Packed | None = None
    tensors: tuple[Tensor, ...] = ()

    def bound(self, places: dict[int | None, int]) -> _Step:
        """The step with addresses for names."""
        there = replace(self, x=places[self.x], to=places[self.to], add=places[self.add])
        given = [t.data_ptr() for t in (self.tensors if self.layer is None else self.layer.parts)]
        return _Step(*(getattr(there, name) for name in NUMBERS), *given, *[None] * (4 - len(given)), self.number)


class Room:
    """The memory of one attention: keys and values (B, G, K, D), how much of each row counts, and what of it may be seen.

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
        front = keys if origin is None else keys[: len(origin)], values if origin is None else values[: len(origin)]
        native.check_memory(*front, lengths, keep)
        if origin is not None:
            _check_origin(origin, keys, share)
        self.keys, self.values, self.lengths, self.keep = keys, values, lengths, keep
        self.share, self.origin = share, origin
        self.shape = keys.size(1), keys.size(3)
        addresses = (keys.data_ptr(), values.data_ptr(), keys.stride(0), keys.stride(1), keys.size(2), share)
        strides = [0 if given is None else given.stride(0) for given in (keep, origin)]
        pointers = [None if given is None else given.data_ptr() for given in (lengths, keep, origin)]
        self.bound = _Room(*addresses, *strides, *pointers)


def _check_origin(origin: Tensor, keys: Tensor, share: int) -> None:
    rows, _, places = keys.shape[:3]
    fits = origin.dim() == 2 and origin.size(1) == places and len(origin) <= rows and origin.stride(1) == 1
    if not fits or origin.dtype is not torch.int32 or share > 1:
        raise ValueError(
            f"This memory has {rows} rows of {places} places; where they lie must be said in int32 (B, {places}) for at most "
            f"{rows} rows that share nothing; got {origin.dtype} {tuple(origin.shape)}, and {share} rows that share."
        )


class Chain:
    """A list of operators, written once and run for every new token; what it takes and gives is (B, width)."""

    def __init__(self, width: int) -> None:
        self.widths, self.steps = [width], list[Step]()
        self._bound: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"widths": self.widths, "steps": self.steps, "_bound": None}  # a copy has addresses of its own

    def _next(self, width: int) -> int:
        self._bound = None
        self.widths.append(width)
        return len(self.widths) - 1

    def linear(self, x: int, layer: native.Packed, act: str = "none", add: int | None = None) -> int:
        """act(x · weight + bias) + add."""
        if self.widths[x] != layer.columns or (add is not None and self.widths[add] != layer.rows):
            raise ValueError(f"Result {x} is {self.widths[x]} wide; this layer maps {layer.columns} to {layer.rows}.")
        to, code = self._next(layer.rows), native.ACTS[act]
        self.steps.append(Step(LINEAR, x, to, layer.rows, layer.columns, add, code, layer=layer))
        return to

    def norm(self, x: int, weight: Tensor, bias: Tensor | None, eps: float) -> int:
        """Layer norm."""
        return self._norm(NORM, x, (weight,) if bias is None else (weight, bias), eps)

    def rms(self, x: int, weight: Tensor, eps: float) -> int:
        """Root-mean-square norm."""
        return self._norm(RMS, x, (weight,), eps)

    def _norm(self, kind: int, x: int, tensors: tuple[Tensor, ...], eps: float) -> int:
        tensors = tuple(t.detach().to(native.FLOAT, copy=True).contiguous() for t in tensors)
        if any(t.shape != (self.widths[x],) for t in tensors):
            raise ValueError(f"Result {x} is {self.widths[x]} wide; this norm is {tuple(tensors[0].shape)}.")
        self.steps.append(Step(kind, x, to := self._next(self.widths[x]), self.widths[x], number=eps, tensors=tensors))
        return to

    def turn(self, x: int, heads: int, head_width: int, *, neighbours: bool = False) -> int:
        """The first `heads` heads turned by the angles of each row, in place: x itself must not be used again."""
        if x == 0 or self.widths[x] < heads * head_width:
            raise ValueError(f"Result {x}, {self.widths[x]} wide, cannot be turned in place as {heads} x {head_width}.")
        self.steps.append(Step(TURN, x, x, self.widths[x], head_width, act=int(neighbours), heads=heads))
        return x

    def gate(self, x: int, act: str) -> int:
        """act(first half) times the second half."""
        half = self.widths[x] // 2
        self.steps.append(Step(GATE, x, to := self._next(half), half, act=native.ACTS[act]))
        return to

    def attend(self, x: int, heads: int, groups: int, head_width: int, scale: float, *, room: int) -> int:
        """Queries look at a room; keys and values beside them in x, if there are any, are first written to it."""
        if self.widths[x] not in (heads * head_width, (heads + 2 * groups) * head_width):
            raise ValueError(
                f"Result {x} is {self.widths[x]} wide; {heads} + 2 x {groups} heads of {head_width} are not."
            )
        to, numbers = self._next(heads * head_width), {"heads": heads, "groups": groups, "room": room, "number": scale}
        self.steps.append(Step(ATTEND, x, to, self.widths[x], head_width, **numbers))
        return to

    def __call__(self, x: Tensor, rooms: Sequence[Room] = (), turns: Tensor | None = None) -> Tensor:
        """Run the steps on x (B, width); `turns` are the cosines beside the sines of each row's angles, (B, head width)."""
        x, turns = native.flat(x), None if turns is None else native.flat(turns)
        self._check(x, rooms, turns)
        library = native.library()
        if library is None:
            return self._slow(x, rooms, turns)
        steps, count, space = self._bound = self._bound or self._bind()
        b = x.size(0)
        scratch, out = torch.empty(space * b), torch.empty(b, self.widths[-1])
        places = (_Room * len(rooms))(*(room.bound for room in rooms))
        angles = None if turns is None else turns.data_ptr()
        ends = (x.data_ptr(), out.data_ptr(), b)
        bad = library.saccade_chain(steps, count, places, angles, scratch.data_ptr(), *ends)
        if bad >= 0:
            native.check_lengths(rooms[bad].lengths, rooms[bad].keys.size(2), True)
        return out

    def _check(self, x: Tensor, rooms: Sequence[Room], turns: Tensor | None) -> None:
        """What the walk itself cannot see: sizes that do not belong together."""
        b = x.size(0)
        if x.shape != (b, self.widths[0]) or not self.steps:
            raise ValueError(
                f"This chain has {len(self.steps)} steps and takes (B, {self.widths[0]}); got {tuple(x.shape)}."
            )
        for step in self.steps:
            if step.kind == ATTEND:
                room = rooms[step.room]
                if room.shape != (step.groups, step.columns) or len(room.lengths) * room.share != b:
                    raise ValueError(
                        f"Room {step.room} has {len(room.lengths)} x {room.share} rows of {room.shape[0]} heads of "
                        f"{room.shape[1]}; the chain needs {b} rows of {step.groups} heads of {step.columns}."
                    )
            if step.kind == TURN and (turns is None or turns.shape != (b, step.columns)):
                raise ValueError(f"This chain turns heads: give turns of shape ({b}, {step.columns}).")

    def _bind(self) -> tuple[Any, int, int]:
        """The steps with addresses, how many they are, and the floats a row needs; space is used again when it is free."""
        last = {used: n for n, step in enumerate(self.steps) for used in (step.x, step.add)}
        places: dict[int | None, int] = {None: NOTHING, 0: INPUT, len(self.widths) - 1: OUTPUT}
        free: dict[int, list[int]] = {}
        space, bound = 0, []
        for n, step in enumerate(self.steps):
            width = self.widths[step.to]
            if step.to not in places and free.get(width):
                places[step.to] = free[width].pop()
            elif step.to not in places:
                places[step.to], space = space, space + width
            bound.append(step.bound(places))
            for used in {step.x, step.add} - {None, step.to}:
                if last[used] == n and places[used] >= 0:
                    free.setdefault(self.widths[used], []).append(places[used])
        return (_Step * len(bound))(*bound), len(bound), space

    def _slow(self, x: Tensor, rooms: Sequence[Room], turns: Tensor | None) -> Tensor:
        """The same, one operator after the other."""
        made: dict[int | None, Tensor] = {0: x}
        acts = list(native.ACTS)
        for step in self.steps:
            x, act = made[step.x], acts[step.act]
            if step.layer is not None:
                made[step.to] = step.layer(x, act, made.get(step.add))
            elif step.kind == ATTEND:
                made[step.to] = _look(x, step, rooms[step.room])
            elif step.kind == TURN:
                assert turns is not None, "checked before"
                made[step.to] = _turned(x, step, turns)
            elif step.kind == GATE:
                gate, up = x.chunk(2, dim=-1)
                made[step.to] = fallback.ACTS[act](gate) * up
            elif step.kind == RMS:
                made[step.to] = native.rms(x, step.tensors[0], step.number)
            else:
                made[step.to] = native.norm(x, step.tensors[0], (*step.tensors, None)[1], step.number)
        return made[len(self.widths) - 1]


def _look(x: Tensor, step: Step, room: Room) -> Tensor:
    h, g = step.heads, step.groups
    parts = x.view(len(x), -1, step.columns)  # (B, H or H + 2G, D)
    fresh = None if parts.size(1) == h else (parts[:, h : h + g], parts[:, h + g :])
    keys, values, lengths, keep = room.keys, room.values, room.lengths, room.keep
    if room.origin is not None:
        for memory, new in zip((keys, values), fresh or (), strict=False):
            fallback.write(memory, new, lengths)
        keys, values = (native.gather(memory, room.origin, memory.size(2)) for memory in (keys, values))
        fresh = None
    if room.share > 1:
        keys, values, lengths = (t.repeat_interleave(room.share, 0) for t in (keys, values, lengths))
        keep = None if keep is None else keep.repeat_interleave(room.share, 0)
    return native.attend(parts[:, :h], keys, values, lengths, step.number, keep, fresh).flatten(1)


def _turned(x: Tensor, step: Step, turns: Tensor) -> Tensor:
    size = step.heads * step.columns
    heads = x[:, :size].view(len(x), step.heads, step.columns)
    cosine, sine = turns[:, None].chunk(2, dim=-1)
    a, b = (heads[..., 0::2], heads[..., 1::2]) if step.act else heads.chunk(2, dim=-1)
    pair = a * cosine - b * sine, b * cosine + a * sine
    turned = torch.stack(pair, -1) if step.act else torch.cat(pair, -1)
    return torch.cat([turned.reshape(len(x), size), x[:, size:]], dim=1)
