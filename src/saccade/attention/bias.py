"""Biases of the attention scores that depend on distance: ALiBi's fixed slopes and T5's learned relative position buckets.

A bias is a function of positions, so the same code serves a dense mask, the blocks of sparse attention, and each step of
decoding with a KV cache.
"""

import math

import torch
from torch import Tensor, nn


class Alibi(nn.Module):
    """ALiBi, attention with linear biases: -slope · distance, with one slope per head (Press et al. 2022, arXiv 2108.12409).

    >>> Alibi(2).slopes.tolist()
    [0.0625, 0.00390625]
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    @property
    def slopes(self) -> Tensor:
        """The slope of each head: a geometric sequence, from 1/2 to 1/256 for eight heads."""
        power = 2 ** math.floor(math.log2(self.heads))
        slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        # if the number of heads is no power of two, the paper adds every second slope of the next power
        return torch.tensor(slopes + [2 ** (-4 * (2 * i + 1) / power) for i in range(self.heads - power)])

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return -self.slopes.to(q_pos.device)[:, None, None] * (k_pos - q_pos).abs()


class T5Bias(nn.Module):
    """T5's relative position bias, learned for each head and bucket of distances (Raffel et al. 2020, arXiv 1910.10683).

    Small distances have one bucket each, larger ones share buckets of logarithmically growing size up to
    `max_relative_distance`, and all beyond share the last. With `bidirectional`, half of the buckets are for keys after the
    query.
    """

    max_relative_distance: int
    bidirectional: bool

    def __init__(self, heads: int, *, buckets: int = 32, max_relative_distance: int = 128, bidirectional: bool = True):
        super().__init__()
        self.max_relative_distance, self.bidirectional = max_relative_distance, bidirectional
        self.table: nn.Embedding = nn.Embedding(buckets, heads)

    def to_bucket(self, offset: Tensor) -> Tensor:
        """The bucket of a key that is `offset` positions after the query.

        >>> T5Bias(1, buckets=8, max_relative_distance=16).to_bucket(torch.tensor([-20, -3, -1, 0, 1, 3, 20])).tolist()
        [3, 2, 1, 0, 5, 6, 7]
        """
        count = self.table.num_embeddings
        first = torch.zeros_like(offset)
        if self.bidirectional:
            count //= 2
            first = (offset > 0) * count
            distance = offset.abs()
        else:
            distance = (-offset).clamp(min=0)
        exact = count // 2
        # the logarithm in float32, as published: at the bucket boundaries other precisions round into other buckets
        far = (
            exact
            + (
                (distance.clamp(min=1).float() / exact).log()
                / math.log(self.max_relative_distance / exact)
                * (count - exact)
            ).long()
        )
        return first + torch.where(distance < exact, distance, far.clamp(max=count - 1))

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        bias = self.table(self.to_bucket(k_pos - q_pos))  # (..., 1 or H, Q, K, H)
        if bias.dim() > 3:  # positions differ between heads: each head takes its own
            bias = bias.squeeze(-4) if bias.size(-4) == 1 else bias.diagonal(dim1=-4, dim2=-1)
        return bias.movedim(-1, -3)
