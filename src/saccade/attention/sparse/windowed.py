"""Windowed: softmax(q·k/√d) over the neighbours of each token, and over a few global tokens that see and are seen by all.

Longformer's pattern (Beltagy et al. 2020, arXiv 2004.05150). Time and memory grow with n, not with n².
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
    """`left` tokens back, `right` ahead (as many if not given), and the first `global_count` tokens as global ones.

    Below about two thousand tokens full attention is as fast; the gain begins there.
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
        self.window = Window(left, left if right is None else right)
        self.global_count = Global(global_count).count

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        return sight.restrict(self.window | Global(self.global_count) if self.global_count else self.window)

    def build_window_group(
        self, row: SequenceView, name: tuple, visible: Callable[[Tensor, Tensor], Tensor]
    ) -> blockwise.KeyGroup:
        """Each block of queries with its neighbourhood, as far as a pair is `seen`."""
        left, right = row.clip_window(self.window.left, self.window.right)
        block = min(row.length, max(64, min(256, left + right)))
        layout = blockwise.QueryBlocks(row.length, block)
        q, k = blockwise.block_positions(row.length, block, left, right, row.q.device)
        mask = row.get_or_make_mask((*name, "band"), lambda: row.make_mask(q, k, visible(q, k)))
        return blockwise.KeyGroup(layout, blockwise.BandKeys(layout, left, right), mask)

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        n, device = row.length, row.q.device
        name = (type(self), self.window, self.global_count)
        parts = [self.build_window_group(row, name, self.window.allows)]
        count = min(self.global_count, n)
        if not count:
            return parts
        every = torch.arange(n, device=device)
        few = every[:count]

        def rest(q: Tensor, k: Tensor, columns: bool) -> Tensor:
            """The global pairs that no earlier part has: first the columns, then what is left of the rows."""
            seen = ~self.window.allows(q, k)
            return row.make_mask(q, k, seen if columns else seen & (k >= count))

        q, k = every[None, None, :, None], few[None, None, None, :]
        mask = row.get_or_make_mask((*name, "columns"), lambda: rest(q, k, True))
        parts.append(blockwise.KeyGroup(blockwise.QueryBlocks(n, n), blockwise.SharedKeys(few), mask))
        mask = row.get_or_make_mask((*name, "rows"), lambda: rest(k.mT, q.mT, False))
        parts.append(blockwise.KeyGroup(blockwise.QueryBlocks(n, count, few), blockwise.SharedKeys(), mask))
        return parts


@dataclass(frozen=True, eq=False)
class WindowPlusGlobal(Pattern):
    """A window, and wherever they stand the marked tokens as keys; as queries these see nothing here."""

    window: Window
    global_tokens: Tensor  # (..., G) positions, shaped to meet those of queries and keys

    def __eq__(self, other: object) -> bool:
        return self is other  # it holds what belongs to one batch

    def __hash__(self) -> int:
        return id(self)

    def is_global(self, at: Tensor) -> Tensor:
        """Whether each of these positions is marked."""
        return (at.unsqueeze(-1) == self.global_tokens).any(-1)

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (self.window.allows(q, k) | self.is_global(k)) & ~self.is_global(q)


class WindowedWithGlobals(Windowed):
    """A window, and the tokens that the batch has marked (`global_tokens`): seen by all, while they look through an
    attention of their own.

    Which tokens are global is data (the question, in a text to be answered from), so it arrives in the `Sight`.
    """

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        marked = sight.global_tokens
        if marked is None:
            return super().restrict_sight(q, k, sight)
        shaped = marked[:, None, None, None, :]
        return sight.restrict(
            sight.get_or_make((type(self), self.window), lambda: WindowPlusGlobal(self.window, shaped))
        )

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        marked, n = row.global_tokens, row.length
        if marked is None:
            return super().build_key_groups(row)
        name, pattern = (type(self), self.window, "marked"), WindowPlusGlobal(self.window, marked)
        q, k = torch.arange(n, device=row.q.device)[None, None, :, None], marked[None, None, None, :]
        mask = row.get_or_make_mask((*name, "columns"), lambda: row.make_mask(q, k, pattern.allows(q, k)))
        columns = blockwise.KeyGroup(blockwise.QueryBlocks(n, n), blockwise.SharedKeys(marked.clamp(min=0)), mask)
        return [self.build_window_group(row, name, lambda q, k: pattern.allows(q, k) & ~pattern.is_global(k)), columns]
