"""Attention patterns: which query positions may attend to which key positions, such as causal, sliding window or global.

A pattern is part of a model's architecture and a function of positions, which come in shapes that broadcast: queries as
(..., Q, 1), keys as (..., 1, K). A pattern that differs between heads returns a head axis before those two. Patterns are
frozen dataclasses, so they can be compared, hashed, printed and pickled; `&` and `|` combine them.

>>> print((Window(2, 0) | Global(1)).draw(6))
■ ■ ■ ■ ■ ■
■ ■ · · · ·
■ ■ ■ · · ·
■ ■ ■ ■ · ·
■ · ■ ■ ■ ·
■ · · ■ ■ ■
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from saccade.notebook import html_text

Reach = tuple[float, float]


@dataclass(frozen=True)
class Pattern:
    """Which key positions each query position may attend to."""

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        """True where the query at position `q` may attend to the key at position `k`."""
        raise NotImplementedError(f"{type(self).__name__} must define which positions it allows")

    @property
    def reach(self) -> Reach:
        """The largest distance back and ahead that a query can attend to; a fast path skips what lies beyond."""
        return (math.inf, math.inf)

    @property
    def is_pairwise(self) -> bool:
        """Whether each (query, key) pair can be decided on its own, without the rest of the row."""
        return True

    def __and__(self, other: "Pattern") -> "Pattern":
        if isinstance(self, Full):
            return other
        return self if isinstance(other, Full) or self == other else And(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        return self if self == other else Or(self, other)

    def _repr_html_(self) -> str:
        return html_text(f"{self!r}\n{self.draw(8)}")

    def draw(self, size: int = 6) -> str:
        """The pattern as text: one row per query, one column per key; if heads differ, the first head."""
        positions = torch.arange(size)
        visible = self.allows(positions[:, None], positions[None, :])
        while visible.dim() > 2:
            visible = visible[0]
        return "\n".join(" ".join("■" if x else "·" for x in row) for row in visible.expand(size, size).tolist())


@dataclass(frozen=True)
class Full(Pattern):
    """Full (bidirectional) attention, as in an encoder: every position attends to every position."""

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.ones((1, 1), dtype=torch.bool, device=q.device)


@dataclass(frozen=True)
class Causal(Pattern):
    """Causal attention, as in a decoder: a position attends to itself and to earlier positions.

    >>> print(Causal().draw(3))
    ■ · ·
    ■ ■ ·
    ■ ■ ■
    """

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return k <= q

    @property
    def reach(self) -> Reach:
        return (math.inf, 0)


@dataclass(frozen=True)
class Window(Pattern):
    """Sliding-window attention: at most `left` positions back and `right` positions ahead."""

    left: int
    right: int

    def __post_init__(self) -> None:
        if self.left < 0 or self.right < 0:
            raise ValueError(
                f"left and right of a window must be 0 or more positions; got left={self.left}, right={self.right}."
            )

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        ahead = k - q
        return (ahead >= -self.left) & (ahead <= self.right)

    @property
    def reach(self) -> Reach:
        return (self.left, self.right)


@dataclass(frozen=True)
class Prefix(Pattern):
    """Prefix language model: the first `length` positions attend to each other in both directions, the rest is causal."""

    length: int

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (k < self.length) | (k <= q)


@dataclass(frozen=True)
class Global(Pattern):
    """Global tokens (Longformer, BigBird): the first `count` positions attend to all positions, and all attend to them."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"The number of global positions must be 0 or more; got {self.count}.")

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q < self.count) | (k < self.count)


@dataclass(frozen=True)
class Strided(Pattern):
    """Strided attention: every `stride`-th position, counted from the query (Child et al. 2019, arXiv 1904.10509)."""

    stride: int

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (k - q) % self.stride == 0


@dataclass(frozen=True)
class RandomBlocks(Pattern):
    """Random blocks (BigBird): a few blocks of keys per block of queries, chosen by a hash of (seed, head, query, key block).

    Nothing is stored and nothing depends on the order of calls, so a sequence gets the same blocks in training, in a batch,
    alone, and on another machine. The number of available blocks is derived from the keys, so pass all keys of a row.
    """

    seed: int = 0
    block_size: int = 64
    blocks_per_query_block: int = 3
    heads: int = 1

    @property
    def is_pairwise(self) -> bool:
        return False

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        blocks = -(-k.size(-1) // self.block_size)
        last = k.amax(-1, keepdim=True) // self.block_size
        free = torch.arange(blocks, device=k.device)[None, :] <= last  # only blocks that exist in the row
        return expand_block_mask(
            self.choose_blocks(free.expand(*last.shape[:-2], blocks, blocks)), q, k, self.block_size
        )

    def choose_blocks(self, available: Tensor) -> Tensor:
        """The `available` blocks (..., query block, key block) with the highest hash, `blocks_per_query_block` for each head."""
        blocks = available.size(-1)
        at = torch.arange(blocks, device=available.device)
        head = torch.arange(self.heads, device=available.device)[:, None, None]
        rank = _hash(_hash(_hash(at + self.seed * 7919) + at[:, None]) + head)  # (H, NB, NB)
        rank = rank.expand(*available.shape[:-3], self.heads, blocks, blocks).masked_fill(~available, -1)
        best = rank.topk(min(self.blocks_per_query_block, blocks), dim=-1)
        return torch.zeros_like(rank, dtype=torch.bool).scatter(-1, best.indices, best.values >= 0)


@dataclass(frozen=True)
class And(Pattern):
    """The intersection of two patterns: what both allow."""

    first: Pattern
    second: Pattern

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return self.first.allows(q, k) & self.second.allows(q, k)

    @property
    def is_pairwise(self) -> bool:
        return self.first.is_pairwise and self.second.is_pairwise

    @property
    def reach(self) -> Reach:
        (a, b), (c, d) = self.first.reach, self.second.reach
        return (min(a, c), min(b, d))


@dataclass(frozen=True)
class Or(Pattern):
    """The union of two patterns: what at least one of them allows."""

    first: Pattern
    second: Pattern

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return self.first.allows(q, k) | self.second.allows(q, k)

    @property
    def is_pairwise(self) -> bool:
        return self.first.is_pairwise and self.second.is_pairwise

    @property
    def reach(self) -> Reach:
        (a, b), (c, d) = self.first.reach, self.second.reach
        return (max(a, c), max(b, d))


FULL, CAUSAL = Full(), Causal()


def expand_block_mask(block_mask: Tensor, q: Tensor, k: Tensor, block_size: int) -> Tensor:
    """Expand a mask between blocks, (..., query block, key block), to the positions in those blocks."""
    rows, columns = (q // block_size).clamp(min=0), (k // block_size).clamp(min=0)
    # from numpy: the function of torch imports sympy, which takes most of a second
    lead = np.broadcast_shapes(block_mask.shape[:-2], rows.shape[:-2], columns.shape[:-2])
    block_mask = block_mask.expand(*lead, *block_mask.shape[-2:])
    block_mask = block_mask.gather(-2, rows.expand(*lead, rows.size(-2), block_mask.size(-1)))
    return block_mask.gather(-1, columns.expand(*lead, block_mask.size(-2), columns.size(-1)))


def _hash(x: Tensor) -> Tensor:
    """An integer hash: two rounds of multiply and xor-shift in 31 bits, so that neighbours look unrelated."""
    for factor in (0x45D9F3B, 0x119DE1F3):
        x = ((x ^ (x >> 15)) * factor) & 0x7FFFFFFF
    return x ^ (x >> 13)
