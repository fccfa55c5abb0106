"""Hashed: softmax(q·k̂/√d) over keys that fall into the same bucket of a hash, k̂ the key at length one.

Reformer's idea (Kitaev et al. 2020, arXiv 2001.04451): vectors that point the same way mostly share the bucket of a random
rotation, so most of the softmax can be had from one bucket. A query sees the keys of its own bucket whose rank in that
bucket is less than `max_bucket_distance` away from its own. Reformer cuts sorted keys into chunks instead, and a later
token moves the borders of earlier ones; ranks are counted from the beginning, so here the future cannot move the past.
Several rounds of hashing are joined into one softmax.
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
    """Locality-sensitive hashing: a token's query and key are one vector, hashed `hash_rounds` times into `hash_buckets`."""

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
            raise ValueError(f"hash_buckets is even (a direction and its opposite); got {hash_buckets}.")
        self.hash_buckets, self.hash_rounds, self.max_bucket_distance = hash_buckets, hash_rounds, max_bucket_distance
        chance = torch.Generator().manual_seed(seed)
        rotations = torch.randn(hash_rounds, heads, width, hash_buckets // 2, generator=chance)
        self.register_buffer("rotations", rotations)

    def transform_qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, F.normalize(k, dim=-1)

    def hash_keys(self, k: Tensor) -> Tensor:
        """The bucket of every key in every round, (..., rounds, H, K): the direction that it is nearest to."""
        turned = k.detach().unsqueeze(-4) @ self.rotations.to(k.dtype)
        return torch.cat([turned, -turned], dim=-1).argmax(-1)

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        """Bucket and rank of each key; a query has those of its own token, found by its position."""
        bucket = self.hash_keys(self.transform_qk(q, repeat_kv_heads(k, q))[1])  # (B, rounds, H, K)
        if sight.keep is not None:
            bucket = bucket.masked_fill(~sight.keep[:, None, None, :], self.hash_buckets)
        rank = torch.zeros_like(bucket)
        for number in range(self.hash_buckets):
            here = bucket == number
            rank = torch.where(here, here.cumsum(-1) - 1, rank)
        q_pos, k_pos = sight.broadcast_positions(q, k)
        own = (q_pos == k_pos) if sight.keep is None else (q_pos == k_pos) & sight.keep[:, None, None, :]
        at = own.int().argmax(-1).unsqueeze(1).expand(*bucket.shape[:3], q.size(2))  # (B, rounds, H, Q)
        same = bucket.gather(-1, at).unsqueeze(-1) == bucket.unsqueeze(-2)
        close = (rank.gather(-1, at).unsqueeze(-1) - rank.unsqueeze(-2)).abs() < self.max_bucket_distance
        seen = sight.allows(q, k) & (same & close).any(1)
        return replace(
            sight, pattern=FULL, keep=None, bias=_MaskAsBias(seen, sight.bias, q_pos, k_pos, q.dtype), cache={}
        )

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        n, device = row.length, row.q.device
        block = min(n, max(16, self.max_bucket_distance))
        left, right = row.clip_window(self.max_bucket_distance - 1, self.max_bucket_distance - 1)
        every = torch.arange(n, device=device)
        bucket = self.hash_keys(row.k).masked_fill(every >= row.real_length, self.hash_buckets)  # (rounds, H, n)
        slot, token = self._assign_slots(bucket, block)
        parts = []
        for turn in range(self.hash_rounds):
            there = token[turn] >= 0
            order = token[turn].clamp(min=0)

            def spread(x: Tensor, there: Tensor = there, order: Tensor = order) -> tuple[Tensor, Tensor]:
                """What queries and keys of each block know: (H, n) to (blocks, H, block, 1) and (blocks, H, 1, span)."""
                x = x.gather(-1, order).masked_fill(~there, -1)
                x = F.pad(x, (left, right), value=-1).unfold(1, left + block + right, block).transpose(0, 1)
                return x[:, :, left : left + block, None], x[:, :, None, :]

            q, k = spread(every.expand_as(slot[turn]))
            seen = (q >= 0) & (k >= 0)
            for earlier in range(turn + 1):
                (a, b), (c, d) = spread(bucket[earlier]), spread(slot[earlier])
                together = (a == b) & ((c - d).abs() < self.max_bucket_distance)
                seen = seen & (together if earlier == turn else ~together)  # each pair counts in one round only
            layout = blockwise.QueryBlocks(n, block, order, slot[turn])
            parts.append(blockwise.KeyGroup(layout, blockwise.BandKeys(layout, left, right), row.make_mask(q, k, seen)))
        return parts

    def _assign_slots(self, bucket: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
        """Lay the tokens out bucket by bucket, each bucket on blocks of its own, so that its neighbours cannot shift it.

        Gives the slot of each token, (rounds, H, n), and the token of each slot, (rounds, H, slots), -1 where it is empty.
        """
        n, kinds = bucket.size(-1), self.hash_buckets + 1  # the last is for padding
        every = torch.arange(n, device=bucket.device)
        count = bucket.new_zeros(*bucket.shape[:-1], kinds).scatter_add(-1, bucket, torch.ones_like(bucket))
        room = (count + block_size - 1) // block_size * block_size
        start, shelf = count.cumsum(-1) - count, room.cumsum(-1) - room
        place = (bucket * n + every).argsort(-1).argsort(-1)  # among all tokens sorted by bucket, then by position
        slot = place - start.gather(-1, bucket) + shelf.gather(-1, bucket)
        slots = (-(-n // block_size) + kinds) * block_size
        token = bucket.new_full((*bucket.shape[:-1], slots), -1).scatter(-1, slot, every.expand_as(slot))
        return slot, token


class _MaskAsBias:
    """A pattern that depends on the content of the keys, in the form of a bias: -inf where a pair is not seen."""

    def __init__(self, visible: Tensor, bias, q_pos: Tensor, k_pos: Tensor, dtype: torch.dtype):
        tilt = bias(q_pos, k_pos) if bias is not None else torch.zeros((), dtype=dtype, device=visible.device)
        self.mask = tilt.to(dtype).expand(visible.shape).masked_fill(~visible, -math.inf)

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.mask


def lsh_recall(mechanism: LSHAttention, q: Tensor, k: Tensor, *, top: int = 8, pattern: Pattern = FULL) -> float:
    """Of the `top` keys that full attention would weigh most, the share that the hash lets a query see."""
    full = super(Sparse, mechanism).weights(q, k, Sight(pattern))
    best = full.topk(min(top, k.size(2)), dim=-1)
    seen = mechanism.weights(q, k, Sight(pattern)).gather(-1, best.indices) > 0
    wanted = best.values > 0
    return (seen & wanted).sum().item() / max(1, wanted.sum().item())
