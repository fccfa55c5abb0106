"""ASCII heatmap: a matrix drawn with characters, for terminals that cannot show images."""

import torch
from torch import Tensor

SHADE_CHARACTERS = " ░▒▓█"


def ascii_heatmap(matrix: Tensor, *, low: float | None = None, high: float | None = None) -> str:
    """A matrix as text: two characters per number, from blank for the lowest to solid for the highest.

    >>> print(ascii_heatmap(torch.tensor([[0.0, 0.5], [0.25, 1.0]])))
      ▒▒
    ░░██
    """
    finite = matrix[matrix.isfinite()]
    low = (finite.min().item() if len(finite) else 0.0) if low is None else low
    high = (finite.max().item() if len(finite) else 1.0) if high is None else high
    level = ((matrix.nan_to_num(nan=low, neginf=low, posinf=high) - low) / max(high - low, 1e-12)).clamp(0, 1)
    index = (level * (len(SHADE_CHARACTERS) - 1)).round().int()
    return "\n".join("".join(SHADE_CHARACTERS[i] * 2 for i in row).rstrip() for row in torch.atleast_2d(index).tolist())
