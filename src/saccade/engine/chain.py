"""Several native operators on one new token a row, in one call: no Python runs between them and nothing is allocated.

chain = Chain(768)                                  # takes (B, 768); every operator returns the number of its result
x = chain.norm(0, weight, bias, 1e-5)
x = chain.attend(chain.linear(x, joint), 12, 12, 64, 0.125, room=0)
x = chain.linear(x, output, add=0)
chain(new, [Room(keys, values, lengths)])           # (B, 768) to (B, 768)
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from saccade.engine.loading import library
from saccade.engine.operands import FLOAT, check_lengths, check_places, check_writable, flat, solid
from saccade.engine.packed import ACTS, Packed
from saccade.engine.steps import (
    ATTEND,
    GATE,
    INPUT,
    LINEAR,
    NORM,
    NOTHING,
    OUTPUT,
    RMS,
    TURN,
    BoundRoom,
    BoundStep,
    Room,
    Step,
)
from saccade.engine.walking import walk

__all__ = ["Chain", "Room"]


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

    def _width(self, x: int) -> int:
        """How wide a result is; none is counted from the end, as the compiled walk has none."""
        if not 0 <= x < len(self.widths):
            raise ValueError(f"This chain has made results 0 to {len(self.widths) - 1}; got {x}.")
        return self.widths[x]

    def linear(self, x: int, layer: Packed, act: str = "none", add: int | None = None) -> int:
        """act(x · weight + bias) + add."""
        if self._width(x) != layer.columns or (add is not None and self._width(add) != layer.rows):
            raise ValueError(f"Result {x} is {self.widths[x]} wide; this layer maps {layer.columns} to {layer.rows}.")
        code = _code(act)
        to = self._next(layer.rows)
        self.steps.append(Step(LINEAR, x, to, layer.rows, layer.columns, add, code, layer=layer))
        return to

    def norm(self, x: int, weight: Tensor, bias: Tensor | None, eps: float) -> int:
        """Layer norm."""
        return self._norm(NORM, x, (weight,) if bias is None else (weight, bias), eps)

    def rms(self, x: int, weight: Tensor, eps: float) -> int:
        """Root-mean-square norm."""
        return self._norm(RMS, x, (weight,), eps)

    def _norm(self, kind: int, x: int, tensors: tuple[Tensor, ...], eps: float) -> int:
        tensors = tuple(solid(t.detach().to("cpu", FLOAT, copy=True)) for t in tensors)
        if any(t.shape != (self._width(x),) for t in tensors):
            raise ValueError(f"Result {x} is {self.widths[x]} wide; this norm is {tuple(tensors[0].shape)}.")
        self.steps.append(Step(kind, x, to := self._next(self.widths[x]), self.widths[x], number=eps, tensors=tensors))
        return to

    def turn(self, x: int, heads: int, head_width: int, *, neighbours: bool = False) -> int:
        """The first `heads` heads turned by the angles of each row, in place: x itself must not be used again."""
        if x == 0 or min(heads, head_width) < 1 or head_width % 2 or self._width(x) < heads * head_width:
            raise ValueError(f"Result {x}, {self.widths[x]} wide, cannot be turned in place as {heads} x {head_width}.")
        self.steps.append(Step(TURN, x, x, self.widths[x], head_width, act=int(neighbours), heads=heads))
        return x

    def gate(self, x: int, act: str) -> int:
        """act(first half) times the second half."""
        half, odd = divmod(self._width(x), 2)
        if odd:
            raise ValueError(f"Result {x} is {self.widths[x]} wide; a gate and what it multiplies are equally wide.")
        code = _code(act)
        self.steps.append(Step(GATE, x, to := self._next(half), half, act=code))
        return to

    def attend(self, x: int, heads: int, groups: int, head_width: int, scale: float, *, room: int) -> int:
        """Queries look at a room; keys and values beside them in x, if there are any, are first written to it."""
        if self._width(x) not in (heads * head_width, (heads + 2 * groups) * head_width):
            raise ValueError(
                f"Result {x} is {self.widths[x]} wide; {heads} + 2 x {groups} heads of {head_width} are not."
            )
        if min(heads, groups, head_width) < 1 or heads % groups or room < 0:
            raise ValueError(
                f"{heads} heads of {head_width} cannot look at {groups} heads of room {room}: heads must be a multiple of those "
                "they look at, and rooms are counted from 0."
            )
        to, numbers = self._next(heads * head_width), {"heads": heads, "groups": groups, "room": room, "number": scale}
        self.steps.append(Step(ATTEND, x, to, self.widths[x], head_width, **numbers))
        return to

    def __call__(self, x: Tensor, rooms: Sequence[Room] = (), turns: Tensor | None = None) -> Tensor:
        """Run the steps on x (B, width); `turns` are the cosines beside the sines of each row's angles, (B, head width)."""
        x, turns = flat(x), None if turns is None else flat(turns)
        self._check(x, rooms, turns)
        compiled = library()
        if compiled is None:
            for step in self.steps:
                if step.kind == ATTEND:
                    self._check_room(step.room, rooms[step.room])
            return walk(self.steps, x, rooms, turns)
        steps, count, space = self._bound = self._bound or self._bind()
        b = x.size(0)
        scratch, out = torch.empty(space * b), torch.empty(b, self.widths[-1])
        places = (BoundRoom * len(rooms))(*(room.bound for room in rooms))
        angles = None if turns is None else turns.data_ptr()
        ends = (x.data_ptr(), out.data_ptr(), b)
        bad = compiled.saccade_chain(steps, count, places, angles, scratch.data_ptr(), *ends)
        if bad >= 0:
            self._check_room(bad, rooms[bad])
        return out

    def _check_room(self, number: int, room: Room) -> None:
        """Lengths and origins that lie in the memory; the compiled walk finds by itself that one does not, this says which."""
        writes = any(step.kind == ATTEND and step.room == number and step.writes for step in self.steps)
        check_lengths(room.lengths, room.keys.size(2), int(writes))
        if room.origin is not None:
            check_places(room.origin, room.lengths, len(room.keys), writes=writes)

    def _check(self, x: Tensor, rooms: Sequence[Room], turns: Tensor | None) -> None:
        """What the walk itself cannot see: sizes that do not belong together."""
        if x.dim() != 2 or x.size(1) != self.widths[0] or not self.steps:
            raise ValueError(
                f"This chain has {len(self.steps)} steps and takes (B, {self.widths[0]}); got {tuple(x.shape)}."
            )
        b = x.size(0)
        for step in self.steps:
            if step.kind == ATTEND:
                if step.room >= len(rooms):
                    raise ValueError(f"This chain looks at room {step.room}; got {len(rooms)} rooms.")
                room = rooms[step.room]
                if step.writes:
                    check_writable(room.keys, room.values)
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
        taken: dict[int, int] = {}  # where something begins that is still needed, and where it ends
        space, bound = 0, []
        for n, step in enumerate(self.steps):
            if step.to not in places:
                place = places[step.to] = _gap(taken, self.widths[step.to])
                taken[place] = place + self.widths[step.to]
                space = max(space, taken[place])
            bound.append(step.bound(places))
            for used in {step.x, step.add} - {None, step.to}:
                if last[used] == n:
                    taken.pop(places[used], None)
        return (BoundStep * len(bound))(*bound), len(bound), space


def _gap(taken: dict[int, int], width: int) -> int:
    """The first place where so many numbers have room."""
    place = 0
    for start in sorted(taken):
        if start - place >= width:
            break
        place = taken[start]
    return place


def _code(act: str) -> int:
    if act not in ACTS:
        raise ValueError(f"The native activations are {', '.join(ACTS)}; got {act!r}.")
    return ACTS[act]
