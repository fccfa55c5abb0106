"""Additive attention (Bahdanau): a small network scores each query-key pair, u·tanh(Aq + Bk).

Bahdanau et al. 2014 (arXiv 1409.0473); also known as the MLP score. The vector u projects the hidden layer to one number.
"""

from torch import Tensor, nn

from saccade.attention.mechanism import Mechanism
from saccade.attention.normalizer import Normalizer


class Additive(Mechanism):
    """softmax(u·tanh(Aq + Bk)), the attention of the first neural machine translation model that had one."""

    def __init__(
        self,
        width: int,
        key_width: int | None = None,
        *,
        hidden_width: int | None = None,
        normalizer: Normalizer | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(normalizer=normalizer, dropout=dropout)
        hidden_width = hidden_width or width
        self.query: nn.Linear = nn.Linear(width, hidden_width, bias=False)
        self.key: nn.Module = nn.Linear(key_width or width, hidden_width)
        self.outer: nn.Linear = nn.Linear(hidden_width, 1, bias=False)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        pairs = self.query(q).unsqueeze(3) + self.key(k).unsqueeze(2)  # (B, H, Q, K, hidden)
        return self.outer(pairs.tanh()).squeeze(-1)
