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

MAX_GATHERED_BYTES = 2**24  # bytes that a part may gather at a time
_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_kernel_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class QueryBlocks:
    """Which queries a part serves and in which blocks: all of them, or those in `order`, (rows,) or (H, rows).

    Where the order has gaps or fillers, `slot` says at which place of it each query stands, (H, n).
    """

    length: int
    block_size: int
    order: Tensor | None = None
    slot: Tensor | None = None

    def select_heads(self, heads: slice) -> "QueryBlocks":
        """The same for some heads only."""
        order, slot = (x if x is None or x.dim() == 1 else x[heads] for x in (self.order, self.slot))
        return QueryBlocks(self.length, self.block_size, order, slot)

    def gather(self, x: Tensor) -> Tensor:
        """(H, n, D) to (blocks, H, block, D)."""
        x = x if self.order is None else take_rows(x, self.order)
        x = F.pad(x, (0, 0, 0, -x.size(1) % self.block_size))
        return x.unflatten(1, (-1, self.block_size)).transpose(0, 1)

    def scatter(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """(blocks, H, block, D) back to (H, n, D), with `fill` for queries that the part does not serve."""
        x = x.transpose(0, 1).flatten(1, 2)
        if self.order is None:
            return x[:, : self.length]
        if self.slot is not None:
            return take_rows(x, self.slot)
        order = self.order.expand(x.size(0), -1)
        x = x[:, : order.size(1)]
        out = x.new_full((x.size(0), self.length, x.size(2)), fill)
        return out.scatter(1, order.unsqueeze(-1).expand_as(x), x)


class KeySelection:
    """Which keys the blocks of a part look at; `take` gathers them, `give` is the way back for their gradients."""

    def select_heads(self, heads: slice) -> "KeySelection":
        """The same for some heads only."""
        return self

    def gather(self, x: Tensor) -> Tensor:
        """(H, n, D) to (blocks, H, S, D)."""
        raise NotImplementedError

    def scatter_add(self, total: Tensor, grad: Tensor) -> None:
        """Add gradients (blocks, H, S, D) to those of all keys, (H, n, D)."""
        raise NotImplementedError


@dataclass(frozen=True)
class BandKeys(KeySelection):
    """For each block of queries its neighbourhood; in another order of the tokens, where a layout has one."""

    queries: QueryBlocks
    left: int
    right: int

    def select_heads(self, heads: slice) -> "KeySelection":
        return BandKeys(self.queries.select_heads(heads), self.left, self.right)

    def gather(self, x: Tensor) -> Tensor:
        x = x if self.queries.order is None else take_rows(x, self.queries.order)
        x = F.pad(x, (0, 0, self.left, self.right + -x.size(1) % self.queries.block_size))
        return x.unfold(1, self.left + self.queries.block_size + self.right, self.queries.block_size).permute(
            1, 0, 3, 2
        )

    def scatter_add(self, total: Tensor, grad: Tensor) -> None:
        block = self.queries.block_size
        blocks, heads, span, width = grad.shape
        steps = -(-span // block)
        out = grad.new_zeros(heads, blocks + steps - 1, block, width)
        for step in range(steps):  # the sum of the overlaps
            piece = grad[:, :, step * block : (step + 1) * block].transpose(0, 1)
            out[:, step : step + blocks, : piece.size(2)] += piece
        out = out.flatten(1, 2)[:, self.left :]
        total += out[:, : self.queries.length] if self.queries.slot is None else take_rows(out, self.queries.slot)


@dataclass(frozen=True)
class SharedKeys(KeySelection):
    """The same few keys for all queries; all of them if `index` is None."""

    index: Tensor | None = None

    def gather(self, x: Tensor) -> Tensor:
        return (x if self.index is None else x.index_select(1, self.index))[None]

    def scatter_add(self, total: Tensor, grad: Tensor) -> None:
        if self.index is None:
            total += grad[0]
        else:
            total.index_add_(1, self.index, grad[0])


@dataclass(frozen=True)
class BlockKeys(KeySelection):
    """For each head and block of queries some whole blocks of keys: `at` is (H, blocks, count)."""

    block_ids: Tensor
    block_size: int

    def select_heads(self, heads: slice) -> "KeySelection":
        return BlockKeys(self.block_ids[heads], self.block_size)

    def _flatten_block_ids(self) -> Tensor:
        heads, blocks, _ = self.block_ids.shape
        return (self.block_ids + torch.arange(heads, device=self.block_ids.device)[:, None, None] * blocks).flatten()

    def gather(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, -x.size(1) % self.block_size)).unflatten(1, (-1, self.block_size)).flatten(0, 1)
        return (
            x.index_select(0, self._flatten_block_ids())
            .unflatten(0, self.block_ids.shape)
            .flatten(2, 3)
            .transpose(0, 1)
        )

    def scatter_add(self, total: Tensor, grad: Tensor) -> None:
        heads, blocks, count = self.block_ids.shape
        pieces = grad.transpose(0, 1).unflatten(2, (count, self.block_size)).flatten(0, 2)
        out = grad.new_zeros(heads * blocks, self.block_size, grad.size(-1)).index_add_(
            0, self._flatten_block_ids(), pieces
        )
        total += out.view(heads, blocks * self.block_size, -1)[:, : total.size(1)]


@dataclass
class KeyGroup:
    """Some queries, the keys that they look at, and the mask, (blocks, H|1, block|1, S)."""

    queries: QueryBlocks
    keys: KeySelection
    mask: Tensor

    def select_heads(self, heads: slice) -> "KeyGroup":
        """The same for some heads only."""
        mask = self.mask if self.mask.size(1) == 1 else self.mask[:, heads]
        return KeyGroup(self.queries.select_heads(heads), self.keys.select_heads(heads), mask)


def attend(q: Tensor, k: Tensor, v: Tensor, groups: Sequence[KeyGroup], scale: float) -> Tensor:
    """softmax over all the keys of all parts, (H, n, D)."""
    learned = any(part.mask.requires_grad for part in groups)
    if q.device.type == "cpu" and not learned and q.size(-1) == v.size(-1):
        return _FusedAttention.apply(q, k, v, groups, scale)  # type: ignore[return-value]
    pieces = []
    for part in groups:
        out, total = _attend_reference(
            part.queries.gather(q), part.keys.gather(k), part.keys.gather(v), part.mask, scale
        )
        pieces.append((part.queries.scatter(out), part.queries.scatter(total, -math.inf)))
    return _merge_groups(pieces)


def _attend_reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """What the kernel computes, in words: the weighted mean of the values, and the log of the sum of the exponentials."""
    scores = q @ k.mT * scale + mask
    blind = (scores == -math.inf).all(-1, keepdim=True)
    total = scores.masked_fill(blind, 0.0).logsumexp(-1, keepdim=True)
    weights = (scores - total).exp()
    return weights @ v, total.masked_fill(blind, -math.inf)


def _merge_groups(pieces: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Join parts into one softmax: each part counts with its share of the sum of all exponentials."""
    totals = torch.stack([total for _, total in pieces])  # (parts, H, n, 1)
    blind = (totals == -math.inf).all(0)
    shares = (totals - totals.masked_fill(blind, 0.0).logsumexp(0)).exp()
    return torch.stack([share * out for share, (out, _) in zip(shares, pieces, strict=True)]).sum(0)


class _FusedAttention(torch.autograd.Function):
    """The joined parts through the fused kernel, forward and backward, a few heads at a time.

    Backward, each part is told the *joined* output and sum; the kernel then finds each weight's true share by itself.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, groups: Sequence[KeyGroup], scale: float) -> Tensor:
        heads, length, width = q.shape
        out = q.new_empty(length, heads, width).transpose(0, 1)  # laid out for whoever joins the heads
        total = torch.empty(heads, length, 1, dtype=_accumulation_dtype(q.dtype), device=q.device)
        for some in _chunk_heads(q, groups):
            joined: tuple[Tensor, Tensor] | None = None
            for part in groups:
                part = part.select_heads(some)
                given = (part.queries.gather(q[some]), part.keys.gather(k[some]), part.keys.gather(v[some]), 0.0, False)
                piece, sums = _kernel(*given, attn_mask=part.mask, scale=scale)
                blind = (part.mask == -math.inf).all(-1)  # there the kernel says 0 where it should say -inf
                sums = sums.masked_fill(blind, -math.inf).unsqueeze(-1)
                joined = _merge_next_group(joined, part.queries, piece.to(sums.dtype), sums)
            assert joined is not None
            out[some], total[some] = joined
        ctx.save_for_backward(q, k, v, out, total, *(part.mask for part in groups))
        ctx.parts, ctx.scale = [(part.queries, part.keys) for part in groups], scale
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        q, k, v, out, total, *masks = ctx.saved_tensors
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        parts = [KeyGroup(layout, keys, mask) for (layout, keys), mask in zip(ctx.parts, masks, strict=True)]
        total = total.masked_fill(total == -math.inf, 0.0)
        grads = [torch.zeros_like(x) for x in (q, k, v)]
        for some in _chunk_heads(q, parts):
            for part in parts:
                part = part.select_heads(some)
                take, gather = part.queries.gather, part.keys.gather
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
                grads[0][some] += part.queries.scatter(for_q)
                part.keys.scatter_add(grads[1][some], for_k)
                part.keys.scatter_add(grads[2][some], for_v)
        return *grads, None, None


def _accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision in which the kernel sums: half precision is summed in single."""
    return dtype if dtype == torch.float64 else torch.float32


def _chunk_heads(q: Tensor, groups: Sequence[KeyGroup]) -> list[slice]:
    """So many heads at a time that what is gathered stays small: larger pieces are given back to the system and fetched
    anew at every use, which costs more than the attention itself."""
    heads, _, width = q.shape
    bytes_of = [part.mask.size(0) * part.mask.size(-1) * width * q.element_size() for part in groups]
    step = max(1, min(heads, MAX_GATHERED_BYTES // max(1, *bytes_of)))
    return [slice(start, min(heads, start + step)) for start in range(0, heads, step)]


def _merge_next_group(
    merged: tuple[Tensor, Tensor] | None, queries: QueryBlocks, out: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Join one more part to those before it, as `_join` does, without keeping them all."""
    if merged is None:
        return queries.scatter(out), queries.scatter(total, -math.inf)
    whole, sums = merged
    if queries.order is not None and queries.slot is None:  # a few rows only
        few = _merge_next_group(
            (take_rows(whole, queries.order), take_rows(sums, queries.order)),
            QueryBlocks(len(queries.order), queries.block_size),
            out,
            total,
        )
        return whole.index_copy(1, queries.order, few[0]), sums.index_copy(1, queries.order, few[1])
    out, total = queries.scatter(out), queries.scatter(total, -math.inf)
    both = torch.logaddexp(sums, total)
    blind = both == -math.inf
    before, now = ((x - both).masked_fill(blind, -math.inf).exp() for x in (sums, total))
    return torch.addcmul(whole * before, out, now), both


def take_rows(x: Tensor, order: Tensor) -> Tensor:
    """Rows of x (H, n, D) in the given order, (rows,) or for each head (H, rows)."""
    if order.dim() == 1:
        return x.index_select(1, order)
    heads = torch.arange(x.size(0), device=x.device)[:, None]
    flat = x.flatten(0, 1).index_select(0, (order + heads * x.size(1)).flatten())  # far faster than gather
    return flat.unflatten(0, order.shape)


def block_positions(length: int, block_size: int, left: int, right: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The row numbers behind `Layout` and `Band`: (blocks, 1, block, 1) and (blocks, 1, 1, span); may lie outside."""
    start = torch.arange(0, length, block_size, device=device)[:, None]
    q = start + torch.arange(block_size, device=device)
    k = start + torch.arange(-left, block_size + right, device=device)
    return q[:, None, :, None], k[:, None, None, :]
