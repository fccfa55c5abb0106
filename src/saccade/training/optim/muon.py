"""Muon optimizer (Jordan et al. 2024): orthogonalized updates for the matrices inside the layers, AdamW for all other parameters.

The gradient of a matrix mostly points along a few directions. Muon replaces the momentum U S Vᵀ by about U Vᵀ, so that rare
directions are learned as fast as common ones. A Newton-Schulz iteration does it with matrix products alone, without an SVD.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
# x ↦ ax + bx³ + cx⁵, five times: maps singular values from 0.01 to 1 to between 0.68 and 1.13 (Jordan's coefficients)
NEWTON_SCHULZ_A, NEWTON_SCHULZ_B, NEWTON_SCHULZ_C = 3.4445, -4.7750, 2.0315
NEWTON_SCHULZ_STEPS = 5
# root mean square of the entries of an AdamW update, relative to lr; scaled to it, both share one lr (Liu et al. 2025)
ADAMW_UPDATE_RMS = 0.2


class Muon(torch.optim.AdamW):
    """AdamW that updates parameter groups with `use_muon` by Muon instead; their parameters must be matrices.

    `matmul_dtype` is the dtype of the matrix products of the orthogonalization; None uses the dtype of the weights. Jordan uses
    bfloat16.
    """

    matmul_dtype: torch.dtype | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        for group in self.param_groups:
            if group["use_muon"]:
                self._update_matrices(group)
        return super().step(closure)  # skips the matrices, whose gradients are None now

    def _update_matrices(self, group: dict[str, Any]) -> None:
        by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is None:
                continue
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            gradient, weight.grad = weight.grad, None
            state["momentum"].lerp_(gradient, 1 - MOMENTUM)
            by_shape[tuple(weight.shape)].append((weight, gradient.lerp(state["momentum"], MOMENTUM)))
        for shape, members in by_shape.items():
            updates = orthogonalize(torch.stack([momentum for _, momentum in members]), self.matmul_dtype)
            step_size = group["lr"] * ADAMW_UPDATE_RMS * max(shape) ** 0.5
            for (weight, _), update in zip(members, updates, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=step_size)


def orthogonalize(matrices: Tensor, matmul_dtype: torch.dtype | None = None) -> Tensor:
    """Matrices (N, A, B) with about the same singular vectors, and all singular values near 1.

    >>> orthogonal = orthogonalize(torch.tensor([[[30.0, 0.0], [0.0, 0.3]]]))
    >>> (orthogonal.diagonal(dim1=1, dim2=2) - 1).abs().max() < 0.35
    tensor(True)
    """
    is_tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if is_tall else matrices
    x = (x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)).to(matmul_dtype or x.dtype)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = NEWTON_SCHULZ_A * x + torch.baddbmm(gram, gram, gram, beta=NEWTON_SCHULZ_B, alpha=NEWTON_SCHULZ_C) @ x
    return (x.mT if is_tall else x).to(matrices.dtype)
