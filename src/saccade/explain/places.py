"""Where each watchable module of a model stands, as its family declares it, and what its rows and columns are."""

from dataclasses import dataclass

from torch import nn

from saccade.attention.watch import watchable
from saccade.explain.axis import Axis, numbered
from saccade.models.model import Model

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
    stacked: bool = False  # the attention of a layer, which is asked once for all rows, so that rows can be chosen


def places(model: Model, sides: Sides) -> list[Place]:
    """Every module that can be watched; a layer counts from 0 on its side."""
    found: list[Place] = []
    known = watchable(model)
    for name, module in known.items():
        if any(name.startswith(f"{other}.") for other in known):
            continue  # seen with what holds it
        kind, (side, number, inside) = _kind(module, name, sides), locate(model, name)
        before = [place for place in found if (place.kind, place.side) == (kind, side)]
        layer = len(before) if number is None else number
        stacked = inside.startswith(("attention.", "across.")) and FAR not in name
        found.append(Place(name, kind, side, layer, *_axes(kind, side, name, sides), _gates(module), stacked))
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


def locate(model: Model, name: str) -> tuple[str, int | None, str]:
    """The side that a module is on, the number of its layer there, and its path within the layer, as the family declares them."""
    path, capabilities = name.removeprefix("body."), model.capabilities
    number, inside = capabilities.layer_of(path) or (None, "")
    return capabilities.side_of(path), number, inside


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
