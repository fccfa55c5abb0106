"""Kernel pooling: keep the data, and answer with a weighted mean of it (Nadaraya 1964, Watson 1964).

The first attention there was: a query looks at all remembered points, the nearer the more. Its one parameter, the width of
the kernel, is learnt by asking for each remembered point from all the others.
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
    """Remembered points and their answers; features are brought to one spread first, so that one width suits all."""

    keys: Tensor
    values: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.width = config.outputs
        self.kernel = Kernel(config.kernel, 1.0)
        self.register_buffer("keys", torch.zeros(config.points, config.features))
        self.register_buffer("values", torch.zeros(config.points, config.outputs))
        self.register_buffer("centre", torch.zeros(config.features))
        self.register_buffer("spread", torch.ones(config.features))

    @torch.no_grad()
    def fit(self, points: Tensor, values: Tensor) -> None:
        """Keep points (n, D) with their answers (n, E), and begin with the width of the rule of thumb."""
        self.centre.copy_(points.mean(0))
        self.spread.copy_(points.std(0).clamp(min=1e-12) if len(points) > 1 else torch.ones_like(self.spread))
        self.keys.copy_((points - self.centre) / self.spread)
        self.values.copy_(values)
        self.kernel.log_width.fill_(math.log(max(1e-6, silverman_bandwidth(self.keys))))

    def forward(self, batch: Batch) -> Tensor:
        """An answer for each point, (B, E)."""
        assert isinstance(batch.source, Features), "kernel pooling reads numbers"
        queries = (batch.source.values - self.centre) / self.spread
        return self._regress(AttentionPool(self.kernel), queries)

    def leave_one_out(self) -> Tensor:
        """An answer for each remembered point from all the others, (n, E): what the width is learnt from."""
        return self._regress(AttentionPool(self.kernel, pattern=LeaveOneOut()), self.keys)

    def _regress(self, pool: AttentionPool, queries: Tensor) -> Tensor:
        answers, weights = pool(queries, self.keys, self.values)
        alone = weights.sum(-1, keepdim=True) == 0  # nobody inside the kernel: the best guess is the mean
        return torch.where(alone, self.values.mean(0, keepdim=True), answers)


FAMILY = Family(
    name="kernel_regression",
    description="kernel regression (Nadaraya-Watson): stores the data, learns one bandwidth",
    config_class=Config,
    build=KernelRegression,
    capabilities=lambda config: Capabilities(Modality.FEATURES, layers=(), embeddings=()),
)
