"""Softmax attention with dropout on its weights, which the fused kernel does not know: a few heads at a time, and made again in
the backward pass, so that only which weights were dropped is remembered, a byte each.
"""

import math
from typing import Any

import torch
from torch import Tensor

from saccade.attention.sight import Sight

MAX_WEIGHTS = 2**20  # weights that exist at one time, or those of one head: they stay in the processor's cache


def attention_with_dropout(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, *, dropout: float, scale: float | None
) -> Tensor:
    """softmax(q·k · scale + mask), of which the `share` that the sight's noise says is dropped, @ v."""
    assert sight.noise is not None, "what is dropped has been drawn"
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    return _AttentionWithDropout.apply(q, k, v, sight.mask(q, k), sight.noise < dropout, dropout, scale)  # type: ignore[no-any-return]


class _AttentionWithDropout(torch.autograd.Function):
    """A group of heads after the other; each is computed twice, and neither time is it kept."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout_mask: Tensor, dropout: float, scale: float
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, mask, dropout_mask)
        ctx.share, ctx.scale = dropout, scale
        out = q.new_empty(*q.shape[:3], v.size(-1))
        for at in _chunk_batch_heads(dropout_mask):
            weights = _weights(q[at], k[at], _slice_mask(mask, at), scale).masked_fill_(dropout_mask[at], 0.0)
            out[at] = weights @ v[at]
        return out.div_(1 - dropout)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, mask, gone = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for at in _chunk_batch_heads(gone):
            now = grad[at] / (1 - ctx.share)
            weights = _weights(q[at], k[at], _slice_mask(mask, at), ctx.scale)
            dv[at] = weights.masked_fill(gone[at], 0.0).mT @ now
            slope = (now @ v[at].mT).masked_fill_(gone[at], 0.0).mul_(weights)
            slope.sub_(weights.mul_(slope.sum(-1, keepdim=True))).mul_(ctx.scale)  # softmax's own slope
            dq[at] = slope @ k[at]
            dk[at] = slope.mT @ q[at]
        return dq, dk, dv, None, None, None, None


BatchHeadSlice = tuple[slice, slice]  # rows of the batch, and heads of them


def _chunk_batch_heads(dropout_mask: Tensor) -> list[BatchHeadSlice]:
    """Heads of a row, or several whole rows, as many together as there is room for."""
    batch, heads = dropout_mask.shape[:2]
    most = max(1, MAX_WEIGHTS // max(1, dropout_mask[0, 0].numel()))
    if most < heads:
        starts = range(0, heads, most)
        return [(slice(row, row + 1), slice(start, start + most)) for row in range(batch) for start in starts]
    some = most // heads
    return [(slice(start, start + some), slice(None)) for start in range(0, batch, some)]


def _slice_mask(mask: Tensor, index: BatchHeadSlice) -> Tensor:
    rows, heads = index
    mask = mask if mask.size(0) == 1 else mask[rows]
    return mask if mask.size(1) == 1 else mask[:, heads]


def _weights(q: Tensor, k: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The definition; a query that may see nothing gets zeros."""
    scores = (q @ k.mT).mul_(scale).add_(mask)
    blind = (mask == -math.inf).all(-1, keepdim=True)
    if not torch.compiler.is_compiling() and not bool(blind.any()):
        return scores.softmax(-1)
    return scores.masked_fill_(blind, 0.0).softmax(-1).masked_fill_(blind, 0.0)
