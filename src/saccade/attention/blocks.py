"""Attention over some blocks of keys: the common road of the sparse mechanisms, without a Q x K tensor in either direction.

A sparse mechanism cuts its work into `Part`s: queries in blocks, for each block a few keys, and a mask. Each part runs
through the fused kernel, which also returns the logarithm of its sum of exponentials; with those sums the parts are joined
to exactly the softmax over all keys of all parts. No pair may stand in two parts. Backward, the keys of a part are gathered
again rather than kept.

Everything here is for one row of a batch: q, k, v are (H, n, D).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

GATHERED = 2**24  # bytes that a part may gather at a time
_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_kernel_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class Layout:
    """Which queries a part serves and in which blocks: all of them, or those in `order`, (rows,) or (H, rows).

    Where the order has gaps or fillers, `slot` says at which place of it each query stands, (H, n).
    """

    length: int
    block: int
    order: Tensor | None = None
    slot: Tensor | None = None

    def of(self, heads: slice) -> "Layout":
        """The same for some heads only."""
        order, slot = (x if x is None or x.dim() == 1 else x[heads] for x in (self.order, self.slot))
        return Layout(self.length, self.block, order, slot)

    def take(self, x: Tensor) -> Tensor:
        """(H, n, D) to (blocks, H, block, D)."""
        x = x if self.order is None else pick(x, self.order)
        x = F.pad(x, (0, 0, 0, -x.size(1) % self.block))
        return x.unflatten(1, (-1, self.block)).transpose(0, 1)

    def put(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """(blocks, H, block, D) back to (H, n, D), with `fill` for queries that the part does not serve."""
        x = x.transpose(0, 1).flatten(1, 2)
        if self.order is None:
            return x[:, : self.length]
        if self.slot is not None:
            return pick(x, self.slot)
        order = self.order.expand(x.size(0), -1)
        x = x[:, : order.size(1)]
        out = x.new_full((x.size(0), self.length, x.size(2)), fill)
        return out.scatter(1, order.unsqueeze(-1).expand_as(x), x)


class Keys:
    """Which keys the blocks of a part look at; `take` gathers them, `give` is the way back for their gradients."""

    def of(self, heads: slice) -> "Keys":
        """The same for some heads only."""
        return self

    def take(self, x: Tensor) -> Tensor:
        """(H, n, D) to (blocks, H, S, D)."""
        raise NotImplementedError

    def give(self, total: Tensor, grad: Tensor) -> None:
        """Add gradients (blocks, H, S, D) to those of all keys, (H, n, D)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Band(Keys):
    """For each block of queries its neighbourhood; in another order of the tokens, where a layout has one."""

    layout: Layout
    left: int
    right: int

    def of(self, heads: slice) -> "Keys":
        return Band(self.layout.of(heads), self.left, self.right)

    def take(self, x: Tensor) -> Tensor:
        x = x if self.layout.order is None else pick(x, self.layout.order)
        x = F.pad(x, (0, 0, self.left, self.right + -x.size(1) % self.layout.block))
        return x.unfold(1, self.left + self.layout.block + self.right, self.layout.block).permute(1, 0, 3, 2)

    def give(self, total: Tensor, grad: Tensor) -> None:
        block = self.layout.block
        blocks, heads, span, width = grad.shape
        steps = -(-span // block)
        out = grad.new_zeros(heads, blocks + steps - 1, block, width)
        for step in range(steps):  # the sum of the overlaps
            piece = grad[:, :, step * block : (step + 1) * block].transpose(0, 1)
            out[:, step : step + blocks, : piece.size(2)] += piece
        out = out.flatten(1, 2)[:, self.left :]
        total += out[:, : self.layout.length] if self.layout.slot is None else pick(out, self.layout.slot)


@dataclass(frozen=True)
class Some(Keys):
    """The same few keys for all queries; all of them if `index` is None."""

    index: Tensor | None = None

    def take(self, x: Tensor) -> Tensor:
        return (x if self.index is None else x.index_select(1, self.index))[None]

    def give(self, total: Tensor, grad: Tensor) -> None:
        if self.index is None:
            total += grad[0]
        else:
            total.index_add_(1, self.index, grad[0])


@dataclass(frozen=True)
class Chosen(Keys):
    """For each head and block of queries some whole blocks of keys: `at` is (H, blocks, count)."""

    at: Tensor
    block: int

    def of(self, heads: slice) -> "Keys":
        return Chosen(self.at[heads], self.block)

    def _flat(self) -> Tensor:
        heads, blocks, _ = self.at.shape
        return (self.at + torch.arange(heads, device=self.at.device)[:, None, None] * blocks).flatten()

    def take(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, -x.size(1) % self.block)).unflatten(1, (-1, self.block)).flatten(0, 1)
        return x.index_select(0, self._flat()).unflatten(0, self.at.shape).flatten(2, 3).transpose(0, 1)

    def give(self, total: Tensor, grad: Tensor) -> None:
        heads, blocks, count = self.at.shape
        pieces = grad.transpose(0, 1).unflatten(2, (count, self.block)).flatten(0, 2)
        out = grad.new_zeros(heads * blocks, self.block, grad.size(-1)).index_add_(0, self._flat(), pieces)
        total += out.view(heads, blocks * self.block, -1)[:, : total.size(1)]


@dataclass
class Part:
    """Some queries, the keys that they look at, and the mask, (blocks, H|1, block|1, S)."""

    layout: Layout
    keys: Keys
    mask: Tensor

    def of(self, heads: slice) -> "Part":
        """The same for some heads only."""
        mask = self.mask if self.mask.size(1) == 1 else self.mask[:, heads]
        return Part(self.layout.of(heads), self.keys.of(heads), mask)


def attend(q: Tensor, k: Tensor, v: Tensor, parts: Sequence[Part], scale: float) -> Tensor:
    """softmax over all the keys of all parts, (H, n, D)."""
    learned = any(part.mask.requires_grad for part in parts)
    if q.device.type == "cpu" and not learned and q.size(-1) == v.size(-1):
        return _Fused.apply(q, k, v, parts, scale)  # type: ignore[return-value]
    pieces = []
    for part in parts:
        out, total = _defined(part.layout.take(q), part.keys.take(k), part.keys.take(v), part.mask, scale)
        pieces.append((part.layout.put(out), part.layout.put(total, -math.inf)))
    return _join(pieces)


def _defined(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """What the kernel computes, in words: the weighted mean of the values, and the log of the sum of the exponentials."""
    scores = q @ k.mT * scale + mask
    blind = (scores == -math.inf).all(-1, keepdim=True)
    total = scores.masked_fill(blind, 0.0).logsumexp(-1, keepdim=True)
    weights = (scores - total).exp()
    return weights @ v, total.masked_fill(blind, -math.inf)


def _join(pieces: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Join parts into one softmax: each part counts with its share of the sum of all exponentials."""
    totals = torch.stack([total for _, total in pieces])  # (parts, H, n, 1)
    blind = (totals == -math.inf).all(0)
    shares = (totals - totals.masked_fill(blind, 0.0).logsumexp(0)).exp()
    return torch.stack([share * out for share, (out, _) in zip(shares, pieces, strict=True)]).sum(0)


class _Fused(torch.autograd.Function):
    """The joined parts through the fused kernel, forward and backward, a few heads at a time.

    Backward, each part is told the *joined* output and sum; the kernel then finds each weight's true share by itself.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, parts: Sequence[Part], scale: float) -> Tensor:
        heads, length, width = q.shape
        out = q.new_empty(length, heads, width).transpose(0, 1)  # laid out for whoever joins the heads
        total = torch.empty(heads, length, 1, dtype=_exact(q.dtype), device=q.device)
        for some in _groups(q, parts):
            joined: tuple[Tensor, Tensor] | None = None
            for part in parts:
                part = part.of(some)
                given = (part.layout.take(q[some]), part.keys.take(k[some]), part.keys.take(v[some]), 0.0, False)
                piece, sums = _kernel(*given, attn_mask=part.mask, scale=scale)
                blind = (part.mask == -math.inf).all(-1)  # there the kernel says 0 where it should say -inf
                sums = sums.masked_fill(blind, -math.inf).unsqueeze(-1)
                joined = _add(joined, part.layout, piece.to(sums.dtype), sums)
            assert joined is not None
            out[some], total[some] = joined
        ctx.save_for_backward(q, k, v, out, total, *(part.mask for part in parts))
        ctx.parts, ctx.scale = [(part.layout, part.keys) for part in parts], scale
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        q, k, v, out, total, *masks = ctx.saved_tensors
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        parts = [Part(layout, keys, mask) for (layout, keys), mask in zip(ctx.parts, masks, strict=True)]
        total = total.masked_fill(total == -math.inf, 0.0)
        grads = [torch.zeros_like(x) for x in (q, k, v)]
        for some in _groups(q, parts):
            for part in parts:
                part = part.of(some)
                take, gather = part.layout.take, part.keys.take
                sums = take(total[some]).squeeze(-1).transpose(1, 2).contiguous().transpose(1, 2)
                given = (
                    take(grad[some]),
                    take(q[some]),
                    gather(k[some]),
                    gather(v[some]),
                    take(out[some]),
                    sums,
                    0.0,
                    False,
                )
                for_q, for_k, for_v = _kernel_backward(*given, attn_mask=part.mask, scale=ctx.scale)
                grads[0][some] += part.layout.put(for_q)
                part.keys.give(grads[1][some], for_k)
                part.keys.give(grads[2][some], for_v)
        return *grads, None, None


def _exact(dtype: torch.dtype) -> torch.dtype:
    """The precision in which the kernel sums: half precision is summed in single."""
    return dtype if dtype == torch.float64 else torch.float32


def _groups(q: Tensor, parts: Sequence[Part]) -> list[slice]:
    """So many heads at a time that what is gathered stays small: larger pieces are given back to the system and fetched
    anew at every use, which costs more than the attention itself."""
    heads, _, width = q.shape
    bytes_of = [part.mask.size(0) * part.mask.size(-1) * width * q.element_size() for part in parts]
    step = max(1, min(heads, GATHERED // max(1, *bytes_of)))
    return [slice(start, min(heads, start + step)) for start in range(0, heads, step)]


def _add(joined: tuple[Tensor, Tensor] | None, layout: Layout, out: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Join one more part to those before it, as `_join` does, without keeping them all."""
    if joined is None:
        return layout.put(out), layout.put(total, -math.inf)
    whole, sums = joined
    if layout.order is not None and layout.slot is None:  # a few rows only
        few = _add(
            (pick(whole, layout.order), pick(sums, layout.order)), Layout(len(layout.order), layout.block), out, total
        )
        return whole.index_copy(1, layout.order, few[0]), sums.index_copy(1, layout.order, few[1])
    out, total = layout.put(out), layout.put(total, -math.inf)
    both = torch.logaddexp(sums, total)
    blind = both == -math.inf
    before, now = ((x - both).masked_fill(blind, -math.inf).exp() for x in (sums, total))
    return torch.addcmul(whole * before, out, now), both


def pick(x: Tensor, order: Tensor) -> Tensor:
    """Rows of x (H, n, D) in the given order, (rows,) or for each head (H, rows)."""
    if order.dim() == 1:
        return x.index_select(1, order)
    heads = torch.arange(x.size(0), device=x.device)[:, None]
    flat = x.flatten(0, 1).index_select(0, (order + heads * x.size(1)).flatten())  # far faster than gather
    return flat.unflatten(0, order.shape)


def numbers(length: int, block: int, left: int, right: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The row numbers behind `Layout` and `Band`: (blocks, 1, block, 1) and (blocks, 1, 1, span); may lie outside."""
    start = torch.arange(0, length, block, device=device)[:, None]
    q = start + torch.arange(block, device=device)
    k = start + torch.arange(-left, block + right, device=device)
    return q[:, None, :, None], k[:, None, None, :]
