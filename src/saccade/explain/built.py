"""What a model is built to see before it reads a word: the barcode of its positions, and who may look at whom."""

import torch

from saccade.errors import ModelError
from saccade.explain.picture import Map
from saccade.models.model import Model
from saccade.parts.position import Position
from saccade.parts.stack import Stack

LENGTH = 48  # positions that are drawn


def built(model: Model, length: int = LENGTH) -> list[Map]:
    """Two maps for each stack of layers: what its scheme makes of each position, and which keys a query may look at."""
    found = [(name, stack) for name, stack in model.body.named_modules() if isinstance(stack, Stack)]
    if not found:
        raise ModelError(f"{model.family.name} has no stack of layers; its order is that of its steps.")
    panels = []
    for name, stack in found:
        where = f"{name}: " if len(found) > 1 else ""
        scheme = stack.position
        if type(scheme) is not Position:
            code = scheme.barcode(min(length, scheme.limit or length)).float().cpu()
            said = f"{where}{type(scheme).__name__.lower()} positions"
            most = float(
                code.abs().quantile(0.99)
            )  # a few numbers of a learned table may be far larger than all others
            panels.append(Map(said, code, "position", "column", signed=bool((code < 0).any()), most=most or None))
        at = torch.arange(length)
        seen = stack.pattern.allows(at[:, None], at[None, :])
        while seen.dim() > 2:
            seen = seen[0]  # of several heads, the first
        panels.append(Map(f"{where}who may look at whom", seen.expand(length, length).float()))
    return panels
