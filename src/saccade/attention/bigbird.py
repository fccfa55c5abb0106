"""BigBird: softmax(q·k/√d) over a window of blocks, the first and last blocks, and a few blocks at random.

Zaheer et al. 2020 (arXiv 2007.14062). Window for the neighbourhood, global blocks as meeting places, random links so that any
two tokens are a few steps apart. Where the future is hidden, the last block is not yet known and random links point back.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from saccade.attention import blocks
from saccade.attention.dot import ScaledDot
from saccade.attention.normaliser import Normaliser
from saccade.attention.pattern import Pattern, RandomBlocks, between
from saccade.attention.sight import Sight
from saccade.attention.sparse import Row, Sparse


@dataclass(frozen=True)
class Links(Pattern):
    """Which blocks of tokens look at which: `window` blocks each side, `first` and `last` global ones, and random ones.

    >>> print(Links(RandomBlocks(block=1, count=1)).draw(8))
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
    window: int = 1
    first: int = 1
    last: int = 1
    short: int = 0  # a text of no more blocks than this is seen whole
    ahead: bool = True  # whether the model sees the future

    @property
    def pairwise(self) -> bool:
        return False

    def near(self, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() <= self.window

    def ends(self, i: Tensor, final: Tensor) -> Tensor:
        """Whether block `i` is one of the global blocks of a row whose last block is `final`."""
        return (i < self.first) | (i > final - self.last) if self.ahead else i < self.first

    def chosen(self, final: Tensor, count: int) -> Tensor:
        """The random links of `count` blocks, (..., H, count, count): among blocks that are not linked anyway."""
        at = torch.arange(count, device=final.device)
        i, j = at[:, None], at[None, :]
        free = ~(self.near(i, j) | self.ends(i, final) | self.ends(j, final)) & (j <= final) & (final >= self.short)
        return self.random.choose(free if self.ahead else free & (j < i))

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        size = self.random.block
        final = k.amax(-1, keepdim=True) // size
        i, j = q // size, k // size
        fixed = self.near(i, j) | self.ends(i, final) | self.ends(j, final) | (final < self.short)
        return fixed | between(self.chosen(final, -(-k.size(-1) // size)), q, k, size)


class BigBird(Sparse):
    """Block-sparse attention; `heads` is needed because each head draws random blocks of its own."""

    def __init__(
        self,
        heads: int,
        *,
        block: int = 64,
        count: int = 3,
        seed: int = 0,
        links: Links | None = None,
        normaliser: Normaliser | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(normaliser=normaliser, dropout=dropout)
        self.links = links or Links(RandomBlocks(seed, block, count, heads))
        if self.links.random.heads != heads:
            raise ValueError(
                f"BigBird has {heads} heads and its random blocks are drawn for {self.links.random.heads}."
            )

    def narrow(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        self._match(q.size(1))
        return sight.within(self._links(sight))

    def parts(self, row: Row) -> list[blocks.Part]:
        self._match(row.q.size(0))
        links = self._links(row.sight)
        final = (row.size - 1) // links.random.block  # the last block that has a token
        parts = [_near(row, links), *_global(row, links, final), *_random(row, links, final)]
        return parts if row.order is None or not links.short else [*parts, _whole(row, links, final)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        if not sight.fresh or k.size(2) > self.links.short * self.links.random.block:
            return super().attend(q, k, v, sight)
        out = ScaledDot.attend(self, q, k, v, sight)  # every text is seen whole
        return out if sight.keep is None else torch.where(sight.keep[:, None, :, None], out, 0.0)

    def _match(self, heads: int) -> None:
        if heads != self.links.random.heads:
            raise ValueError(f"This BigBird was built for {self.links.random.heads} heads and is used with {heads}.")

    def _links(self, sight: Sight) -> Links:
        return replace(self.links, ahead=sight.pattern.reach[1] > 0)


def _near(row: Row, links: Links) -> blocks.Part:
    """Each block of queries with the blocks beside it."""
    size = links.random.block
    left, right = links.window * size, links.window * size if links.ahead else 0
    q, k = blocks.numbers(row.length, size, left, right, row.q.device)
    mask = row.masks((links, "near"), lambda: row.mask(q, k, torch.ones_like(k, dtype=torch.bool)))
    layout = blocks.Layout(row.length, size)
    return blocks.Part(layout, blocks.Band(layout, left, right), mask)


def _global(row: Row, links: Links, final: Tensor) -> list[blocks.Part]:
    """Everybody with the global blocks (columns), and the global blocks with everybody else (rows)."""
    n, size = row.length, links.random.block
    every = torch.arange(n, device=row.q.device)
    first = every[: links.first * size]
    ends = [("first", first, torch.ones_like(first, dtype=torch.bool))]
    if links.ahead and links.last:
        length = min(links.last * size, n)
        last = ((final - links.last + 1) * size).clamp(0, n - length) + every[:length]
        ends.append(("last", last, links.ends(last // size, final) & (last >= len(first))))
    parts = []
    for kind, at, mine in ends:
        if not len(at):
            continue
        far = mine & ~links.near(every[:, None] // size, at // size)  # (n, few): global, and not near anyway
        rest = far.mT & ~links.ends(every // size, final)  # (few, n): what the columns do not have
        q, k = every[None, None, :, None], at[None, None, None, :]
        mask = row.masks((links, kind, "columns"), partial(row.mask, q, k, far[None, None]))
        parts.append(blocks.Part(blocks.Layout(n, n), blocks.Some(at), mask))
        mask = row.masks((links, kind, "rows"), partial(row.mask, k.mT, q.mT, rest[None, None]))
        parts.append(blocks.Part(blocks.Layout(n, len(at), at), blocks.Some(), mask))
    return parts


def _whole(row: Row, links: Links, final: Tensor) -> blocks.Part:
    """The rest of a text that is short enough to be seen whole, among longer ones."""
    size = links.random.block
    at = torch.arange(min(links.short * size, row.length), device=row.q.device)
    i, j = at[:, None] // size, at // size
    rest = (final < links.short) & ~(links.near(i, j) | links.ends(i, final) | links.ends(j, final))
    mask = row.masks(
        (links, "whole"), lambda: row.mask(at[None, None, :, None], at[None, None, None, :], rest[None, None])
    )
    return blocks.Part(blocks.Layout(row.length, len(at), at), blocks.Some(at), mask)


def _random(row: Row, links: Links, final: Tensor) -> list[blocks.Part]:
    """Each block of queries with the blocks drawn for it, different ones for each head."""
    n, size = row.length, links.random.block
    total = -(-n // size)
    count = min(links.random.count, total)
    if not count:
        return []
    key = ("chosen", links, row.number, n)
    best = row.sight.once(key, lambda: links.chosen(final, total).int().topk(count, dim=-1))
    at, drawn = best.indices, best.values.bool()  # (H, blocks, count): which block, and whether there was one to draw
    places = (at.unsqueeze(-1) * size + torch.arange(size, device=at.device)).flatten(2).transpose(0, 1)
    seen = drawn.repeat_interleave(size, -1).transpose(0, 1)  # (blocks, H, count · size)
    q, _ = blocks.numbers(n, size, 0, 0, at.device)
    mask = row.masks((links, "random"), lambda: row.mask(q, places.unsqueeze(2), seen.unsqueeze(2)))
    return [blocks.Part(blocks.Layout(n, size), blocks.Chosen(at, size), mask)]
