"""What a model is built to see before it reads a word: the barcode of its positions, and who may look at whom."""

from collections.abc import Sequence
from typing import TypeVar

import torch

from saccade.errors import ModelError
from saccade.models.model import Model
from saccade.parts.position import Position
from saccade.parts.stack import Stack
from saccade.render.plot import Heatmap

DEFAULT_POSITIONS_SHOWN = 48  # positions that are drawn

T = TypeVar("T")


def build_architecture_maps(model: Model, position_count: int = DEFAULT_POSITIONS_SHOWN) -> list[Heatmap]:
    """Two maps for each stack of layers: what its scheme makes of each position, and which keys a query may look at."""
    found = [(name, stack) for name, stack in model.body.named_modules() if isinstance(stack, Stack)]
    if not found:
        raise ModelError(f"{model.family.name} has no stack of layers; its order is that of its steps.")
    panels = []
    for name, stack in found:
        where = f"{name}: " if len(found) > 1 else ""
        for scheme, layers in _group_layers([stack.position.for_layer(number) for number in range(len(stack.layers))]):
            if type(scheme) is Position:
                continue
            code = scheme.to_matrix(min(position_count, scheme.max_positions or position_count)).float().cpu()
            said = f"{where}{type(scheme).__name__.lower()} positions{layers}"
            most = float(
                code.abs().quantile(0.99)
            )  # a few numbers of a learned table may be far larger than all others
            panels.append(Heatmap(said, code, "position", "column", signed=bool((code < 0).any()), vmax=most or None))
        at = torch.arange(position_count)
        for pattern, layers in _group_layers(stack.patterns):
            seen = pattern.allows(at[:, None], at[None, :])
            while seen.dim() > 2:
                seen = seen[0]  # of several heads, the first
            panels.append(
                Heatmap(f"{where}who may look at whom{layers}", seen.expand(position_count, position_count).float())
            )
    return panels


def _group_layers(values: Sequence[T]) -> list[tuple[T, str]]:
    """Each value once, and which layers have it where they differ: ", layers 0, 1, 3"."""
    found = {one: [number for number, other in enumerate(values) if other == one] for one in values}
    several = len(found) > 1
    return [(one, f", layers {', '.join(map(str, numbers))}" if several else "") for one, numbers in found.items()]
