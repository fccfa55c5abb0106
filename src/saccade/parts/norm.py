"""Normalization layers that PyTorch lacks, and how norms are applied under autocast."""

import torch.nn.functional as F
from torch import Tensor, nn


class OffsetRMSNorm(nn.RMSNorm):
    """RMSNorm with scale 1 + weight, so that a weight of zero is the identity and weight decay pulls the scale towards one.

    Gemma stores its norms this way (arXiv 2403.08295).

    >>> import torch
    >>> OffsetRMSNorm(2, eps=0.0)(torch.tensor([3.0, 3.0])).tolist()
    [1.0, 1.0]
    """

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, 1 + self.weight, self.eps)


def normalize(norm: nn.Module, x: Tensor) -> Tensor:
    """Apply a norm in the dtype of its weights: under autocast (mixed precision), matrix products are bfloat16, norms are not."""
    weight = next(norm.parameters(), x)
    return norm(x) if weight.dtype == x.dtype else norm(x.to(weight.dtype)).to(x.dtype)
