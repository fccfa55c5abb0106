"""Bilinear attention (Luong): the score is qᵀWk with a learned matrix W, so queries and keys may differ in width.

Luong et al. 2015 (arXiv 1508.04025), there called *general*.
"""

from torch import Tensor, nn

from saccade.attention.mechanisms.dot import ScaledDot
from saccade.attention.normalizer import Normalizer


class Bilinear(ScaledDot):
    """softmax(qᵀWk), computed as a dot product after projecting the queries to the width of the keys."""

    def __init__(
        self, width: int, key_width: int | None = None, *, normalizer: Normalizer | None = None, dropout: float = 0.0
    ):
        super().__init__(scale=1.0, normalizer=normalizer, dropout=dropout)
        self.between: nn.Linear = nn.Linear(width, key_width or width, bias=False)

    def transform_qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.between(q), k
