"""Distance attention: the score is minus half the squared Euclidean distance, -½‖q-k‖².

Distances came first (kernel regression); dot products replaced them because they are cheaper. The two are closely related:
-½‖q-k‖² = q·k - ½‖k‖² - ½‖q‖². Softmax cancels the last term, so this is dot-product attention with a penalty on the norm
of the keys.
"""

import torch
from torch import Tensor

from saccade.attention.mechanism import Mechanism, repeat_kv_heads
from saccade.attention.mechanisms.dot import ScaledDot
from saccade.attention.normalizer import Normalizer, Softmax
from saccade.attention.sdpa import can_use_sdpa, sdpa
from saccade.attention.sight import Sight


class Distance(ScaledDot):
    """softmax(-½‖q-k‖²): the nearest keys get the largest weights."""

    def __init__(self, *, normalizer: Normalizer | None = None, dropout: float = 0.0):
        super().__init__(scale=1.0, normalizer=normalizer, dropout=dropout)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return -0.5 * squared_distance(q, k)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        if type(self.normalizer) is not Softmax or not can_use_sdpa(sight):
            return Mechanism.attend(self, q, k, v, sight)
        # distances do not depend on the origin, but rounding errors do: move it to the first real key
        origin = k[:, :, :1] if sight.keep is None else _take_first_key(k, sight.keep)
        q, k = q - repeat_kv_heads(origin, q), k - origin
        # an extra coordinate makes the penalty on the norm of the keys part of the dot product
        norm_penalty = -0.5 * k.square().sum(-1, keepdim=True)
        q = torch.cat([q, torch.ones_like(q[..., :1])], dim=-1)
        return sdpa(q, torch.cat([k, norm_penalty], dim=-1), v, sight, scale=1.0)


def _take_first_key(k: Tensor, keep: Tensor) -> Tensor:
    """The first real key of each row, (B, H, 1, D); zero for a row of padding only."""
    first = k[torch.arange(k.size(0), device=k.device), :, keep.int().argmax(1)]
    return torch.where(keep.any(1)[:, None, None], first, 0.0).unsqueeze(2)


def squared_distance(q: Tensor, k: Tensor) -> Tensor:
    """‖q-k‖² for every pair, (..., Q, K), without the cancellation of the expanded form."""
    exact = torch.promote_types(q.dtype, torch.float32)  # cdist does not support half precision
    return torch.cdist(q.to(exact), k.to(exact), compute_mode="donot_use_mm_for_euclid_dist").square().to(q.dtype)
