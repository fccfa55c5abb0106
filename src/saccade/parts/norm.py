"""Norms that PyTorch does not have, and norms in the middle of a branch."""

import torch.nn.functional as F
from torch import Tensor, nn


class OffsetRMSNorm(nn.RMSNorm):
    """RMS norm that multiplies by 1 + weight, so that a weight of zero changes nothing and weight decay pulls towards one.

    As Gemma stores it (arXiv 2403.08295).

    >>> import torch
    >>> OffsetRMSNorm(2, eps=0.0)(torch.tensor([3.0, 3.0])).tolist()
    [1.0, 1.0]
    """

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, 1 + self.weight, self.eps)


def normalize(norm: nn.Module, x: Tensor) -> Tensor:
    """A norm of what a product gave, in the precision of its weights: under autocast products are short, and norms are not."""
    weight = next(norm.parameters(), x)
    return norm(x) if weight.dtype == x.dtype else norm(x.to(weight.dtype)).to(x.dtype)
