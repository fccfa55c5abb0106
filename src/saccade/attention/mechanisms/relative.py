"""Relative position representations (Shaw): the score is q·(k + a_r)/√d, with a learned vector a_r per clipped distance r.

Shaw et al. 2018 (arXiv 1803.02155). Their second table, which is added to the values, made no difference in their ablation;
it is left out, so that the output remains a weighted mean of the values.
"""

import math

import torch
from torch import Tensor, nn

from saccade.attention.mechanism import Mechanism, repeat_kv_heads
from saccade.attention.mechanisms.dot import ScaledDot
from saccade.attention.normalizer import Normalizer, Softmax
from saccade.attention.sdpa import can_use_sdpa, sdpa
from saccade.attention.sight import Sight


class Relative(ScaledDot):
    """softmax(q·(k + a_r)/√d): the score depends on the content of a token and on its distance."""

    def __init__(
        self, width: int, *, max_relative_distance: int = 16, normalizer: Normalizer | None = None, dropout: float = 0.0
    ):
        super().__init__(normalizer=normalizer, dropout=dropout)
        self.max_relative_distance = max_relative_distance
        self.offsets: nn.Parameter = nn.Parameter(torch.randn(2 * max_relative_distance + 1, width) / math.sqrt(width))

    def compute_bias(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        """q·a_r/√d for every pair: computed once per query and distance, then gathered for the pairs."""
        by_distance = q @ self.offsets.T / math.sqrt(q.size(-1))  # (B, H, Q, 2·distance + 1)
        q_pos, k_pos = sight.broadcast_positions(q, k)
        offset = (k_pos - q_pos).clamp(
            -self.max_relative_distance, self.max_relative_distance
        ) + self.max_relative_distance
        return by_distance.gather(-1, offset.expand(*q.shape[:3], k.size(2)))

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        return self.normalize(self.scores(q, repeat_kv_heads(k, q)) + self.compute_bias(q, k, sight), sight)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        needs_grad = torch.is_grad_enabled() and (q.requires_grad or self.offsets.requires_grad)
        if needs_grad or type(self.normalizer) is not Softmax or not can_use_sdpa(sight):
            return Mechanism.attend(self, q, k, v, sight)
        return sdpa(q, k, v, sight, bias=self.compute_bias(q, k, sight))
