"""What a model is built to see before it reads a word: the barcode of its positions, and who may look at whom."""

from collections.abc import Sequence
from typing import TypeVar

import torch

from saccade.errors import ModelError
from saccade.explain.picture import Map
from saccade.models.model import Model
from saccade.parts.position import Position
from saccade.parts.stack import Stack

LENGTH = 48  # positions that are drawn

Alike = TypeVar("Alike")


def built(model: Model, length: int = LENGTH) -> list[Map]:
    """Two maps for each stack of layers: what its scheme makes of each position, and which keys a query may look at."""
    found = [(name, stack) for name, stack in model.body.named_modules() if isinstance(stack, Stack)]
    if not found:
        raise ModelError(f"{model.family.name} has no stack of layers; its order is that of its steps.")
    panels = []
    for name, stack in found:
        where = f"{name}: " if len(found) > 1 else ""
        for scheme, layers in _alike([stack.position.at(number) for number in range(len(stack.layers))]):
            if type(scheme) is Position:
                continue
            code = scheme.barcode(min(length, scheme.limit or length)).float().cpu()
            said = f"{where}{type(scheme).__name__.lower()} positions{layers}"
            most = float(
                code.abs().quantile(0.99)
            )  # a few numbers of a learned table may be far larger than all others
            panels.append(Map(said, code, "position", "column", signed=bool((code < 0).any()), most=most or None))
        at = torch.arange(length)
        for pattern, layers in _alike(stack.patterns):
            seen = pattern.allows(at[:, None], at[None, :])
            while seen.dim() > 2:
                seen = seen[0]  # of several heads, the first
            panels.append(Map(f"{where}who may look at whom{layers}", seen.expand(length, length).float()))
    return panels


def _alike(given: Sequence[Alike]) -> list[tuple[Alike, str]]:
    """Each value once, and which layers have it where they differ: ", layers 0, 1, 3"."""
    found = {one: [number for number, other in enumerate(given) if other == one] for one in given}
    several = len(found) > 1
    return [(one, f", layers {', '.join(map(str, numbers))}" if several else "") for one, numbers in found.items()]
