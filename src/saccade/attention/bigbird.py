"""BigBird: softmax(q·k/√d) over a window of blocks, the first and last blocks, and a few blocks at random.

Zaheer et al. 2020 (arXiv 2007.14062). Window for the neighbourhood, global blocks as meeting places, random links so that any
two tokens are a few steps apart. Where the future is hidden, the last block is not yet known and random links point back.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.attention import blocks
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
        free = ~(self.near(i, j) | self.ends(i, final) | self.ends(j, final)) & (j <= final)
        return self.random.choose(free if self.ahead else free & (j < i))

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        size = self.random.block
        final = k.amax(-1, keepdim=True) // size
        i, j = q // size, k // size
        fixed = self.near(i, j) | self.ends(i, final) | self.ends(j, final)
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

    def narrow(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        return sight.within(self._links(sight))

    def parts(self, row: Row) -> list[blocks.Part]:
        links, n, device = self._links(row.sight), row.length, row.q.device
        size, final = links.random.block, (row.size - 1) // links.random.block
        left, right = links.window * size, links.window * size if links.ahead else 0
        name = (type(self), links)

        def mask(kind: str, q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
            return row.masks((*name, kind), lambda: row.mask(q, k, seen))

        q, k = blocks.numbers(n, size, left, right, device)
        near = blocks.Part(
            blocks.Layout(n, size),
            *(blocks.windows(x, size, left, right) for x in (row.k, row.v)),
            mask("near", q, k, torch.ones_like(k, dtype=torch.bool)),
        )
        parts = [near]
        every = torch.arange(n, device=device)
        ends = [("first", every[: links.first * size], torch.ones_like(final, dtype=torch.bool))]
        if links.ahead and links.last:
            length = min(links.last * size, n)
            start = ((final - links.last + 1) * size).clamp(0, n - length)
            ends.append(("last", start + every[:length], final >= links.first))
        for kind, at, real in ends:
            if not len(at):
                continue
            # a global pair: not near, and of the last blocks only what is not among the first
            i, few = every[:, None] // size, at[None, :] // size
            mine = real & (few < links.first if kind == "first" else (few > final - links.last) & (few >= links.first))
            seen = mine & ~links.near(i, few)
            columns = (x.index_select(1, at)[None] for x in (row.k, row.v))
            pairs = (every[None, None, :, None], at[None, None, None, :])
            parts.append(blocks.Part(blocks.Layout(n, n), *columns, mask(kind + " columns", *pairs, seen[None, None])))
            seen = seen.mT & ~links.ends(every // size, final)
            pairs = (at[None, None, :, None], every[None, None, None, :])
            whole = (row.k[None], row.v[None])
            parts.append(
                blocks.Part(blocks.Layout(n, len(at), at), *whole, mask(kind + " rows", *pairs, seen[None, None]))
            )
        return parts + self._random(row, links, final, mask)

    def _random(self, row: Row, links: Links, final: Tensor, mask) -> list[blocks.Part]:
        size, n = links.random.block, row.length
        total = -(-n // size)
        count = min(links.random.count, total)
        if not count:
            return []
        best = row.sight.once(  # (H, blocks, count): true where there was a free block to link to
            ("chosen", links, row.number, n), lambda: links.chosen(final, total).int().topk(count, dim=-1)
        )
        at = best.indices
        heads = at.size(0)
        places = (at.unsqueeze(-1) * size + torch.arange(size, device=at.device)).flatten(2).transpose(0, 1)
        seen = best.values.bool().repeat_interleave(size, -1).transpose(0, 1)  # (blocks, H, count · size)
        q, _ = blocks.numbers(n, size, 0, 0, at.device)
        flat = (at + torch.arange(heads, device=at.device)[:, None, None] * total).flatten()

        def gather(x: Tensor) -> Tensor:
            x = torch.nn.functional.pad(x, (0, 0, 0, total * size - n)).unflatten(1, (total, size)).flatten(0, 1)
            return x.index_select(0, flat).unflatten(0, at.shape).flatten(2, 3).transpose(0, 1)

        pairs = mask("random", q, places.unsqueeze(2), seen.unsqueeze(2))
        return [blocks.Part(blocks.Layout(n, size), gather(row.k), gather(row.v), pairs)]

    def _links(self, sight: Sight) -> Links:
        return replace(self.links, ahead=sight.pattern.reach[1] > 0)
