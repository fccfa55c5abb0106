"""Kernel pooling: a weighted mean of the values, weighted by a kernel of the distance, Σ K(u_i) v_i / Σ K(u_i), u = ‖q-k‖/width.

Nadaraya 1964, Watson 1964. The oldest attention: nothing is learned but the width, and the weights are the explanation. The
score here is the kernel's logarithm, so softmax of it is the plain share, and far queries do not underflow.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from saccade.attention.mechanism import Mechanism
from saccade.attention.mechanisms.distance import squared_distance


def _epanechnikov(squared_distance: Tensor) -> Tensor:
    inside = squared_distance < 1
    # the inner `where` keeps the border out of the logarithm, whose gradient there has no limit
    return torch.where(inside, torch.log1p(-torch.where(inside, squared_distance, 0.0)), -math.inf)


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {  # the logarithm of each kernel, as a function of u²
    "gaussian": lambda square: -0.5 * square,
    "boxcar": lambda square: torch.where(square <= 1, 0.0, -math.inf).to(square.dtype),
    "constant": torch.zeros_like,
    "epanechnikov": _epanechnikov,
}


class Kernel(Mechanism):
    """Shares in proportion to a kernel of the distance; a query with no key inside the kernel gets nothing."""

    def __init__(self, kernel_name: str = "gaussian", bandwidth: float = 1.0):
        super().__init__()
        if kernel_name not in KERNELS:
            raise ValueError(f"Unknown kernel {kernel_name!r}; known are {', '.join(KERNELS)}.")
        if not bandwidth > 0:
            raise ValueError(f"A kernel's width is a positive number; got {bandwidth}.")
        self.kernel_name = kernel_name
        self.log_width = nn.Parameter(torch.tensor(math.log(bandwidth)))  # any number is a legal logarithm

    @property
    def bandwidth(self) -> float:
        return self.log_width.exp().item()

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return KERNELS[self.kernel_name](squared_distance(q, k) * (-2 * self.log_width).exp())
