"""LSH attention (locality-sensitive hashing, Reformer): softmax(q·k̂/√d) over the keys in the same hash bucket, k̂ = k/‖k‖.

Kitaev et al. 2020 (arXiv 2001.04451): vectors of similar direction mostly fall into the same bucket of a random rotation, so
one bucket holds most of the softmax. A query attends to the keys of its bucket whose rank in that bucket differs from its own
by less than `max_bucket_distance`. Reformer cuts the sorted keys into chunks instead, so a later token can move the chunk
boundaries of earlier ones; ranks are counted from the start of the sequence, so here the future cannot affect the past.
Several rounds of hashing are merged into one softmax.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention.mechanism import repeat_kv_heads
from saccade.attention.normalizer import Normalizer
from saccade.attention.pattern import FULL, Pattern
from saccade.attention.sight import Sight
from saccade.attention.sparse import blockwise
from saccade.attention.sparse.base import SequenceView, Sparse


class LSHAttention(Sparse):
    """LSH attention: the query and key of a token are the same vector, hashed `hash_rounds` times into `hash_buckets`."""

    hash_buckets: int
    hash_rounds: int
    max_bucket_distance: int

    ties_query_key = True
    rotations: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        hash_buckets: int = 16,
        hash_rounds: int = 2,
        max_bucket_distance: int = 32,
        seed: int = 0,
        normalizer: Normalizer | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(normalizer=normalizer, dropout=dropout)
        if hash_buckets < 2 or hash_buckets % 2:
            raise ValueError(f"hash_buckets must be even (each direction and its opposite); got {hash_buckets}.")
        self.hash_buckets, self.hash_rounds, self.max_bucket_distance = hash_buckets, hash_rounds, max_bucket_distance
        generator = torch.Generator().manual_seed(seed)
        rotations = torch.randn(hash_rounds, heads, width, hash_buckets // 2, generator=generator)
        self.register_buffer("rotations", rotations)

    def transform_qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, F.normalize(k, dim=-1)

    def hash_keys(self, k: Tensor) -> Tensor:
        """The hash bucket of every key in every round, (..., rounds, H, K): the nearest direction of the random rotation."""
        rotated = k.detach().unsqueeze(-4) @ self.rotations.to(k.dtype)
        return torch.cat([rotated, -rotated], dim=-1).argmax(-1)

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        """Restrict to close ranks of the same bucket; a query has the bucket and rank of the key at its position."""
        bucket = self.hash_keys(self.transform_qk(q, repeat_kv_heads(k, q))[1])  # (B, rounds, H, K)
        if sight.keep is not None:
            bucket = bucket.masked_fill(~sight.keep[:, None, None, :], self.hash_buckets)
        rank = torch.zeros_like(bucket)
        for index in range(self.hash_buckets):
            in_bucket = bucket == index
            rank = torch.where(in_bucket, in_bucket.cumsum(-1) - 1, rank)
        q_pos, k_pos = sight.broadcast_positions(q, k)
        own = (q_pos == k_pos) if sight.keep is None else (q_pos == k_pos) & sight.keep[:, None, None, :]
        at = own.int().argmax(-1).unsqueeze(1).expand(*bucket.shape[:3], q.size(2))  # (B, rounds, H, Q)
        same = bucket.gather(-1, at).unsqueeze(-1) == bucket.unsqueeze(-2)
        close = (rank.gather(-1, at).unsqueeze(-1) - rank.unsqueeze(-2)).abs() < self.max_bucket_distance
        visible = sight.allows(q, k) & (same & close).any(1)
        return replace(
            sight, pattern=FULL, keep=None, bias=_MaskAsBias(visible, sight.bias, q_pos, k_pos, q.dtype), cache={}
        )

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        n, device = row.length, row.q.device
        block = min(n, max(16, self.max_bucket_distance))
        left, right = row.clip_window(self.max_bucket_distance - 1, self.max_bucket_distance - 1)
        every = torch.arange(n, device=device)
        bucket = self.hash_keys(row.k).masked_fill(every >= row.real_length, self.hash_buckets)  # (rounds, H, n)
        slot, token = self._assign_slots(bucket, block)
        groups = []
        for round_index in range(self.hash_rounds):
            is_filled = token[round_index] >= 0
            order = token[round_index].clamp(min=0)

            def split_blocks(x: Tensor, is_filled: Tensor = is_filled, order: Tensor = order) -> tuple[Tensor, Tensor]:
                """The values of x for queries and keys of each block: (H, n) to (blocks, H, block, 1), (blocks, H, 1, span)."""
                x = x.gather(-1, order).masked_fill(~is_filled, -1)
                x = F.pad(x, (left, right), value=-1).unfold(1, left + block + right, block).transpose(0, 1)
                return x[:, :, left : left + block, None], x[:, :, None, :]

            q, k = split_blocks(every.expand_as(slot[round_index]))
            visible = (q >= 0) & (k >= 0)
            for earlier in range(round_index + 1):
                (a, b), (c, d) = split_blocks(bucket[earlier]), split_blocks(slot[earlier])
                together = (a == b) & ((c - d).abs() < self.max_bucket_distance)
                visible = visible & (
                    together if earlier == round_index else ~together
                )  # count each pair in its first round only
            blocks = blockwise.QueryBlocks(n, block, order, slot[round_index])
            groups.append(
                blockwise.KeyGroup(blocks, blockwise.BandKeys(blocks, left, right), row.make_mask(q, k, visible))
            )
        return groups

    def _assign_slots(self, bucket: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
        """Sort the tokens by bucket; each bucket starts at a new block, so that other buckets cannot shift its tokens.

        Returns the slot of each token, (rounds, H, n), and the token of each slot, (rounds, H, slots), -1 for an empty slot.
        """
        n, buckets = bucket.size(-1), self.hash_buckets + 1  # the last bucket holds the padding
        every = torch.arange(n, device=bucket.device)
        count = bucket.new_zeros(*bucket.shape[:-1], buckets).scatter_add(-1, bucket, torch.ones_like(bucket))
        padded = (count + block_size - 1) // block_size * block_size
        start, padded_start = count.cumsum(-1) - count, padded.cumsum(-1) - padded
        sorted_index = (bucket * n + every).argsort(-1).argsort(-1)  # by bucket, then by position
        slot = sorted_index - start.gather(-1, bucket) + padded_start.gather(-1, bucket)
        slots = (-(-n // block_size) + buckets) * block_size
        token = bucket.new_full((*bucket.shape[:-1], slots), -1).scatter(-1, slot, every.expand_as(slot))
        return slot, token


class _MaskAsBias:
    """A mask that depends on the content of the keys, in the form of a bias: -inf where a key is hidden."""

    def __init__(self, visible: Tensor, bias, q_pos: Tensor, k_pos: Tensor, dtype: torch.dtype):
        values = bias(q_pos, k_pos) if bias is not None else torch.zeros((), dtype=dtype, device=visible.device)
        self.mask = values.to(dtype).expand(visible.shape).masked_fill(~visible, -math.inf)

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.mask


def lsh_recall(mechanism: LSHAttention, q: Tensor, k: Tensor, *, top: int = 8, pattern: Pattern = FULL) -> float:
    """Recall of LSH attention: the fraction of the `top` keys of full attention that share a bucket with the query."""
    full = super(Sparse, mechanism).weights(q, k, Sight(pattern))
    best = full.topk(min(top, k.size(2)), dim=-1)
    visible = mechanism.weights(q, k, Sight(pattern)).gather(-1, best.indices) > 0
    relevant = best.values > 0
    return (visible & relevant).sum().item() / max(1, relevant.sum().item())
