"""Squeeze and excitation: attention over the channels of a picture, made from the picture itself.

Hu et al. 2018 (arXiv 1709.01507): squeeze each channel to its mean, let a small network weigh the channels, multiply.
"""

import torch
from torch import Tensor, nn

from saccade.attention.mechanism import Watcher


class SqueezeExcite(nn.Module):
    """x (B, C, ...) times a weight between 0 and 1 for each channel: sigmoid(W₂ relu(W₁ mean(x)))."""

    watcher: Watcher | None = None
    axes = ("batch", "channel")

    def __init__(self, channels: int, reduction: int = 16):
        super().__init__()
        inner = max(1, channels // reduction)
        self.squeeze = nn.Linear(channels, inner)
        self.excite = nn.Linear(inner, channels)

    def weights(self, x: Tensor) -> Tensor:
        """How much of each channel passes, (B, C)."""
        return torch.sigmoid(self.excite(torch.relu(self.squeeze(x.flatten(2).mean(-1)))))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.weights(x)
        if self.watcher is not None:
            self.watcher(lambda rows: weights, weights.shape)
        return x * weights.view(*weights.shape, *[1] * (x.dim() - 2))
