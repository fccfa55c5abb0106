"""Blockwise attention: the forward and backward pass of sparse attention, without a Q x K tensor in either direction.

A sparse mechanism splits its work into `KeyGroup`s: queries in blocks, some keys for each block, and a mask. Each group runs
through the fused kernel, which also returns the log-sum-exp of its scores; with it, the groups are merged into exactly the
softmax over the keys of all groups. No pair may be in two groups. The backward pass gathers the keys of a group again instead
of storing them.

Everything here is for one row of a batch: q, k, v are (H, n, D).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_GATHERED_BYTES = 2**24  # most bytes of keys that a group gathers at a time
_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_kernel_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class QueryBlocks:
    """The queries of a group, in blocks: all of them, or those in `order`, (rows,) or (H, rows).

    If the order contains empty slots, `slot` is the index of each query in it, (H, n).
    """

    length: int
    block_size: int
    order: Tensor | None = None
    slot: Tensor | None = None

    def select_heads(self, heads: slice) -> "QueryBlocks":
        """The same blocks for some of the heads."""
        order, slot = (x if x is None or x.dim() == 1 else x[heads] for x in (self.order, self.slot))
        return QueryBlocks(self.length, self.block_size, order, slot)

    def gather(self, x: Tensor) -> Tensor:
        """(H, n, D) to (blocks, H, block, D)."""
        x = x if self.order is None else take_rows(x, self.order)
        x = F.pad(x, (0, 0, 0, -x.size(1) % self.block_size))
        return x.unflatten(1, (-1, self.block_size)).transpose(0, 1)

    def scatter(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """(blocks, H, block, D) back to (H, n, D), with `fill` for queries outside the group."""
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
    """The keys of each block of queries: `gather` collects them, `scatter_add` is its backward pass."""

    def select_heads(self, heads: slice) -> "KeySelection":
        """The same selection for some of the heads."""
        return self

    def gather(self, x: Tensor) -> Tensor:
        """(H, n, D) to (blocks, H, S, D)."""
        raise NotImplementedError

    def scatter_add(self, total: Tensor, grad: Tensor) -> None:
        """Add gradients (blocks, H, S, D) to those of all keys, (H, n, D)."""
        raise NotImplementedError


@dataclass(frozen=True)
class BandKeys(KeySelection):
    """The neighbourhood of each block of queries, in the order of `queries` if it has one."""

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
        for step in range(steps):  # sum where neighbourhoods overlap
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
    """Whole blocks of keys for each head and block of queries: `block_ids` is (H, blocks, count)."""

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
    """Some queries, the keys that they attend to, and the additive mask, (blocks, H|1, block|1, S)."""

    queries: QueryBlocks
    keys: KeySelection
    mask: Tensor

    def select_heads(self, heads: slice) -> "KeyGroup":
        """The same group for some of the heads."""
        mask = self.mask if self.mask.size(1) == 1 else self.mask[:, heads]
        return KeyGroup(self.queries.select_heads(heads), self.keys.select_heads(heads), mask)


def attend(q: Tensor, k: Tensor, v: Tensor, groups: Sequence[KeyGroup], scale: float) -> Tensor:
    """Attention with one softmax over the keys of all groups, (H, n, D)."""
    mask_needs_grad = any(group.mask.requires_grad for group in groups)
    if q.device.type == "cpu" and not mask_needs_grad and q.size(-1) == v.size(-1):
        return _FusedAttention.apply(q, k, v, groups, scale)  # type: ignore[return-value]
    results = []
    for group in groups:
        queries, keys = group.queries, group.keys
        out, lse = _attend_reference(queries.gather(q), keys.gather(k), keys.gather(v), group.mask, scale)
        results.append((queries.scatter(out), queries.scatter(lse, -math.inf)))
    return _merge_groups(results)


def _attend_reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Reference implementation of the kernel: the attention output, and the log-sum-exp of the scores."""
    scores = q @ k.mT * scale + mask
    blind = (scores == -math.inf).all(-1, keepdim=True)
    lse = scores.masked_fill(blind, 0.0).logsumexp(-1, keepdim=True)
    weights = (scores - lse).exp()
    return weights @ v, lse.masked_fill(blind, -math.inf)


def _merge_groups(results: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Merge groups into one softmax: each group is weighted by its part of the sum of exponentials."""
    lse = torch.stack([lse for _, lse in results])  # (groups, H, n, 1)
    blind = (lse == -math.inf).all(0)
    weights = (lse - lse.masked_fill(blind, 0.0).logsumexp(0)).exp()
    return torch.stack([weight * out for weight, (out, _) in zip(weights, results, strict=True)]).sum(0)


class _FusedAttention(torch.autograd.Function):
    """The merged groups through the fused kernel, forward and backward, a few heads at a time.

    In backward, the kernel gets the output and log-sum-exp of the *merged* softmax, so it recomputes the final weights.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, groups: Sequence[KeyGroup], scale: float) -> Tensor:
        heads, length, width = q.shape
        out = q.new_empty(length, heads, width).transpose(0, 1)  # memory layout for concatenating the heads
        lse = torch.empty(heads, length, 1, dtype=_accumulation_dtype(q.dtype), device=q.device)
        for heads_chunk in _chunk_heads(q, groups):
            merged: tuple[Tensor, Tensor] | None = None
            for group in groups:
                group = group.select_heads(heads_chunk)
                queries, keys = group.queries, group.keys
                args = (queries.gather(q[heads_chunk]), keys.gather(k[heads_chunk]), keys.gather(v[heads_chunk]))
                group_out, group_lse = _kernel(*args, 0.0, False, attn_mask=group.mask, scale=scale)
                blind = (group.mask == -math.inf).all(-1)  # the kernel returns 0 here instead of -inf
                group_lse = group_lse.masked_fill(blind, -math.inf).unsqueeze(-1)
                merged = _merge_next_group(merged, queries, group_out.to(group_lse.dtype), group_lse)
            assert merged is not None
            out[heads_chunk], lse[heads_chunk] = merged
        ctx.save_for_backward(q, k, v, out, lse, *(group.mask for group in groups))
        ctx.groups, ctx.scale = [(group.queries, group.keys) for group in groups], scale
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        q, k, v, out, lse, *masks = ctx.saved_tensors
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        groups = [KeyGroup(queries, keys, mask) for (queries, keys), mask in zip(ctx.groups, masks, strict=True)]
        lse = lse.masked_fill(lse == -math.inf, 0.0)
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for heads_chunk in _chunk_heads(q, groups):
            for group in groups:
                group = group.select_heads(heads_chunk)
                gather_q, gather_k = group.queries.gather, group.keys.gather
                args = (
                    gather_q(grad[heads_chunk]),
                    gather_q(q[heads_chunk]),
                    gather_k(k[heads_chunk]),
                    gather_k(v[heads_chunk]),
                    gather_q(out[heads_chunk]),
                    gather_q(lse[heads_chunk]).squeeze(-1).transpose(1, 2).contiguous().transpose(1, 2),
                )
                group_dq, group_dk, group_dv = _kernel_backward(
                    *args, 0.0, False, attn_mask=group.mask, scale=ctx.scale
                )
                dq[heads_chunk] += group.queries.scatter(group_dq)
                group.keys.scatter_add(dk[heads_chunk], group_dk)
                group.keys.scatter_add(dv[heads_chunk], group_dv)
        return dq, dk, dv, None, None


def _accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which the kernel accumulates: float32, or float64 for float64 inputs."""
    return dtype if dtype == torch.float64 else torch.float32


def _chunk_heads(q: Tensor, groups: Sequence[KeyGroup]) -> list[slice]:
    """Chunks of heads whose gathered keys stay below MAX_GATHERED_BYTES.

    The allocator returns larger buffers to the system and requests them again at every use, which costs more than attention.
    """
    heads, _, width = q.shape
    gathered_bytes = [group.mask.size(0) * group.mask.size(-1) * width * q.element_size() for group in groups]
    step = max(1, min(heads, MAX_GATHERED_BYTES // max(1, *gathered_bytes)))
    return [slice(start, min(heads, start + step)) for start in range(0, heads, step)]


def _merge_next_group(
    merged: tuple[Tensor, Tensor] | None, queries: QueryBlocks, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor]:
    """Merge one more group into (output, log-sum-exp) of those before it, as `_merge_groups` does for a list."""
    if merged is None:
        return queries.scatter(out), queries.scatter(lse, -math.inf)
    merged_out, merged_lse = merged
    if queries.order is not None and queries.slot is None:  # only some rows change
        rows_out, rows_lse = _merge_next_group(
            (take_rows(merged_out, queries.order), take_rows(merged_lse, queries.order)),
            QueryBlocks(len(queries.order), queries.block_size),
            out,
            lse,
        )
        return merged_out.index_copy(1, queries.order, rows_out), merged_lse.index_copy(1, queries.order, rows_lse)
    out, lse = queries.scatter(out), queries.scatter(lse, -math.inf)
    total_lse = torch.logaddexp(merged_lse, lse)
    blind = total_lse == -math.inf
    old_weight, new_weight = ((x - total_lse).masked_fill(blind, -math.inf).exp() for x in (merged_lse, lse))
    return torch.addcmul(merged_out * old_weight, out, new_weight), total_lse


def take_rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows of x (H, n, D) in the given order, which is (rows,), or (H, rows) to differ between heads."""
    if order.dim() == 1:
        return x.index_select(1, order)
    heads = torch.arange(x.size(0), device=x.device)[:, None]
    flat = x.flatten(0, 1).index_select(0, (order + heads * x.size(1)).flatten())  # much faster than gather
    return flat.unflatten(0, order.shape)


def block_positions(length: int, block_size: int, left: int, right: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions of `QueryBlocks` and `BandKeys`: (blocks, 1, block, 1) and (blocks, 1, 1, span); may be out of range."""
    start = torch.arange(0, length, block_size, device=device)[:, None]
    q = start + torch.arange(block_size, device=device)
    k = start + torch.arange(-left, block_size + right, device=device)
    return q[:, None, :, None], k[:, None, None, :]
