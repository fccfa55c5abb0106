"""Cosine attention: the score is the cosine similarity of q and k, times a learned sharpness (inverse temperature).

Used with a large sharpness by Swin v2 (Liu et al. 2022, arXiv 2111.09883) and as content addressing in neural Turing
machines (Graves et al. 2014, arXiv 1410.5401).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention.mechanisms.dot import ScaledDot
from saccade.attention.normalizer import Normalizer


class Cosine(ScaledDot):
    """softmax(sharpness · cos(q, k)): only the direction of a vector matters, not its norm."""

    def __init__(self, *, sharpness: float = 10.0, normalizer: Normalizer | None = None, dropout: float = 0.0):
        super().__init__(scale=1.0, normalizer=normalizer, dropout=dropout)
        self.sharpness: nn.Parameter = nn.Parameter(torch.tensor(sharpness))

    def transform_qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q, dim=-1) * self.sharpness, F.normalize(k, dim=-1)
