"""Tilts of the scores that depend on distance: ALiBi's fixed slopes and T5's learned buckets.

A bias is a function of positions, so it is dense in a mask, blockwise in the sparse mechanisms, and right at every step of
a generation.
"""

import math

import torch
from torch import Tensor, nn


class Alibi(nn.Module):
    """Farther is less: -slope · distance, with a slope for each head (Press et al. 2022, arXiv 2108.12409).

    >>> Alibi(2).slopes.tolist()
    [0.0625, 0.00390625]
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    @property
    def slopes(self) -> Tensor:
        """One for each head, in a geometric row from one half to 1/256 (for eight heads)."""
        power = 2 ** math.floor(math.log2(self.heads))
        slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        # for other counts the paper takes every second slope of the next power of two
        return torch.tensor(slopes + [2 ** (-4 * (2 * i + 1) / power) for i in range(self.heads - power)])

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return -self.slopes.to(q_pos.device)[:, None, None] * (k_pos - q_pos).abs()


class T5Bias(nn.Module):
    """A learned tilt for each head and each bucket of distances (Raffel et al. 2020, arXiv 1910.10683).

    Near distances have a bucket each, far ones share buckets of growing size up to `max_relative_distance`, and all beyond
    share the last. With `bidirectional` half of the buckets are for keys that come after the query.
    """

    def __init__(self, heads: int, *, buckets: int = 32, max_relative_distance: int = 128, bidirectional: bool = True):
        super().__init__()
        self.max_relative_distance, self.bidirectional = max_relative_distance, bidirectional
        self.table = nn.Embedding(buckets, heads)

    def to_bucket(self, offset: Tensor) -> Tensor:
        """The bucket of a key that stands `offset` positions after the query.

        >>> T5Bias(1, buckets=8, max_relative_distance=16).to_bucket(torch.tensor([-20, -3, -1, 0, 1, 3, 20])).tolist()
        [3, 2, 1, 0, 5, 6, 7]
        """
        count = self.table.num_embeddings
        first = torch.zeros_like(offset)
        if self.bidirectional:
            count //= 2
            first = (offset > 0) * count
            away = offset.abs()
        else:
            away = (-offset).clamp(min=0)
        exact = count // 2
        # the logarithm in float32, as published: at the borders other precisions fall into other buckets
        far = (
            exact
            + (
                (away.clamp(min=1).float() / exact).log()
                / math.log(self.max_relative_distance / exact)
                * (count - exact)
            ).long()
        )
        return first + torch.where(away < exact, away, far.clamp(max=count - 1))

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        tilt = self.table(self.to_bucket(k_pos - q_pos))  # (..., 1 or H, Q, K, H)
        if tilt.dim() > 3:  # positions that differ from head to head: each head takes its own
            tilt = tilt.squeeze(-4) if tilt.size(-4) == 1 else tilt.diagonal(dim1=-4, dim2=-1)
        return tilt.movedim(-1, -3)
