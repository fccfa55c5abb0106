"""Nadaraya-Watson kernel regression and attention pooling: attention over a set of stored keys and values.

>>> store = AttentionPool(Kernel("gaussian", bandwidth=0.1))
>>> keys, values = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [20.0], [30.0]])
>>> answer, weights = store(torch.tensor([[2.0]]), keys, values)
>>> answer.item()  # with a small bandwidth, it is an exact lookup
20.0
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention.mechanism import Mechanism
from saccade.attention.mechanisms.kernel import Kernel
from saccade.attention.pattern import FULL, Pattern
from saccade.attention.sight import Sight


class AttentionPool(nn.Module):
    """Attention pooling with any mechanism: `pool(q, keys, values)` returns the outputs and the attention weights.

    Queries (Q, D), keys (K, D) and values (K, E), each with or without a leading batch dimension, so that a batch of queries
    can share the keys and values. `keep` masks keys, (K,) or (B, K), and `pattern` masks pairs.
    """

    def __init__(self, mechanism: Mechanism, *, pattern: Pattern = FULL):
        super().__init__()
        self.mechanism = mechanism
        self.pattern = pattern

    def forward(self, q: Tensor, keys: Tensor, values: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
        unbatched = q.dim() == keys.dim() == 2
        batch = max(x.size(0) if x.dim() == 3 else 1 for x in (q, keys, values))
        q, keys, values = (x.expand(batch, *x.shape[-2:])[:, None] for x in (q, keys, values))
        if keep is not None:
            keep = keep.expand(batch, keep.size(-1))
        sight = self.mechanism.with_noise(q, keys, Sight(self.pattern, keep=keep, cross=True))
        out = self.mechanism(q, keys, values, sight)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.mechanism.normalizer.is_stochastic):
            weights = self.mechanism.weights(q, keys, sight)
        return (out[0, 0], weights[0, 0]) if unbatched else (out[:, 0], weights[:, 0])


@dataclass(frozen=True)
class LeaveOneOut(Pattern):
    """Leave-one-out cross-validation: every position attends to all others, not to itself.

    >>> print(LeaveOneOut().draw(3))
    · ■ ■
    ■ · ■
    ■ ■ ·
    """

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return q != k


class NadarayaWatson:
    """Kernel regression and classification: `fit` stores the data, `predict` returns a weighted mean of its values.

    `bandwidth` is a number, "silverman" (Silverman's rule of thumb), or "leave_one_out", which minimizes the leave-one-out
    error. Floating-point values mean regression; all others, integers too, are classes, and the largest weight wins.

    >>> x = torch.linspace(0, 6, 60)[:, None]
    >>> model = NadarayaWatson().fit(x, x.sin())
    >>> abs(model.predict(torch.tensor([[1.5]])).item() - math.sin(1.5)) < 0.02
    True
    >>> spam = NadarayaWatson(bandwidth=0.5).fit(torch.tensor([[0.0], [0.2], [3.0]]), ["ham", "ham", "spam"])
    >>> spam.predict(torch.tensor([[0.1], [2.9]]))
    ['ham', 'spam']
    """

    kernel_name: str
    keys: Tensor

    def __init__(self, kernel_name: str = "gaussian", bandwidth: float | str = "leave_one_out"):
        if isinstance(bandwidth, str) and bandwidth not in ("silverman", "leave_one_out"):
            raise ValueError(f"bandwidth must be a number, 'silverman' or 'leave_one_out'; got {bandwidth!r}.")
        self.kernel_name, self.bandwidth = kernel_name, bandwidth
        self.kernel: Kernel = Kernel(kernel_name, bandwidth if not isinstance(bandwidth, str) else 1.0).requires_grad_(
            False
        )

    def fit(self, keys: Tensor, values: Tensor | Sequence) -> "NadarayaWatson":
        """Store the data and choose the bandwidth."""
        if keys.dim() != 2 or len(keys) != len(values):
            raise ValueError(
                f"keys must be (n, d) with n values; got keys of shape {tuple(keys.shape)} and {len(values)} values."
            )
        self.keys, self.classes = keys, None
        if not isinstance(values, Tensor) and all(isinstance(value, float) for value in values):
            values = torch.tensor(values).to(keys)
        if isinstance(values, Tensor) and values.is_floating_point():
            self.values = values if values.dim() == 2 else values[:, None]
        else:
            items = values.tolist() if isinstance(values, Tensor) else list(values)
            self.classes = sorted(set(items))
            self.values: Tensor = F.one_hot(torch.tensor([self.classes.index(v) for v in items]), len(self.classes)).to(
                keys
            )
        if isinstance(self.bandwidth, str):
            start = silverman_bandwidth(keys)
            self._set_bandwidth(start if self.bandwidth == "silverman" else self._search_bandwidth(start))
        return self

    def predict(self, queries: Tensor) -> Tensor | list:
        """The predicted value of each query, or a list of classes."""
        answers, _ = self.predict_with_weights(queries)
        return answers if self.classes is None else [self.classes[i] for i in answers.argmax(-1).tolist()]

    def predict_with_weights(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The predictions (for classes, their probabilities) and the weights of the stored items, (Q, K)."""
        return AttentionPool(self.kernel)(queries, self.keys, self.values)

    def leave_one_out_error(self) -> float:
        """Leave-one-out mean squared error: each item is predicted from all others."""
        answers, weights = AttentionPool(self.kernel, pattern=LeaveOneOut())(self.keys, self.keys, self.values)
        isolated = weights.sum(-1, keepdim=True) == 0  # no item within the kernel: predict the mean
        answers = torch.where(isolated, self.values.mean(0, keepdim=True), answers)
        return (answers - self.values).square().mean().item()

    def _set_bandwidth(self, bandwidth: float) -> None:
        self.kernel.log_width.fill_(math.log(bandwidth))

    def _search_bandwidth(self, start: float) -> float:
        """The bandwidth with the least leave-one-out error: a grid search over orders of magnitude, refined twice."""
        best, grid = start, torch.linspace(-2.5, 2.5, 41)
        for _ in range(3):
            bandwidths = [best * 10**step for step in grid.tolist()]
            errors = []
            for bandwidth in bandwidths:
                self._set_bandwidth(bandwidth)
                errors.append(self.leave_one_out_error())
            best = bandwidths[errors.index(min(errors))]
            grid = grid / 15
        return best


def silverman_bandwidth(x: Tensor) -> float:
    """Silverman's rule of thumb: the optimal bandwidth for n normally distributed points in d dimensions."""
    n, d = x.shape
    if n < 2:
        return 1.0  # a single point has no standard deviation
    spread = x.std(0)
    if d == 1:
        lower, upper = torch.quantile(x, torch.tensor([0.25, 0.75], dtype=x.dtype, device=x.device))
        robust = (upper - lower) / 1.34
        spread = torch.minimum(spread, robust) if robust > 0 else spread
        return max(0.9 * spread.item() * n**-0.2, 1e-12)
    return max(spread.mean().item() * (4 / (d + 2)) ** (1 / (d + 4)) * n ** (-1 / (d + 4)), 1e-12)
