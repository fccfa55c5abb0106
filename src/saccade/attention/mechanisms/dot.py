"""Dot-product attention, with score q·k, and scaled dot-product attention, with score q·k/√d.

Unscaled: Luong et al. 2015 (arXiv 1508.04025). Scaled: Vaswani et al. 2017 (arXiv 1706.03762). With entries of variance one,
q·k has variance d; dividing by √d keeps softmax out of saturation, where gradients vanish.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from saccade.attention.dropout import attention_with_dropout
from saccade.attention.mechanism import Mechanism, repeat_kv_heads
from saccade.attention.normalizer import Normalizer, Softmax
from saccade.attention.sdpa import can_use_sdpa, sdpa
from saccade.attention.sight import Sight


class ScaledDot(Mechanism):
    """Scaled dot-product attention, softmax(q·k · scale), computed by the fused kernel; the default scale is 1/√d.

    Subclasses override `transform_qk`, which maps q and k to vectors whose dot product is the score.
    """

    def __init__(self, *, scale: float | None = None, normalizer: Normalizer | None = None, dropout: float = 0.0):
        super().__init__(normalizer=normalizer, dropout=dropout)
        self.scale = scale

    def transform_qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = self.transform_qk(q, k)
        return q @ k.mT * (1 / math.sqrt(q.size(-1)) if self.scale is None else self.scale)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        if type(self.normalizer) is not Softmax or not can_use_sdpa(sight):
            if self._can_use_dropout_path(sight):
                q, k = self.transform_qk(q, repeat_kv_heads(k, q))
                return attention_with_dropout(
                    q, k, repeat_kv_heads(v, q), sight, dropout=self.dropout, scale=self.scale
                )
            return super().attend(q, k, v, sight)
        q, k = self.transform_qk(q, k)
        return sdpa(q, k, v, sight, scale=self.scale)

    def _can_use_dropout_path(self, sight: Sight) -> bool:
        """Whether attention dropout is all that rules out the fused kernel; other cases fall back to the definition."""
        is_scaled_dot = type(self).weights is Mechanism.weights and type(self).scores is ScaledDot.scores
        only_dropout = type(self.normalizer) is Softmax and can_use_sdpa(replace(sight, noise=None))
        if not (is_scaled_dot and only_dropout and self.training and self.dropout > 0) or sight.noise is None:
            return False
        return not (torch.compiler.is_compiling() or torch.is_autocast_enabled(sight.noise.device.type))


class Dot(ScaledDot):
    """Dot-product attention, softmax(q·k), without scaling; it saturates when the vectors are wide.

    >>> import torch
    >>> from saccade.attention import FULL, Sight
    >>> q, k = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[0.0, 5.0], [2.0, 0.0]]]])
    >>> Dot().weights(q, k, Sight(FULL, cross=True))  # e^0 and e^2, divided by 1 + e^2
    tensor([[[[0.1192, 0.8808]]]])
    """

    def __init__(self, *, normalizer: Normalizer | None = None, dropout: float = 0.0):
        super().__init__(scale=1.0, normalizer=normalizer, dropout=dropout)
