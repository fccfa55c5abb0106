"""Windowed: softmax(q·k/√d) over the neighbours of each token, and over a few global tokens that see and are seen by all.

Longformer's pattern (Beltagy et al. 2020, arXiv 2004.05150). Time and memory grow with n, not with n².
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import blocks
from saccade.attention.normaliser import Normaliser
from saccade.attention.pattern import Global, Pattern, Window
from saccade.attention.sight import Sight
from saccade.attention.sparse import Row, Sparse


class Windowed(Sparse):
    """`left` tokens back, `right` ahead (as many if not given), and the first `count` tokens as global ones.

    Below about two thousand tokens full attention is as fast; the gain begins there.
    """

    def __init__(
        self,
        left: int,
        right: int | None = None,
        *,
        count: int = 0,
        normaliser: Normaliser | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(normaliser=normaliser, dropout=dropout)
        self.window = Window(left, left if right is None else right)
        self.count = Global(count).count

    def narrow(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        return sight.within(self.window | Global(self.count) if self.count else self.window)

    def band(self, row: Row, name: tuple, seen: Callable[[Tensor, Tensor], Tensor]) -> blocks.Part:
        """Each block of queries with its neighbourhood, as far as a pair is `seen`."""
        left, right = row.reach(self.window.left, self.window.right)
        block = min(row.length, max(64, min(256, left + right)))
        layout = blocks.Layout(row.length, block)
        q, k = blocks.numbers(row.length, block, left, right, row.q.device)
        mask = row.masks((*name, "band"), lambda: row.mask(q, k, seen(q, k)))
        return blocks.Part(layout, blocks.Band(layout, left, right), mask)

    def parts(self, row: Row) -> list[blocks.Part]:
        n, device = row.length, row.q.device
        name = (type(self), self.window, self.count)
        parts = [self.band(row, name, self.window.allows)]
        count = min(self.count, n)
        if not count:
            return parts
        every = torch.arange(n, device=device)
        few = every[:count]

        def rest(q: Tensor, k: Tensor, columns: bool) -> Tensor:
            """The global pairs that no earlier part has: first the columns, then what is left of the rows."""
            seen = ~self.window.allows(q, k)
            return row.mask(q, k, seen if columns else seen & (k >= count))

        q, k = every[None, None, :, None], few[None, None, None, :]
        mask = row.masks((*name, "columns"), lambda: rest(q, k, True))
        parts.append(blocks.Part(blocks.Layout(n, n), blocks.Some(few), mask))
        mask = row.masks((*name, "rows"), lambda: rest(k.mT, q.mT, False))
        parts.append(blocks.Part(blocks.Layout(n, count, few), blocks.Some(), mask))
        return parts


@dataclass(frozen=True, eq=False)
class Beside(Pattern):
    """A window, and wherever they stand the marked tokens as keys; as queries these see nothing here."""

    window: Window
    marked: Tensor  # (..., G) positions, shaped to meet those of queries and keys

    def __eq__(self, other: object) -> bool:
        return self is other  # it holds what belongs to one batch

    def __hash__(self) -> int:
        return id(self)

    def holds(self, at: Tensor) -> Tensor:
        """Whether each of these positions is marked."""
        return (at.unsqueeze(-1) == self.marked).any(-1)

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (self.window.allows(q, k) | self.holds(k)) & ~self.holds(q)


class Local(Windowed):
    """A window, and the tokens that the batch has `marked`: seen by all, while they look through an attention of their own.

    Which tokens are global is data (the question, in a text to be answered from), so it arrives in the `Sight`.
    """

    def narrow(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        marked = sight.marked
        if marked is None:
            return super().narrow(q, k, sight)
        shaped = marked[:, None, None, None, :]
        return sight.within(sight.once((type(self), self.window), lambda: Beside(self.window, shaped)))

    def parts(self, row: Row) -> list[blocks.Part]:
        marked, n = row.marked, row.length
        if marked is None:
            return super().parts(row)
        name, pattern = (type(self), self.window, "marked"), Beside(self.window, marked)
        q, k = torch.arange(n, device=row.q.device)[None, None, :, None], marked[None, None, None, :]
        mask = row.masks((*name, "columns"), lambda: row.mask(q, k, pattern.allows(q, k)))
        columns = blocks.Part(blocks.Layout(n, n), blocks.Some(marked.clamp(min=0)), mask)
        return [self.band(row, name, lambda q, k: pattern.allows(q, k) & ~pattern.holds(k)), columns]
