"""Softmax attention with attention dropout, which the fused kernel does not support on a CPU.

A few heads are computed at a time, and the weights are recomputed in the backward pass, so only the dropout mask is stored,
one byte per weight.
"""

import math
from typing import Any

import torch
from torch import Tensor

from saccade.attention.sight import Sight

MAX_WEIGHTS = 2**20  # weights in memory at a time (at least those of one head), so that they fit in the processor cache


def attention_with_dropout(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, *, dropout: float, scale: float | None
) -> Tensor:
    """dropout(softmax(q·k · scale + mask)) @ v; the noise of the sight decides which weights are dropped."""
    assert sight.noise is not None, "the random numbers of the sight must have been drawn"
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    return _AttentionWithDropout.apply(q, k, v, sight.mask(q, k), sight.noise < dropout, dropout, scale)  # type: ignore[no-any-return]


class _AttentionWithDropout(torch.autograd.Function):
    """Attention in chunks of heads, whose weights are computed in forward and again in backward, and never stored."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout_mask: Tensor, dropout: float, scale: float
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, mask, dropout_mask)
        ctx.dropout, ctx.scale = dropout, scale
        out = q.new_empty(*q.shape[:3], v.size(-1))
        for at in _chunk_batch_heads(dropout_mask):
            weights = _weights(q[at], k[at], _slice_mask(mask, at), scale).masked_fill_(dropout_mask[at], 0.0)
            out[at] = weights @ v[at]
        return out.div_(1 - dropout)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, mask, dropout_mask = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for at in _chunk_batch_heads(dropout_mask):
            scaled_grad = grad[at] / (1 - ctx.dropout)
            weights = _weights(q[at], k[at], _slice_mask(mask, at), ctx.scale)
            dv[at] = weights.masked_fill(dropout_mask[at], 0.0).mT @ scaled_grad
            dscores = (scaled_grad @ v[at].mT).masked_fill_(dropout_mask[at], 0.0).mul_(weights)
            dscores.sub_(weights.mul_(dscores.sum(-1, keepdim=True))).mul_(ctx.scale)  # the gradient of softmax
            dq[at] = dscores @ k[at]
            dk[at] = dscores.mT @ q[at]
        return dq, dk, dv, None, None, None, None


BatchHeadSlice = tuple[slice, slice]  # (rows of the batch, heads)


def _chunk_batch_heads(dropout_mask: Tensor) -> list[BatchHeadSlice]:
    """Chunks of at most MAX_WEIGHTS weights: some heads of one row, or all heads of several rows."""
    batch, heads = dropout_mask.shape[:2]
    max_heads = max(1, MAX_WEIGHTS // max(1, dropout_mask[0, 0].numel()))
    if max_heads < heads:
        starts = range(0, heads, max_heads)
        return [(slice(row, row + 1), slice(start, start + max_heads)) for row in range(batch) for start in starts]
    max_rows = max_heads // heads
    return [(slice(start, start + max_rows), slice(None)) for start in range(0, batch, max_rows)]


def _slice_mask(mask: Tensor, index: BatchHeadSlice) -> Tensor:
    rows, heads = index
    mask = mask if mask.size(0) == 1 else mask[rows]
    return mask if mask.size(1) == 1 else mask[:, heads]


def _weights(q: Tensor, k: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The attention weights by definition; a query without visible keys gets zeros."""
    scores = (q @ k.mT).mul_(scale).add_(mask)
    blind = (mask == -math.inf).all(-1, keepdim=True)
    if not torch.compiler.is_compiling() and not bool(blind.any()):
        return scores.softmax(-1)
    return scores.masked_fill_(blind, 0.0).softmax(-1).masked_fill_(blind, 0.0)
