"""Windowed: softmax(q·k/√d) over the neighbours of each token, and over a few global tokens that see and are seen by all.

Longformer's pattern (Beltagy et al. 2020, arXiv 2004.05150). Time and memory grow with n, not with n².
"""

import torch
from torch import Tensor

from saccade.attention import blocks
from saccade.attention.normaliser import Normaliser
from saccade.attention.pattern import Global, Window
from saccade.attention.sight import Sight
from saccade.attention.sparse import Row, Sparse


class Windowed(Sparse):
    """`left` tokens back, `right` ahead (as many if not given), and the first `count` tokens as global ones.

    Below about a thousand tokens full attention is as fast; the gain begins there.
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
        self.count = count

    def narrow(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        return sight.within(self.window | Global(self.count) if self.count else self.window)

    def parts(self, row: Row) -> list[blocks.Part]:
        n, device = row.length, row.q.device
        name = (type(self), self.window, self.count)
        left, right = row.reach(self.window.left, self.window.right)
        block = min(n, max(64, min(256, left + right)))
        layout = blocks.Layout(n, block)
        q, k = blocks.numbers(n, block, left, right, device)
        mask = row.masks((*name, "band"), lambda: row.mask(q, k, self.window.allows(q, k)))
        parts = [blocks.Part(layout, blocks.Band(layout, left, right), mask)]
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
