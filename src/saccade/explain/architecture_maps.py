"""Maps of the architecture of a model, without any input: its position encodings and its attention patterns."""

from collections.abc import Sequence
from typing import TypeVar

import torch

from saccade.errors import ModelError
from saccade.models.model import Model
from saccade.parts.position import Position
from saccade.parts.stack import Stack
from saccade.render.plot import Heatmap

DEFAULT_POSITIONS_SHOWN = 48

T = TypeVar("T")


def build_architecture_maps(model: Model, position_count: int = DEFAULT_POSITIONS_SHOWN) -> list[Heatmap]:
    """Two kinds of maps for each stack of layers: its position encodings, and the keys to which each query may attend."""
    stacks = [(name, stack) for name, stack in model.body.named_modules() if isinstance(stack, Stack)]
    if not stacks:
        raise ModelError(
            f"{model.family.name} has no stack of layers, so it has no position encodings and no patterns."
        )
    heatmaps = []
    for name, stack in stacks:
        prefix = f"{name}: " if len(stacks) > 1 else ""
        for scheme, layers in _group_layers([stack.position.for_layer(number) for number in range(len(stack.layers))]):
            if type(scheme) is Position:
                continue
            encodings = scheme.to_matrix(min(position_count, scheme.max_positions or position_count)).float().cpu()
            title = f"{prefix}{type(scheme).__name__.lower()} positions{layers}"
            signed = bool((encodings < 0).any())
            vmax = float(
                encodings.abs().quantile(0.99)
            )  # a few values of a learned table can be far larger than all others
            heatmaps.append(Heatmap(title, encodings, "position", "column", signed=signed, vmax=vmax or None))
        positions = torch.arange(position_count)
        for pattern, layers in _group_layers(stack.patterns):
            allowed = pattern.allows(positions[:, None], positions[None, :])
            while allowed.dim() > 2:
                allowed = allowed[0]  # the first of several heads
            matrix = allowed.expand(position_count, position_count).float()
            heatmaps.append(Heatmap(f"{prefix}attention pattern{layers}", matrix))
    return heatmaps


def _group_layers(values: Sequence[T]) -> list[tuple[T, str]]:
    """Each value once, with its layers such as ", layers 0, 1, 3"; "" if all layers have the same value."""
    groups = {value: [number for number, other in enumerate(values) if other == value] for value in values}
    differ = len(groups) > 1
    return [(value, f", layers {', '.join(map(str, layers))}" if differ else "") for value, layers in groups.items()]
