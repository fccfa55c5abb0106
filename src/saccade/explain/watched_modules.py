"""Where each watchable module of a model stands, as its family declares it, and what its rows and columns are."""

from dataclasses import dataclass

from torch import nn

from saccade.attention.watch import watchable_modules
from saccade.explain.axis import Axis, make_numbered_axis
from saccade.models.model import Model

GLOBAL_BRANCH = ".far."  # Longformer's second look, of the marked tokens alone


@dataclass(frozen=True)
class MapAxes:
    """What there is to look from and at: what is read, what the writing side is given, and what it writes."""

    input_axis: Axis
    decoder_input_axis: Axis | None = None
    output_axis: Axis | None = None
    global_positions: tuple[int, ...] = (0,)  # tokens of the input that look at all


@dataclass(frozen=True)
class WatchedModule:
    """One module: its kind, side and layer, and the axes of its weights; the key axis of gates is known when they are seen."""

    name: str
    kind: str
    side: str
    layer: int
    query: Axis
    key: Axis
    gates: tuple[str, ...] = ()
    can_select_queries: bool = (
        False  # the attention of a layer, which is asked once for all rows, so that rows can be chosen
    )


def list_watched_modules(model: Model, map_axes: MapAxes) -> list[WatchedModule]:
    """Every module that can be watched; a layer counts from 0 on its side."""
    found: list[WatchedModule] = []
    known = watchable_modules(model)
    for name, module in known.items():
        if any(name.startswith(f"{other}.") for other in known):
            continue  # seen with what holds it
        kind, (side, number, inside) = _map_kind(module, name, map_axes), locate_module(model, name)
        before = [place for place in found if (place.kind, place.side) == (kind, side)]
        layer = len(before) if number is None else number
        stacked = inside.startswith(("attention.", "across.")) and GLOBAL_BRANCH not in name
        found.append(
            WatchedModule(
                name, kind, side, layer, *_choose_axes(kind, side, name, map_axes), _gate_names(module), stacked
            )
        )
    return found


def _map_kind(module: nn.Module, name: str, map_axes: MapAxes) -> str:
    axes = tuple(module.axes)  # type: ignore[arg-type]
    if "gate" in axes:
        return "gate"
    if "channel" in axes:
        return "channel"
    if map_axes.input_axis.kind == "points":
        return "cross"
    if ".across." in name:
        return "image" if map_axes.input_axis.kind == "cells" else "cross"
    return "self"


def locate_module(model: Model, name: str) -> tuple[str, int | None, str]:
    """The side that a module is on, the number of its layer there, and its path within the layer, as the family declares them."""
    path, capabilities = name.removeprefix("body."), model.capabilities
    number, inside = capabilities.layer_of(path) or (None, "")
    return capabilities.side_of(path), number, inside


def _choose_axes(kind: str, side: str, name: str, map_axes: MapAxes) -> tuple[Axis, Axis]:
    if kind == "channel":
        return make_numbered_axis("image", 1), make_numbered_axis("channels", 0)
    if map_axes.input_axis.kind == "points":
        return map_axes.input_axis, make_numbered_axis("points", 0)
    if kind in ("cross", "image"):
        assert map_axes.output_axis is not None, "who looks across writes"
        return map_axes.output_axis, map_axes.input_axis
    looking = map_axes.input_axis
    if side == "decoder" or (not side and map_axes.decoder_input_axis is not None):
        assert map_axes.decoder_input_axis is not None, "who writes is given something"
        looking = map_axes.decoder_input_axis
    if kind == "gate":
        return looking, make_numbered_axis("units", 0)
    return looking.select(map_axes.global_positions) if GLOBAL_BRANCH in name else looking, looking


def _gate_names(module: nn.Module) -> tuple[str, ...]:
    return tuple(getattr(module, "gates", ()))
