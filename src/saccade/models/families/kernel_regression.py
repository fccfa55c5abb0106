"""Kernel regression: predicts a weighted mean of the stored training data (Nadaraya 1964, Watson 1964).

The earliest form of attention: a query attends to all stored points, more to nearer ones. Its only parameter, the bandwidth of
the kernel, is trained by leave-one-out prediction of the stored points.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.attention import Kernel
from saccade.attention.nadaraya_watson import AttentionPool, LeaveOneOut, silverman_bandwidth
from saccade.data import Batch, Features
from saccade.models.capabilities import Capabilities, Modality
from saccade.models.family import Family


@dataclass(frozen=True)
class Config:
    points: int = 1  # Number of stored training points.
    features: int = 1  # Number of input features per point.
    outputs: int = 1  # Number of outputs per point: target values or classes.
    kernel: str = "gaussian"  # Kernel function: gaussian, boxcar, constant or epanechnikov.


class KernelRegression(nn.Module):
    """Stores points and their targets; features are standardized, so that one bandwidth suits them all."""

    keys: Tensor
    values: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.width: int = config.outputs
        self.kernel: Kernel = Kernel(config.kernel, 1.0)
        self.register_buffer("keys", torch.zeros(config.points, config.features))
        self.register_buffer("values", torch.zeros(config.points, config.outputs))
        self.register_buffer("centre", torch.zeros(config.features))
        self.register_buffer("spread", torch.ones(config.features))

    @torch.no_grad()
    def fit(self, points: Tensor, values: Tensor) -> None:
        """Store points (n, D) with their targets (n, E), and initialize the bandwidth by Silverman's rule of thumb."""
        self.centre.copy_(points.mean(0))
        self.spread.copy_(points.std(0).clamp(min=1e-12) if len(points) > 1 else torch.ones_like(self.spread))
        self.keys.copy_((points - self.centre) / self.spread)
        self.values.copy_(values)
        self.kernel.log_width.fill_(math.log(max(1e-6, silverman_bandwidth(self.keys))))

    def forward(self, batch: Batch) -> Tensor:
        """The prediction for each point, (B, E)."""
        assert isinstance(batch.source, Features), "kernel regression takes numeric features"
        queries = (batch.source.values - self.centre) / self.spread
        return self._regress(AttentionPool(self.kernel), queries)

    def leave_one_out(self) -> Tensor:
        """The prediction for each stored point from all others, (n, E); its loss trains the bandwidth."""
        return self._regress(AttentionPool(self.kernel, pattern=LeaveOneOut()), self.keys)

    def _regress(self, pool: AttentionPool, queries: Tensor) -> Tensor:
        predictions, weights = pool(queries, self.keys, self.values)
        is_isolated = weights.sum(-1, keepdim=True) == 0  # no point inside the kernel: predict the mean
        return torch.where(is_isolated, self.values.mean(0, keepdim=True), predictions)


FAMILY = Family(
    name="kernel_regression",
    description="kernel regression (Nadaraya-Watson): stores the data, learns one bandwidth",
    config_class=Config,
    build=KernelRegression,
    capabilities=lambda config: Capabilities(Modality.FEATURES, layers=(), embeddings=()),
)
