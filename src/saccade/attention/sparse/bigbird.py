"""BigBird: softmax(q·k/√d) over a window of blocks, the first and last blocks, and a few blocks at random.

Zaheer et al. 2020 (arXiv 2007.14062). Window for the neighbourhood, global blocks as meeting places, random links so that any
two tokens are a few steps apart. Where the future is hidden, the last block is not yet known and random links point back.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from saccade.attention.mechanisms.dot import ScaledDot
from saccade.attention.normalizer import Normalizer
from saccade.attention.pattern import Pattern, RandomBlocks, expand_block_mask
from saccade.attention.sight import Sight
from saccade.attention.sparse import blockwise
from saccade.attention.sparse.base import SequenceView, Sparse


@dataclass(frozen=True)
class BigBirdPattern(Pattern):
    """Which blocks of tokens look at which: `window_blocks` each side, `first_blocks` and `last_blocks` global ones, and
    random ones.

    >>> print(BigBirdPattern(RandomBlocks(block_size=1, blocks_per_query_block=1)).draw(8))
    ■ ■ ■ ■ ■ ■ ■ ■
    ■ ■ ■ · · ■ · ■
    ■ ■ ■ ■ · ■ · ■
    ■ ■ ■ ■ ■ · · ■
    ■ · · ■ ■ ■ ■ ■
    ■ · ■ · ■ ■ ■ ■
    ■ · · · ■ ■ ■ ■
    ■ ■ ■ ■ ■ ■ ■ ■
    """

    random: RandomBlocks
    window_blocks: int = 1
    first_blocks: int = 1
    last_blocks: int = 1
    max_full_blocks: int = 0  # a text of no more blocks than this is seen whole
    bidirectional: bool = True  # whether the model sees the future

    @property
    def is_pairwise(self) -> bool:
        return False

    def in_window(self, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() <= self.window_blocks

    def is_global(self, i: Tensor, last_block: Tensor) -> Tensor:
        """Whether block `i` is one of the global blocks of a row whose last block is `final`."""
        return (
            (i < self.first_blocks) | (i > last_block - self.last_blocks)
            if self.bidirectional
            else i < self.first_blocks
        )

    def choose_random_blocks(self, last_block: Tensor, count: int) -> Tensor:
        """The random links of `count` blocks, (..., H, count, count): among blocks that are not linked anyway."""
        at = torch.arange(count, device=last_block.device)
        i, j = at[:, None], at[None, :]
        free = (
            ~(self.in_window(i, j) | self.is_global(i, last_block) | self.is_global(j, last_block))
            & (j <= last_block)
            & (last_block >= self.max_full_blocks)
        )
        return self.random.choose_blocks(free if self.bidirectional else free & (j < i))

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        size = self.random.block_size
        final = k.amax(-1, keepdim=True) // size
        i, j = q // size, k // size
        fixed = (
            self.in_window(i, j) | self.is_global(i, final) | self.is_global(j, final) | (final < self.max_full_blocks)
        )
        return fixed | expand_block_mask(self.choose_random_blocks(final, -(-k.size(-1) // size)), q, k, size)


class BigBird(Sparse):
    """Block-sparse attention; `heads` is needed because each head draws random blocks of its own."""

    def __init__(
        self,
        heads: int,
        *,
        block_size: int = 64,
        random_blocks: int = 3,
        seed: int = 0,
        pattern: BigBirdPattern | None = None,
        normalizer: Normalizer | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(normalizer=normalizer, dropout=dropout)
        self.pattern = pattern or BigBirdPattern(RandomBlocks(seed, block_size, random_blocks, heads))
        if self.pattern.random.heads != heads:
            raise ValueError(
                f"BigBird has {heads} heads and its random blocks are drawn for {self.pattern.random.heads}."
            )

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        self._check_heads(q.size(1))
        return sight.restrict(self._resolve_pattern(sight))

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        self._check_heads(row.q.size(0))
        links = self._resolve_pattern(row.sight)
        final = (row.real_length - 1) // links.random.block_size  # the last block that has a token
        parts = [
            _build_window_group(row, links),
            *_build_global_groups(row, links, final),
            *_build_random_groups(row, links, final),
        ]
        return (
            parts if row.order is None or not links.max_full_blocks else [*parts, _build_full_group(row, links, final)]
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        if not sight.is_full_sequence or k.size(2) > self.pattern.max_full_blocks * self.pattern.random.block_size:
            return super().attend(q, k, v, sight)
        out = ScaledDot.attend(self, q, k, v, sight)  # every text is seen whole
        return out if sight.keep is None else torch.where(sight.keep[:, None, :, None], out, 0.0)

    def _check_heads(self, heads: int) -> None:
        if heads != self.pattern.random.heads:
            raise ValueError(f"This BigBird was built for {self.pattern.random.heads} heads and is used with {heads}.")

    def _resolve_pattern(self, sight: Sight) -> BigBirdPattern:
        return replace(self.pattern, bidirectional=sight.pattern.reach[1] > 0)


def _build_window_group(row: SequenceView, pattern: BigBirdPattern) -> blockwise.KeyGroup:
    """Each block of queries with the blocks beside it."""
    size = pattern.random.block_size
    left, right = pattern.window_blocks * size, pattern.window_blocks * size if pattern.bidirectional else 0
    q, k = blockwise.block_positions(row.length, size, left, right, row.q.device)
    mask = row.get_or_make_mask((pattern, "near"), lambda: row.make_mask(q, k, torch.ones_like(k, dtype=torch.bool)))
    layout = blockwise.QueryBlocks(row.length, size)
    return blockwise.KeyGroup(layout, blockwise.BandKeys(layout, left, right), mask)


def _build_global_groups(row: SequenceView, pattern: BigBirdPattern, last_block: Tensor) -> list[blockwise.KeyGroup]:
    """Everybody with the global blocks (columns), and the global blocks with everybody else (rows)."""
    n, size = row.length, pattern.random.block_size
    every = torch.arange(n, device=row.q.device)
    first = every[: pattern.first_blocks * size]
    ends = [("first", first, torch.ones_like(first, dtype=torch.bool))]
    if pattern.bidirectional and pattern.last_blocks:
        length = min(pattern.last_blocks * size, n)
        last = ((last_block - pattern.last_blocks + 1) * size).clamp(0, n - length) + every[:length]
        ends.append(("last", last, pattern.is_global(last // size, last_block) & (last >= len(first))))
    parts = []
    for kind, at, mine in ends:
        if not len(at):
            continue
        far = mine & ~pattern.in_window(every[:, None] // size, at // size)  # (n, few): global, and not near anyway
        rest = far.mT & ~pattern.is_global(every // size, last_block)  # (few, n): what the columns do not have
        q, k = every[None, None, :, None], at[None, None, None, :]
        mask = row.get_or_make_mask((pattern, kind, "columns"), partial(row.make_mask, q, k, far[None, None]))
        parts.append(blockwise.KeyGroup(blockwise.QueryBlocks(n, n), blockwise.SharedKeys(at), mask))
        mask = row.get_or_make_mask((pattern, kind, "rows"), partial(row.make_mask, k.mT, q.mT, rest[None, None]))
        parts.append(blockwise.KeyGroup(blockwise.QueryBlocks(n, len(at), at), blockwise.SharedKeys(), mask))
    return parts


def _build_full_group(row: SequenceView, pattern: BigBirdPattern, last_block: Tensor) -> blockwise.KeyGroup:
    """The rest of a text that is short enough to be seen whole, among longer ones."""
    size = pattern.random.block_size
    at = torch.arange(min(pattern.max_full_blocks * size, row.length), device=row.q.device)
    i, j = at[:, None] // size, at // size
    rest = (last_block < pattern.max_full_blocks) & ~(
        pattern.in_window(i, j) | pattern.is_global(i, last_block) | pattern.is_global(j, last_block)
    )
    mask = row.get_or_make_mask(
        (pattern, "whole"), lambda: row.make_mask(at[None, None, :, None], at[None, None, None, :], rest[None, None])
    )
    return blockwise.KeyGroup(blockwise.QueryBlocks(row.length, len(at), at), blockwise.SharedKeys(at), mask)


def _build_random_groups(row: SequenceView, pattern: BigBirdPattern, last_block: Tensor) -> list[blockwise.KeyGroup]:
    """Each block of queries with the blocks drawn for it, different ones for each head."""
    n, size = row.length, pattern.random.block_size
    total = -(-n // size)
    count = min(pattern.random.blocks_per_query_block, total)
    if not count:
        return []
    key = ("chosen", pattern, row.batch_index, n)
    best = row.sight.get_or_make(key, lambda: pattern.choose_random_blocks(last_block, total).int().topk(count, dim=-1))
    at, drawn = best.indices, best.values.bool()  # (H, blocks, count): which block, and whether there was one to draw
    places = (at.unsqueeze(-1) * size + torch.arange(size, device=at.device)).flatten(2).transpose(0, 1)
    seen = drawn.repeat_interleave(size, -1).transpose(0, 1)  # (blocks, H, count · size)
    q, _ = blockwise.block_positions(n, size, 0, 0, at.device)
    mask = row.get_or_make_mask((pattern, "random"), lambda: row.make_mask(q, places.unsqueeze(2), seen.unsqueeze(2)))
    return [blockwise.KeyGroup(blockwise.QueryBlocks(n, size), blockwise.BlockKeys(at, size), mask)]
