"""Muon (Jordan et al. 2024): the matrices inside the layers move as far in every direction, the rest learns by AdamW.

The gradient of a matrix mostly points along a few directions. Its momentum U S Vᵀ is replaced by about U Vᵀ, so that rare
directions are learnt as fast as common ones; a polynomial of the matrix does it with products alone, no decomposition.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
# x ↦ ax + bx³ + cx⁵, five times: takes any singular value from 0.01 to 1 to between 0.68 and 1.13 (Jordan's coefficients)
NEWTON_SCHULZ_A, NEWTON_SCHULZ_B, NEWTON_SCHULZ_C = 3.4445, -4.7750, 2.0315
NEWTON_SCHULZ_STEPS = 5
ADAMW_UPDATE_RMS = (
    0.2  # the root mean square of an entry of an AdamW step, in rates; so one rate serves both (Liu et al. 2025)
)


class Muon(torch.optim.AdamW):
    """AdamW whose groups marked `use_muon` hold matrices that are learnt by Muon.

    `matmul_dtype` is the kind of numbers that are multiplied to turn them, where they are to be other than the weights';
    Jordan's own are bfloat16.
    """

    matmul_dtype: torch.dtype | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        for group in self.param_groups:
            if group["use_muon"]:
                self._update_matrices(group)
        return super().step(closure)  # passes over those whose gradient is gone

    def _update_matrices(self, group: dict[str, Any]) -> None:
        alike: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is None:
                continue
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            gradient, weight.grad = weight.grad, None
            state["momentum"].lerp_(gradient, 1 - MOMENTUM)
            alike[tuple(weight.shape)].append((weight, gradient.lerp(state["momentum"], MOMENTUM)))
        for shape, members in alike.items():
            turned = orthogonalize(torch.stack([ahead for _, ahead in members]), self.matmul_dtype)
            reach = group["lr"] * ADAMW_UPDATE_RMS * max(shape) ** 0.5
            for (weight, _), move in zip(members, turned, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(move, alpha=reach)


def orthogonalize(matrices: Tensor, matmul_dtype: torch.dtype | None = None) -> Tensor:
    """Matrices [n, a, b] with about the same singular vectors, and all singular values near 1.

    >>> turned = orthogonalize(torch.tensor([[[30.0, 0.0], [0.0, 0.3]]]))
    >>> (turned.diagonal(dim1=1, dim2=2) - 1).abs().max() < 0.35
    tensor(True)
    """
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if tall else matrices
    x = (x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)).to(matmul_dtype or x.dtype)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = NEWTON_SCHULZ_A * x + torch.baddbmm(gram, gram, gram, beta=NEWTON_SCHULZ_B, alpha=NEWTON_SCHULZ_C) @ x
    return (x.mT if tall else x).to(matrices.dtype)
