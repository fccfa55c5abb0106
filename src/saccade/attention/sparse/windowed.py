"""Sliding-window attention (Longformer): softmax(q·k/√d) over the neighbours of each token, plus a few global tokens.

Beltagy et al. 2020 (arXiv 2004.05150). Global tokens attend to all tokens, and all attend to them. Time and memory grow with n,
not with n².
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention.normalizer import Normalizer
from saccade.attention.pattern import Global, Pattern, Window
from saccade.attention.sight import Sight
from saccade.attention.sparse import blockwise
from saccade.attention.sparse.base import SequenceView, Sparse


class Windowed(Sparse):
    """A window of `left` tokens back and `right` ahead (default: the same), with the first `global_count` tokens global.

    Faster than full attention from about two thousand tokens.
    """

    def __init__(
        self,
        left: int,
        right: int | None = None,
        *,
        global_count: int = 0,
        normalizer: Normalizer | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(normalizer=normalizer, dropout=dropout)
        self.window: Window = Window(left, left if right is None else right)
        self.global_count: int = Global(global_count).count

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        return sight.restrict(self.window | Global(self.global_count) if self.global_count else self.window)

    def build_window_group(
        self, row: SequenceView, name: tuple, visible: Callable[[Tensor, Tensor], Tensor]
    ) -> blockwise.KeyGroup:
        """Each block of queries with its neighbourhood of keys, as far as a pair is `visible`."""
        left, right = row.clip_window(self.window.left, self.window.right)
        block = min(row.length, max(64, min(256, left + right)))
        blocks = blockwise.QueryBlocks(row.length, block)
        q, k = blockwise.block_positions(row.length, block, left, right, row.q.device)
        mask = row.get_or_make_mask((*name, "band"), lambda: row.make_mask(q, k, visible(q, k)))
        return blockwise.KeyGroup(blocks, blockwise.BandKeys(blocks, left, right), mask)

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        n, device = row.length, row.q.device
        name = (type(self), self.window, self.global_count)
        groups = [self.build_window_group(row, name, self.window.allows)]
        count = min(self.global_count, n)
        if not count:
            return groups
        every = torch.arange(n, device=device)
        global_positions = every[:count]

        def make_global_mask(q: Tensor, k: Tensor, columns: bool) -> Tensor:
            """The mask of the global pairs outside the window: all of the columns, and the rest of the rows."""
            outside = ~self.window.allows(q, k)
            return row.make_mask(q, k, outside if columns else outside & (k >= count))

        q, k = every[None, None, :, None], global_positions[None, None, None, :]
        mask = row.get_or_make_mask((*name, "columns"), lambda: make_global_mask(q, k, True))
        groups.append(blockwise.KeyGroup(blockwise.QueryBlocks(n, n), blockwise.SharedKeys(global_positions), mask))
        mask = row.get_or_make_mask((*name, "rows"), lambda: make_global_mask(k.mT, q.mT, False))
        groups.append(
            blockwise.KeyGroup(blockwise.QueryBlocks(n, count, global_positions), blockwise.SharedKeys(), mask)
        )
        return groups


@dataclass(frozen=True, eq=False)
class WindowPlusGlobal(Pattern):
    """A window, plus the global tokens as keys; global tokens as queries have no visible keys here."""

    window: Window
    global_tokens: Tensor  # (..., G) positions that broadcast with those of queries and keys

    def __eq__(self, other: object) -> bool:
        return self is other  # it holds a tensor of one batch

    def __hash__(self) -> int:
        return id(self)

    def is_global(self, at: Tensor) -> Tensor:
        """Whether each position is that of a global token."""
        return (at.unsqueeze(-1) == self.global_tokens).any(-1)

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (self.window.allows(q, k) | self.is_global(k)) & ~self.is_global(q)


class WindowedWithGlobals(Windowed):
    """A sliding window plus the `global_tokens` of the batch, which all tokens attend to.

    Which tokens are global depends on the data (in question answering, those of the question), so they come with the `Sight`.
    Their own queries are served by a separate attention with its own projections.
    """

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        global_tokens = sight.global_tokens
        if global_tokens is None:
            return super().restrict_sight(q, k, sight)
        broadcast = global_tokens[:, None, None, None, :]
        return sight.restrict(
            sight.get_or_make((type(self), self.window), lambda: WindowPlusGlobal(self.window, broadcast))
        )

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        global_tokens, n = row.global_tokens, row.length
        if global_tokens is None:
            return super().build_key_groups(row)
        name, pattern = (type(self), self.window, "global"), WindowPlusGlobal(self.window, global_tokens)
        q, k = torch.arange(n, device=row.q.device)[None, None, :, None], global_tokens[None, None, None, :]
        mask = row.get_or_make_mask((*name, "columns"), lambda: row.make_mask(q, k, pattern.allows(q, k)))
        columns = blockwise.KeyGroup(
            blockwise.QueryBlocks(n, n), blockwise.SharedKeys(global_tokens.clamp(min=0)), mask
        )
        return [self.build_window_group(row, name, lambda q, k: pattern.allows(q, k) & ~pattern.is_global(k)), columns]
