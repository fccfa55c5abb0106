"""Kernel pooling: a weighted mean of the values, weighted by a kernel of the distance, Σ K(u_i) v_i / Σ K(u_i), u = ‖q-k‖/width.

Nadaraya 1964, Watson 1964. The oldest attention: nothing is learned but the width, and the weights are the explanation. The
score here is the kernel's logarithm, so softmax of it is the plain share, and far queries do not underflow.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from saccade.attention.distance import squared_distance
from saccade.attention.mechanism import Mechanism


def _epanechnikov(square: Tensor) -> Tensor:
    inside = square < 1
    # the inner `where` keeps the border out of the logarithm, whose gradient there has no limit
    return torch.where(inside, torch.log1p(-torch.where(inside, square, 0.0)), -math.inf)


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {  # the logarithm of each kernel, as a function of u²
    "gaussian": lambda square: -0.5 * square,
    "boxcar": lambda square: torch.where(square <= 1, 0.0, -math.inf).to(square.dtype),
    "constant": torch.zeros_like,
    "epanechnikov": _epanechnikov,
}


class Kernel(Mechanism):
    """Shares in proportion to a kernel of the distance; a query with no key inside the kernel gets nothing."""

    def __init__(self, shape: str = "gaussian", width: float = 1.0):
        super().__init__()
        if shape not in KERNELS:
            raise ValueError(f"Unknown kernel {shape!r}; known are {', '.join(KERNELS)}.")
        if not width > 0:
            raise ValueError(f"A kernel's width is a positive number; got {width}.")
        self.shape = shape
        self.log_width = nn.Parameter(torch.tensor(math.log(width)))  # any number is a legal logarithm

    @property
    def width(self) -> float:
        return self.log_width.exp().item()

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return KERNELS[self.shape](squared_distance(q, k) * (-2 * self.log_width).exp())
