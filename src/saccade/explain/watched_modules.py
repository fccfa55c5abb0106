"""The watchable modules of a model, with side, layer and kind as the family declares them, and the axes of their weights."""

from dataclasses import dataclass

from torch import nn

from saccade.attention.watch import watchable_modules
from saccade.explain.axis import Axis, make_numbered_axis
from saccade.models.model import Model

GLOBAL_BRANCH = ".far."  # global attention of Longformer, from the global tokens alone


@dataclass(frozen=True)
class MapAxes:
    """The axes that maps of a model can have: its input, the input of its decoder, and its output."""

    input_axis: Axis
    decoder_input_axis: Axis | None = None
    output_axis: Axis | None = None
    global_positions: tuple[int, ...] = (0,)  # input tokens with global attention


@dataclass(frozen=True)
class WatchedModule:
    """A watchable module with its kind, side, layer and axes; the key axis of gates is empty until their weights are known."""

    name: str
    kind: str
    side: str
    layer: int
    query: Axis
    key: Axis
    gates: tuple[str, ...] = ()
    can_select_queries: bool = False  # True if the module is called once for all rows, so that rows can be selected


def list_watched_modules(model: Model, map_axes: MapAxes) -> list[WatchedModule]:
    """All modules that can be watched; layers are numbered from 0 on each side."""
    watched: list[WatchedModule] = []
    modules = watchable_modules(model)
    for name, module in modules.items():
        if any(name.startswith(f"{other}.") for other in modules):
            continue  # watched with its parent
        kind, (side, number, inside) = _map_kind(module, name, map_axes), locate_module(model, name)
        previous = [other for other in watched if (other.kind, other.side) == (kind, side)]
        layer = len(previous) if number is None else number
        can_select = inside.startswith(("attention.", "across.")) and GLOBAL_BRANCH not in name
        query, key = _choose_axes(kind, side, name, map_axes)
        watched.append(WatchedModule(name, kind, side, layer, query, key, _gate_names(module), can_select))
    return watched


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
    """The side of a module, the number of its layer, and its path within the layer, as the family declares them."""
    path, capabilities = name.removeprefix("body."), model.capabilities
    number, inside = capabilities.layer_of(path) or (None, "")
    return capabilities.side_of(path), number, inside


def _choose_axes(kind: str, side: str, name: str, map_axes: MapAxes) -> tuple[Axis, Axis]:
    if kind == "channel":
        return make_numbered_axis("image", 1), make_numbered_axis("channels", 0)
    if map_axes.input_axis.kind == "points":
        return map_axes.input_axis, make_numbered_axis("points", 0)
    if kind in ("cross", "image"):
        assert map_axes.output_axis is not None, "a model with cross-attention has an output"
        return map_axes.output_axis, map_axes.input_axis
    axis = map_axes.input_axis
    if side == "decoder" or (not side and map_axes.decoder_input_axis is not None):
        assert map_axes.decoder_input_axis is not None, "a decoder has an input"
        axis = map_axes.decoder_input_axis
    if kind == "gate":
        return axis, make_numbered_axis("units", 0)
    return axis.select(map_axes.global_positions) if GLOBAL_BRANCH in name else axis, axis


def _gate_names(module: nn.Module) -> tuple[str, ...]:
    return tuple(getattr(module, "gates", ()))
