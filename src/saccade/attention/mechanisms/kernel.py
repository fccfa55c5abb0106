"""Kernel attention (Nadaraya-Watson): weights proportional to a kernel of the distance, K(u) / Σ K(u), u = ‖q-k‖/bandwidth.

Nadaraya 1964, Watson 1964. The only parameter is the bandwidth. The score is the logarithm of the kernel, so that its softmax
is K(u) / Σ K(u) and queries far from all keys do not underflow.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from saccade.attention.mechanism import Mechanism
from saccade.attention.mechanisms.distance import squared_distance


def _epanechnikov(squared_distance: Tensor) -> Tensor:
    inside = squared_distance < 1
    # the inner `where` keeps u = 1 out of the logarithm, whose gradient is infinite there
    return torch.where(inside, torch.log1p(-torch.where(inside, squared_distance, 0.0)), -math.inf)


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {  # the logarithm of each kernel, as a function of u²
    "gaussian": lambda square: -0.5 * square,
    "boxcar": lambda square: torch.where(square <= 1, 0.0, -math.inf).to(square.dtype),
    "constant": torch.zeros_like,
    "epanechnikov": _epanechnikov,
}


class Kernel(Mechanism):
    """Weights proportional to a kernel of the distance; a query without keys inside the kernel gets zero weights."""

    def __init__(self, kernel_name: str = "gaussian", bandwidth: float = 1.0):
        super().__init__()
        if kernel_name not in KERNELS:
            raise ValueError(f"Unknown kernel {kernel_name!r}; known are {', '.join(KERNELS)}.")
        if not bandwidth > 0:
            raise ValueError(f"The bandwidth of a kernel must be positive; got {bandwidth}.")
        self.kernel_name = kernel_name
        self.log_width: nn.Parameter = nn.Parameter(
            torch.tensor(math.log(bandwidth))
        )  # the logarithm is unconstrained, so training keeps the bandwidth positive

    @property
    def bandwidth(self) -> float:
        return self.log_width.exp().item()

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return KERNELS[self.kernel_name](squared_distance(q, k) * (-2 * self.log_width).exp())
