"""BigBird block-sparse attention: softmax(q·k/√d) over a window of blocks, global first and last blocks, and random blocks.

Zaheer et al. 2020 (arXiv 2007.14062). The window covers the neighbourhood; global and random blocks connect any two tokens in
a few layers. In a causal model, the last block is not global and random blocks come from the past.
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
    """BigBird's pattern of blocks: `window_blocks` on each side, `first_blocks` and `last_blocks` global, and random blocks.

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
    max_full_blocks: int = 0  # sequences of at most this many blocks get full attention
    bidirectional: bool = True  # False in a causal model

    @property
    def is_pairwise(self) -> bool:
        return False

    def in_window(self, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() <= self.window_blocks

    def is_global(self, i: Tensor, last_block: Tensor) -> Tensor:
        """Whether block `i` is one of the global blocks of a row that ends with `last_block`."""
        return (
            (i < self.first_blocks) | (i > last_block - self.last_blocks)
            if self.bidirectional
            else i < self.first_blocks
        )

    def choose_random_blocks(self, last_block: Tensor, count: int) -> Tensor:
        """The random blocks of `count` query blocks, (..., H, count, count), outside the window and the global blocks."""
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
        last_block = k.amax(-1, keepdim=True) // size
        i, j = q // size, k // size
        fixed = (
            self.in_window(i, j)
            | self.is_global(i, last_block)
            | self.is_global(j, last_block)
            | (last_block < self.max_full_blocks)
        )
        return fixed | expand_block_mask(self.choose_random_blocks(last_block, -(-k.size(-1) // size)), q, k, size)


class BigBird(Sparse):
    """BigBird's block-sparse attention; each of the `heads` has its own random blocks."""

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
        self.pattern: BigBirdPattern = pattern or BigBirdPattern(RandomBlocks(seed, block_size, random_blocks, heads))
        if self.pattern.random.heads != heads:
            raise ValueError(
                f"BigBird has {heads} heads, but its random blocks are drawn for {self.pattern.random.heads}; use equal numbers."
            )

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        self._check_heads(q.size(1))
        return sight.restrict(self._resolve_pattern(sight))

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        self._check_heads(row.q.size(0))
        pattern = self._resolve_pattern(row.sight)
        last_block = (row.real_length - 1) // pattern.random.block_size  # the last block with a real token
        groups = [
            _build_window_group(row, pattern),
            *_build_global_groups(row, pattern, last_block),
            *_build_random_groups(row, pattern, last_block),
        ]
        return (
            groups
            if row.order is None or not pattern.max_full_blocks
            else [*groups, _build_full_group(row, pattern, last_block)]
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        if not sight.is_full_sequence or k.size(2) > self.pattern.max_full_blocks * self.pattern.random.block_size:
            return super().attend(q, k, v, sight)
        out = ScaledDot.attend(self, q, k, v, sight)  # all sequences are short enough for full attention
        return out if sight.keep is None else torch.where(sight.keep[:, None, :, None], out, 0.0)

    def _check_heads(self, heads: int) -> None:
        if heads != self.pattern.random.heads:
            raise ValueError(f"This BigBird was built for {self.pattern.random.heads} heads, but is used with {heads}.")

    def _resolve_pattern(self, sight: Sight) -> BigBirdPattern:
        return replace(self.pattern, bidirectional=sight.pattern.reach[1] > 0)


def _build_window_group(row: SequenceView, pattern: BigBirdPattern) -> blockwise.KeyGroup:
    """Each block of queries with the neighbouring blocks of keys."""
    size = pattern.random.block_size
    left, right = pattern.window_blocks * size, pattern.window_blocks * size if pattern.bidirectional else 0
    q, k = blockwise.block_positions(row.length, size, left, right, row.q.device)
    mask = row.get_or_make_mask((pattern, "window"), lambda: row.make_mask(q, k, torch.ones_like(k, dtype=torch.bool)))
    layout = blockwise.QueryBlocks(row.length, size)
    return blockwise.KeyGroup(layout, blockwise.BandKeys(layout, left, right), mask)


def _build_global_groups(row: SequenceView, pattern: BigBirdPattern, last_block: Tensor) -> list[blockwise.KeyGroup]:
    """All queries with the global blocks of keys (columns), and the global blocks of queries with all other keys (rows)."""
    n, size = row.length, pattern.random.block_size
    every = torch.arange(n, device=row.q.device)
    first = every[: pattern.first_blocks * size]
    ends = [("first", first, torch.ones_like(first, dtype=torch.bool))]
    if pattern.bidirectional and pattern.last_blocks:
        length = min(pattern.last_blocks * size, n)
        last = ((last_block - pattern.last_blocks + 1) * size).clamp(0, n - length) + every[:length]
        ends.append(("last", last, pattern.is_global(last // size, last_block) & (last >= len(first))))
    groups = []
    for kind, at, is_end in ends:
        if not len(at):
            continue
        outside = is_end & ~pattern.in_window(
            every[:, None] // size, at // size
        )  # (n, globals): global, and not in the window
        rest = outside.mT & ~pattern.is_global(
            every // size, last_block
        )  # (globals, n): pairs that are not in the columns
        q, k = every[None, None, :, None], at[None, None, None, :]
        mask = row.get_or_make_mask((pattern, kind, "columns"), partial(row.make_mask, q, k, outside[None, None]))
        groups.append(blockwise.KeyGroup(blockwise.QueryBlocks(n, n), blockwise.SharedKeys(at), mask))
        mask = row.get_or_make_mask((pattern, kind, "rows"), partial(row.make_mask, k.mT, q.mT, rest[None, None]))
        groups.append(blockwise.KeyGroup(blockwise.QueryBlocks(n, len(at), at), blockwise.SharedKeys(), mask))
    return groups


def _build_full_group(row: SequenceView, pattern: BigBirdPattern, last_block: Tensor) -> blockwise.KeyGroup:
    """The remaining pairs of a sequence that is short enough for full attention, in a batch with longer ones."""
    size = pattern.random.block_size
    at = torch.arange(min(pattern.max_full_blocks * size, row.length), device=row.q.device)
    i, j = at[:, None] // size, at // size
    rest = (last_block < pattern.max_full_blocks) & ~(
        pattern.in_window(i, j) | pattern.is_global(i, last_block) | pattern.is_global(j, last_block)
    )
    mask = row.get_or_make_mask(
        (pattern, "full"), lambda: row.make_mask(at[None, None, :, None], at[None, None, None, :], rest[None, None])
    )
    return blockwise.KeyGroup(blockwise.QueryBlocks(row.length, len(at), at), blockwise.SharedKeys(at), mask)


def _build_random_groups(row: SequenceView, pattern: BigBirdPattern, last_block: Tensor) -> list[blockwise.KeyGroup]:
    """Each block of queries with its random blocks of keys, which differ between heads."""
    n, size = row.length, pattern.random.block_size
    total = -(-n // size)
    count = min(pattern.random.blocks_per_query_block, total)
    if not count:
        return []
    key = ("random", pattern, row.batch_index, n)
    best = row.sight.get_or_make(key, lambda: pattern.choose_random_blocks(last_block, total).int().topk(count, dim=-1))
    at, exists = best.indices, best.values.bool()  # (H, blocks, count): the block, and whether it exists
    key_positions = (at.unsqueeze(-1) * size + torch.arange(size, device=at.device)).flatten(2).transpose(0, 1)
    visible = exists.repeat_interleave(size, -1).transpose(0, 1)  # (blocks, H, count · size)
    q, _ = blockwise.block_positions(n, size, 0, 0, at.device)
    mask = row.get_or_make_mask(
        (pattern, "random"), lambda: row.make_mask(q, key_positions.unsqueeze(2), visible.unsqueeze(2))
    )
    return [blockwise.KeyGroup(blockwise.QueryBlocks(n, size), blockwise.BlockKeys(at, size), mask)]
