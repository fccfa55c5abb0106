"""The base class of sparse attention: scaled dot-product attention that never builds a Q x K tensor.

The definition is a masked softmax like any other. The fast path processes the batch row by row, moves the padding of a row
to its end, and lets the mechanism split the work into `blockwise.KeyGroup`s.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from saccade.attention.mechanism import Mechanism, repeat_kv_heads
from saccade.attention.mechanisms.dot import ScaledDot
from saccade.attention.normalizer import Softmax
from saccade.attention.sdpa import is_cpu_autocast, upcast_bfloat16
from saccade.attention.sight import Sight
from saccade.attention.sparse import blockwise


class SequenceView:
    """One row of a batch with its padding moved to the end, so that the index of a token is its position."""

    q: Tensor
    k: Tensor
    v: Tensor
    sight: Sight
    batch_index: int | None

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight, batch_index: int):
        keep = None if sight.keep is None else sight.keep[batch_index]
        self.order: Tensor | None = None if keep is None else keep.long().argsort(descending=True, stable=True)
        # the kernel assumes, unlike the public function, that the last dimension is contiguous
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        self.q, self.k, self.v = (x if self.order is None else x.index_select(1, self.order) for x in (q, k, v))
        self.global_tokens: Tensor | None = (
            None if sight.global_tokens is None else sight.global_tokens[batch_index]
        )  # (G,)
        self.sight, self.batch_index = sight, None if keep is None and self.global_tokens is None else batch_index
        self.length: int = q.size(1)
        # the number of real tokens
        self.real_length: Tensor = torch.tensor(self.length, device=q.device) if keep is None else keep.sum()

    def restore_order(self, x: Tensor) -> Tensor:
        """Undo the reordering: back to the original order of the tokens."""
        return x if self.order is None else x.index_select(1, self.order.argsort())

    def clip_window(self, left: int, right: int) -> tuple[int, int]:
        """The window, clipped to the length of the row and to the reach of the model's attention pattern."""
        back, ahead = self.sight.pattern.reach
        return int(min(left, back, self.length - 1)), int(min(right, ahead, self.length - 1))

    def make_mask(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        """The additive mask of pairs of positions: the mechanism's `visible` pairs, the model's pattern, padding and bias."""
        visible = visible & (k >= 0) & (k < self.real_length) & self.sight.pattern.allows(q, k)
        if self.order is not None:
            visible = visible & (q < self.real_length)  # padding neither attends nor is attended to
        if self.sight.bias is not None:
            return self.sight.bias(q, k).to(self.q.dtype).masked_fill(~visible, -math.inf)
        return torch.zeros(visible.shape, dtype=self.q.dtype, device=visible.device).masked_fill(~visible, -math.inf)

    def get_or_make_mask(self, name: tuple, make: Callable[[], Tensor]) -> Tensor:
        """A mask that is the same in all layers, so it is computed once and cached."""
        key = (name, self.batch_index, self.length, self.q.dtype, torch.is_grad_enabled())
        return self.sight.get_or_make(key, make)


class Sparse(ScaledDot):
    """Scaled dot-product attention over some of the keys.

    A subclass defines which keys (`restrict_sight`) and how to compute them fast (`build_key_groups`).
    """

    supports_packing = False

    def restrict_sight(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        """The sight, restricted to the pairs of this mechanism: its definition."""
        raise NotImplementedError(f"{type(self).__name__} must define `restrict_sight`, which pairs it computes")

    def build_key_groups(self, row: SequenceView) -> list[blockwise.KeyGroup]:
        """The key groups of one row, which contain no pair twice: the fast path."""
        raise NotImplementedError(
            f"{type(self).__name__} must define `build_key_groups`, the groups of queries and keys"
        )

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        self._check_sight(sight)
        weights = super().weights(q, k, self.restrict_sight(q, k, sight))
        return weights if sight.real_queries is None else weights * sight.real_queries[:, None, :, None]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        self._check_sight(sight)
        if is_cpu_autocast(q):
            with torch.autocast("cpu", enabled=False):
                return self.attend(upcast_bfloat16(q), upcast_bfloat16(k), upcast_bfloat16(v), sight).to(q.dtype)
        by_blocks = (
            sight.is_full_sequence
            and sight.pattern.is_pairwise
            and sight.noise is None
            and type(self.normalizer) is Softmax
        )
        if not by_blocks:  # mostly decoding: one query over a KV cache, where a small mask suffices
            return Mechanism.attend(self, q, k, v, sight)
        q, k = self.transform_qk(q, k)
        k, v = repeat_kv_heads(k, q), repeat_kv_heads(v, q)
        scale = 1 / math.sqrt(q.size(-1)) if self.scale is None else self.scale
        rows = [SequenceView(*qkv, sight, i) for i, qkv in enumerate(zip(q, k, v, strict=True))]
        out = [
            row.restore_order(blockwise.attend(row.q, row.k, row.v, self.build_key_groups(row), scale)) for row in rows
        ]
        if len(out) < 2:
            return out[0][None] if out else torch.zeros_like(q)  # a single row needs no copy
        return torch.stack([x.transpose(0, 1) for x in out]).transpose(
            1, 2
        )  # memory layout for concatenating the heads

    def _check_sight(self, sight: Sight) -> None:
        if sight.cross:
            raise ValueError(
                f"{type(self).__name__} attends within one sequence, so it does not support cross-attention; use ScaledDot."
            )
