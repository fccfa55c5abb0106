"""Who may look at whom: a pattern is part of a model's architecture and a function of positions.

Positions come in already shaped to meet: queries as (..., Q, 1), keys as (..., 1, K). A pattern that differs from head to
head answers with a head axis before those two. Patterns are frozen, so they compare, hash, print and pickle; `&` and `|`
join them.

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
    """Which key positions each query position may look at."""

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        """True where the query at position `q` may look at the key at position `k`."""
        raise NotImplementedError(f"{type(self).__name__} must say which positions it allows")

    @property
    def reach(self) -> Reach:
        """How far back and how far ahead a query can look at most: what lets a fast path skip the rest."""
        return (math.inf, math.inf)

    @property
    def is_pairwise(self) -> bool:
        """Whether each pair can be judged by itself, without the rest of the row."""
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
        """The pattern as a picture: a row for each query, a column for each key; of several heads, the first."""
        at = torch.arange(size)
        seen = self.allows(at[:, None], at[None, :])
        while seen.dim() > 2:
            seen = seen[0]
        return "\n".join(" ".join("■" if x else "·" for x in row) for row in seen.expand(size, size).tolist())


@dataclass(frozen=True)
class Full(Pattern):
    """Everybody sees everybody: an encoder."""

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.ones((1, 1), dtype=torch.bool, device=q.device)


@dataclass(frozen=True)
class Causal(Pattern):
    """Only the past and the present: a decoder.

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
    """Neighbours only: at most `left` positions back and `right` ahead."""

    left: int
    right: int

    def __post_init__(self):
        if self.left < 0 or self.right < 0:
            raise ValueError(
                f"A window reaches 0 or more positions each way; got left={self.left}, right={self.right}."
            )

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        ahead = k - q
        return (ahead >= -self.left) & (ahead <= self.right)

    @property
    def reach(self) -> Reach:
        return (self.left, self.right)


@dataclass(frozen=True)
class Prefix(Pattern):
    """The first `length` positions are seen by all, the rest only by what comes after: a prefix language model."""

    length: int

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (k < self.length) | (k <= q)


@dataclass(frozen=True)
class Global(Pattern):
    """The first `count` positions see everything and are seen by everything (Longformer's and BigBird's global tokens)."""

    count: int

    def __post_init__(self):
        if self.count < 0:
            raise ValueError(f"The number of global positions is 0 or more; got {self.count}.")

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q < self.count) | (k < self.count)


@dataclass(frozen=True)
class Strided(Pattern):
    """Every `step`-th position, counted from the query (Child et al. 2019, arXiv 1904.10509)."""

    stride: int

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (k - q) % self.stride == 0


@dataclass(frozen=True)
class RandomBlocks(Pattern):
    """A few blocks of keys for each block of queries, drawn by a hash of (seed, head, query block, key block).

    Nothing is stored and nothing depends on the order of calls, so a row sees the same blocks in training, in a batch,
    alone, and on another machine. The number of blocks to draw from is read off the keys, hence pass a whole row of them.
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
        free = torch.arange(blocks, device=k.device)[None, :] <= last  # only blocks that the row has
        return expand_block_mask(
            self.choose_blocks(free.expand(*last.shape[:-2], blocks, blocks)), q, k, self.block_size
        )

    def choose_blocks(self, available: Tensor) -> Tensor:
        """Of the `free` blocks (..., query block, key block), the `count` with the highest hash, for each head."""
        blocks = available.size(-1)
        at = torch.arange(blocks, device=available.device)
        head = torch.arange(self.heads, device=available.device)[:, None, None]
        rank = _hash(_hash(_hash(at + self.seed * 7919) + at[:, None]) + head)  # (H, NB, NB)
        rank = rank.expand(*available.shape[:-3], self.heads, blocks, blocks).masked_fill(~available, -1)
        best = rank.topk(min(self.blocks_per_query_block, blocks), dim=-1)
        return torch.zeros_like(rank, dtype=torch.bool).scatter(-1, best.indices, best.values >= 0)


@dataclass(frozen=True)
class And(Pattern):
    """What two patterns allow together."""

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
    """What at least one of two patterns allows."""

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
    """Spread links between blocks, (..., query block, key block), over the positions in those blocks."""
    rows, columns = (q // block_size).clamp(min=0), (k // block_size).clamp(min=0)
    # numpy's: that of torch imports sympy, which takes most of a second
    lead = np.broadcast_shapes(block_mask.shape[:-2], rows.shape[:-2], columns.shape[:-2])
    block_mask = block_mask.expand(*lead, *block_mask.shape[-2:])
    block_mask = block_mask.gather(-2, rows.expand(*lead, rows.size(-2), block_mask.size(-1)))
    return block_mask.gather(-1, columns.expand(*lead, block_mask.size(-2), columns.size(-1)))


def _hash(x: Tensor) -> Tensor:
    """Scramble integers, well enough that neighbours look unrelated (a 31-bit multiply and shift, twice)."""
    for factor in (0x45D9F3B, 0x119DE1F3):
        x = ((x ^ (x >> 15)) * factor) & 0x7FFFFFFF
    return x ^ (x >> 13)
