"""Attention over some blocks of keys: the common road of the sparse mechanisms, without a Q x K tensor in either direction.

A sparse mechanism cuts its work into `Part`s: queries in blocks, for each block a few keys, and a mask. Each part runs
through the fused kernel, which also returns the logarithm of its sum of exponentials; with those sums the parts are joined
to exactly the softmax over all keys of all parts. No pair may stand in two parts.

Everything here is for one row of a batch: q, k, v are (H, n, D).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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


@dataclass
class Part:
    """Some queries and the keys that they look at: k and v are (blocks, H, S, D), the mask (blocks, H|1, block, S)."""

    layout: Layout
    k: Tensor
    v: Tensor
    mask: Tensor


def attend(q: Tensor, parts: Sequence[Part], scale: float) -> Tensor:
    """softmax over all the keys of all parts, (H, n, D)."""
    layouts, masks = [p.layout for p in parts], [p.mask for p in parts]
    plain = q.device.type != "cpu" or any(p.mask.requires_grad for p in parts) or q.size(-1) != parts[0].v.size(-1)
    if plain:
        pieces = [_piece(p.layout, *_defined(p.layout.take(q), p.k, p.v, p.mask, scale)) for p in parts]
        return _join(pieces)[0]
    return _Fused.apply(q, layouts, masks, scale, *[x for p in parts for x in (p.k, p.v)])  # type: ignore[return-value]


def _defined(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """What the kernel computes, in words: the weighted mean of the values, and the log of the sum of the exponentials."""
    scores = q @ k.mT * scale + mask
    blind = (scores == -math.inf).all(-1, keepdim=True)
    total = scores.masked_fill(blind, 0.0).logsumexp(-1, keepdim=True)
    weights = (scores - total).exp()
    return weights @ v, total.masked_fill(blind, -math.inf)


def _piece(layout: Layout, out: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    return layout.put(out), layout.put(total, -math.inf)


def _join(pieces: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Join parts into one softmax: each part counts with its share of the sum of all exponentials."""
    if len(pieces) == 1:
        return pieces[0]
    totals = torch.stack([total for _, total in pieces])  # (parts, H, n, 1)
    blind = (totals == -math.inf).all(0)
    total = totals.masked_fill(blind, 0.0).logsumexp(0)
    shares = (totals - total).exp()
    out = sum(share * out for share, (out, _) in zip(shares, pieces, strict=True))
    assert isinstance(out, Tensor)
    return out, total


class _Fused(torch.autograd.Function):
    """The joined parts through the fused kernel, forward and backward.

    Backward, each part is told the *joined* output and sum; the kernel then finds each weight's true share by itself.
    """

    @staticmethod
    def forward(
        ctx, q: Tensor, layouts: list[Layout], masks: list[Tensor], scale: float, *keys_values: Tensor
    ) -> Tensor:
        pieces = []
        for i, (layout, mask) in enumerate(zip(layouts, masks, strict=True)):
            k, v = keys_values[2 * i : 2 * i + 2]
            out, total = _kernel(layout.take(q), k, v, 0.0, False, attn_mask=mask, scale=scale)
            blind = (mask == -math.inf).all(-1)  # there the kernel says 0 where it should say -inf
            total = total.masked_fill(blind, -math.inf).unsqueeze(-1)
            pieces.append(_piece(layout, out, total.to(q.dtype)))
        out, total = _join(pieces)
        ctx.save_for_backward(q, out, total, *masks, *keys_values)
        ctx.layouts, ctx.scale = layouts, scale
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        q, out, total, *rest = ctx.saved_tensors
        masks, keys_values = rest[: len(ctx.layouts)], rest[len(ctx.layouts) :]
        total = total.masked_fill(total == -math.inf, 0.0)
        grad_q, grads = torch.zeros_like(q), []
        for i, (layout, mask) in enumerate(zip(ctx.layouts, masks, strict=True)):
            k, v = keys_values[2 * i : 2 * i + 2]
            sums = layout.take(total).squeeze(-1).transpose(1, 2).contiguous().transpose(1, 2)
            given = (layout.take(grad), layout.take(q), k, v, layout.take(out), sums, 0.0, False)
            part_q, part_k, part_v = _kernel_backward(*given, attn_mask=mask, scale=ctx.scale)
            grad_q += layout.put(part_q)
            grads += [part_k, part_v]
        return grad_q, None, None, None, *grads


def pick(x: Tensor, order: Tensor) -> Tensor:
    """Rows of x (H, n, D) in the given order, (rows,) or for each head (H, rows)."""
    if order.dim() == 1:
        return x.index_select(1, order)
    heads = torch.arange(x.size(0), device=x.device)[:, None]
    flat = x.flatten(0, 1).index_select(0, (order + heads * x.size(1)).flatten())  # far faster than gather
    return flat.unflatten(0, order.shape)


def windows(x: Tensor, block: int, left: int, right: int) -> Tensor:
    """For each block of queries its neighbourhood of keys: (H, n, D) to (blocks, H, left + block + right, D), a view."""
    return _Windows.apply(x, block, left, right)  # type: ignore[return-value]


class _Windows(torch.autograd.Function):
    """Overlapping windows; the gradient is the sum of the overlaps (`unfold` has one too, at ten times the time)."""

    @staticmethod
    def forward(ctx, x: Tensor, block: int, left: int, right: int) -> Tensor:
        ctx.size, ctx.given = x.size(1), (block, left, right)
        x = F.pad(x, (0, 0, left, right + -x.size(1) % block))
        return x.unfold(1, left + block + right, block).permute(1, 0, 3, 2)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        block, left, _ = ctx.given
        blocks, heads, span, width = grad.shape
        steps = -(-span // block)
        grad = F.pad(grad, (0, 0, 0, steps * block - span))
        out = grad.new_zeros(heads, blocks + steps - 1, block, width)
        for step in range(steps):
            out[:, step : step + blocks] += grad[:, :, step * block : (step + 1) * block].transpose(0, 1)
        return out.flatten(1, 2)[:, left : left + ctx.size], None, None, None


def numbers(length: int, block: int, left: int, right: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The row numbers behind `Layout.take` and `windows`: (blocks, 1, block, 1) and (blocks, 1, 1, span); may lie outside."""
    start = torch.arange(0, length, block, device=device)[:, None]
    q = start + torch.arange(block, device=device)
    k = start + torch.arange(-left, block + right, device=device)
    return q[:, None, :, None], k[:, None, None, :]
