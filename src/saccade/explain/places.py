"""Where each watchable module of a model stands, and what its rows and columns are: told from its name, not from shapes."""

import re
from dataclasses import dataclass

from torch import nn

from saccade.attention.watch import watchable
from saccade.explain.axis import Axis, numbered
from saccade.models.model import Model

LAYER = re.compile(r"layers\.(\d+)")
STACKED = re.compile(r"layers\.\d+\.(attention|across)\b")  # asked once for all rows, so that rows can be chosen
FAR = ".far."  # Longformer's second look, of the marked tokens alone


@dataclass(frozen=True)
class Sides:
    """What there is to look from and at: what is read, what the writing side is given, and what it writes."""

    read: Axis
    given: Axis | None = None
    written: Axis | None = None
    marked: tuple[int, ...] = (0,)  # tokens of the input that look at all


@dataclass(frozen=True)
class Place:
    """One module: its kind, side and layer, and the axes of its weights; the key axis of gates is known when they are seen."""

    name: str
    kind: str
    side: str
    layer: int
    query: Axis
    key: Axis
    gates: tuple[str, ...] = ()

    @property
    def stacked(self) -> bool:
        return bool(STACKED.search(self.name)) and FAR not in self.name


def places(model: Model, sides: Sides) -> list[Place]:
    """Every module that can be watched; a layer counts from 0 on its side."""
    found: list[Place] = []
    known = watchable(model)
    for name, module in known.items():
        if any(name.startswith(f"{other}.") for other in known):
            continue  # seen with what holds it
        kind, side = _kind(module, name, sides), side_of(name)
        numbers = LAYER.findall(name)
        before = [place for place in found if (place.kind, place.side) == (kind, side)]
        layer = int(numbers[-1]) if numbers else len(before)
        found.append(Place(name, kind, side, layer, *_axes(kind, side, name, sides), _gates(module)))
    return found


def _kind(module: nn.Module, name: str, sides: Sides) -> str:
    axes = tuple(module.axes)  # type: ignore[arg-type]
    if "gate" in axes:
        return "gate"
    if "channel" in axes:
        return "channel"
    if sides.read.of == "points":
        return "across"
    if ".across." in name:
        return "picture" if sides.read.of == "cells" else "across"
    return "self"


def side_of(name: str) -> str:
    """The stack that a module is in: encoder, decoder, the eye of a captioner, or nothing where there is one."""
    if ".encoder." in name or ".decoder." in name:
        return "encoder" if ".encoder." in name else "decoder"
    return "eye" if ".eye." in name else ""


def _axes(kind: str, side: str, name: str, sides: Sides) -> tuple[Axis, Axis]:
    if kind == "channel":
        return numbered("picture", 1), numbered("channels", 0)
    if sides.read.of == "points":
        return sides.read, numbered("points", 0)
    if kind in ("across", "picture"):
        assert sides.written is not None, "who looks across writes"
        return sides.written, sides.read
    looking = sides.read
    if side == "decoder" or (not side and sides.given is not None):
        assert sides.given is not None, "who writes is given something"
        looking = sides.given
    if kind == "gate":
        return looking, numbered("units", 0)
    return looking.pick(sides.marked) if FAR in name else looking, looking


def _gates(module: nn.Module) -> tuple[str, ...]:
    return tuple(getattr(module, "gates", ()))
