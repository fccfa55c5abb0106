"""Squeeze-and-excitation: attention over the channels of a feature map.

Hu et al. 2018 (arXiv 1709.01507): squeeze each channel to its mean, compute channel weights with a small network, multiply.
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
        hidden_width = max(1, channels // reduction)
        self.squeeze: nn.Linear = nn.Linear(channels, hidden_width)
        self.excite: nn.Linear = nn.Linear(hidden_width, channels)

    def weights(self, x: Tensor) -> Tensor:
        """The weight of each channel, (B, C)."""
        return torch.sigmoid(self.excite(torch.relu(self.squeeze(x.flatten(2).mean(-1)))))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.weights(x)
        if self.watcher is not None:
            self.watcher(lambda rows: weights, weights.shape)
        return x * weights.view(*weights.shape, *[1] * (x.dim() - 2))
