"""The common part of the sparse mechanisms: scaled dot products that never build a Q x K tensor.

The definition is a softmax under a mask like any other. The fast path goes row by row of the batch, moves the padding of
the row to its end, and lets the mechanism cut the work into `blocks.Part`s.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from saccade.attention import blocks
from saccade.attention.dot import ScaledDot
from saccade.attention.fused import long, short_only_in_products
from saccade.attention.mechanism import Mechanism, match
from saccade.attention.normaliser import Softmax
from saccade.attention.sight import Sight


class Row:
    """One row of a batch with its padding moved to the end, so that the place of a token is its position."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight, number: int):
        keep = None if sight.keep is None else sight.keep[number]
        self.order = None if keep is None else keep.long().argsort(descending=True, stable=True)
        # the kernel itself, unlike its public face, takes for granted that the numbers of a vector lie side by side
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        self.q, self.k, self.v = (x if self.order is None else x.index_select(1, self.order) for x in (q, k, v))
        self.marked = None if sight.marked is None else sight.marked[number]  # (G,)
        self.sight, self.number = sight, None if keep is None and self.marked is None else number
        self.length = q.size(1)
        self.size = torch.tensor(self.length, device=q.device) if keep is None else keep.sum()  # of the real tokens

    def back(self, x: Tensor) -> Tensor:
        """Into the order in which the tokens came."""
        return x if self.order is None else x.index_select(1, self.order.argsort())

    def reach(self, left: int, right: int) -> tuple[int, int]:
        """A window, no wider than the row and what the model's own pattern leaves of it."""
        back, ahead = self.sight.pattern.reach
        return int(min(left, back, self.length - 1)), int(min(right, ahead, self.length - 1))

    def mask(self, q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
        """The mask for some pairs of places: what the mechanism has `seen`, the model's pattern, the padding, the bias."""
        seen = seen & (k >= 0) & (k < self.size) & self.sight.pattern.allows(q, k)
        if self.order is not None:
            seen = seen & (q < self.size)  # padding neither looks nor is seen
        if self.sight.bias is not None:
            return self.sight.bias(q, k).to(self.q.dtype).masked_fill(~seen, -math.inf)
        return torch.zeros(seen.shape, dtype=self.q.dtype, device=seen.device).masked_fill(~seen, -math.inf)

    def masks(self, name: tuple, make: Callable[[], Tensor]) -> Tensor:
        """A mask that is the same in every layer, hence made once for all of them."""
        key = (name, self.number, self.length, self.q.dtype, torch.is_grad_enabled())
        return self.sight.once(key, make)


class Sparse(ScaledDot):
    """Scaled dot products over a few of the keys; a relative says which (`narrow`) and how to hurry (`parts`)."""

    separates = False

    def narrow(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        """The sight, narrowed to what this mechanism looks at: the definition."""
        raise NotImplementedError(f"{type(self).__name__} must say what it looks at")

    def parts(self, row: Row) -> list[blocks.Part]:
        """The work on one row, no pair twice: the fast path."""
        raise NotImplementedError(f"{type(self).__name__} must cut its work into parts")

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        self._refuse(sight)
        weights = super().weights(q, k, self.narrow(q, k, sight))
        return weights if sight.looking is None else weights * sight.looking[:, None, :, None]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        self._refuse(sight)
        if short_only_in_products(q):
            with torch.autocast("cpu", enabled=False):
                return self.attend(long(q), long(k), long(v), sight).to(q.dtype)
        by_blocks = sight.fresh and sight.pattern.pairwise and sight.noise is None and type(self.normaliser) is Softmax
        if not by_blocks:  # mostly one query over a remembered text: a short mask says it all
            return Mechanism.attend(self, q, k, v, sight)
        q, k = self.ready(q, k)
        k, v = match(k, q), match(v, q)
        scale = 1 / math.sqrt(q.size(-1)) if self.scale is None else self.scale
        rows = [Row(*qkv, sight, i) for i, qkv in enumerate(zip(q, k, v, strict=True))]
        out = [row.back(blocks.attend(row.q, row.k, row.v, self.parts(row), scale)) for row in rows]
        if len(out) < 2:
            return out[0][None] if out else torch.zeros_like(q)  # one row needs no copy
        return torch.stack([x.transpose(0, 1) for x in out]).transpose(1, 2)  # laid out for whoever joins the heads

    def _refuse(self, sight: Sight) -> None:
        if sight.cross:
            raise ValueError(
                f"{type(self).__name__} looks at tokens of its own sequence, so it cannot attend across to another; "
                "use ScaledDot for that."
            )
