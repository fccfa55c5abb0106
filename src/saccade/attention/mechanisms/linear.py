"""Linear attention: weights φ(q)·φ(k) / Σ φ(q)·φ(k) with the feature map φ(x) = elu(x) + 1 > 0.

Katharopoulos et al. 2020 (arXiv 2006.16236). Because the weight is a dot product of features, Σ φ(k) vᵀ is computed once for
all queries: O(n d²) instead of O(n² d), and causal attention becomes a running sum.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention.mechanism import Mechanism, repeat_kv_heads
from saccade.attention.normalizer import SumNormalizer
from saccade.attention.pattern import CAUSAL, FULL
from saccade.attention.sight import Sight
from saccade.errors import ModelError

CAUSAL_BLOCK_SIZE = 64  # tokens per block of the causal running sum: pairs within a block, sums between blocks


class LinearAttention(Mechanism):
    """Linear attention with an elu + 1 feature map; supports the full and the causal pattern, and padding."""

    supports_packing = False

    def __init__(self, *, dropout: float = 0.0):
        super().__init__(normalizer=SumNormalizer(), dropout=dropout)

    def feature_map(self, x: Tensor) -> Tensor:
        return F.elu(x) + 1

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return self.feature_map(q) @ self.feature_map(k).mT

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        self._check_sight(sight)
        return super().weights(q, k, sight)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        self._check_sight(sight)
        causal = sight.pattern == CAUSAL
        if sight.noise is not None or (causal and not sight.is_full_sequence):
            return super().attend(q, k, v, sight)
        q, k = self.feature_map(q), self.feature_map(repeat_kv_heads(k, q))
        v = F.pad(repeat_kv_heads(v, q), (0, 1), value=1.0)  # the sum of a column of ones is the denominator
        if sight.keep is not None:
            k, v = (torch.where(sight.keep[:, None, :, None], x, 0.0) for x in (k, v))
        out = _causal_sum(q, k, v) if causal else q @ (k.mT @ v)
        total = out[..., -1:]
        return out[..., :-1] / total.masked_fill(total == 0, 1.0)

    def _check_sight(self, sight: Sight) -> None:
        if sight.pattern not in (FULL, CAUSAL):
            raise ModelError(
                f"LinearAttention keeps one running sum over the keys, so it does not support {sight.pattern}; use ScaledDot."
            )
        if sight.bias is not None:
            raise ValueError(
                "LinearAttention never computes the scores of pairs, so it does not support a bias; use ScaledDot."
            )


def _causal_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ (q·k) v over all keys up to the query, computed in blocks."""
    n = q.size(2)
    q, k, v = (F.pad(x, (0, 0, 0, -n % CAUSAL_BLOCK_SIZE)).unflatten(2, (-1, CAUSAL_BLOCK_SIZE)) for x in (q, k, v))
    sums = (k.mT @ v).cumsum(2)  # (B, H, blocks, D, E): the sum up to the end of each block
    before = F.pad(sums[:, :, :-1], (0, 0, 0, 0, 1, 0))
    return (q @ before + (q @ k.mT).tril() @ v).flatten(2, 3)[:, :, :n]
