"""A memory you can ask: attention over a store of keys and values, as a fuzzy dictionary, a regressor and a classifier.

>>> store = AttentionPool(Kernel("gaussian", bandwidth=0.1))
>>> keys, values = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [20.0], [30.0]])
>>> answer, weights = store(torch.tensor([[2.0]]), keys, values)
>>> answer.item()  # a narrow kernel is an exact look-up
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
    """Attention over a store, with any mechanism: `pool(q, keys, values)` gives the answers and the weights.

    Queries (Q, D), keys (K, D) and values (K, E), each with a batch axis in front or without: batches of questions can ask
    one store. `keep` hides keys, (K,) or (B, K), and `pattern` hides pairs.
    """

    def __init__(self, mechanism: Mechanism, *, pattern: Pattern = FULL):
        super().__init__()
        self.mechanism = mechanism
        self.pattern = pattern

    def forward(self, q: Tensor, keys: Tensor, values: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
        single = q.dim() == keys.dim() == 2
        batch = max(x.size(0) if x.dim() == 3 else 1 for x in (q, keys, values))
        q, keys, values = (x.expand(batch, *x.shape[-2:])[:, None] for x in (q, keys, values))
        if keep is not None:
            keep = keep.expand(batch, keep.size(-1))
        sight = self.mechanism.with_noise(q, keys, Sight(self.pattern, keep=keep, cross=True))
        out = self.mechanism(q, keys, values, sight)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.mechanism.normalizer.is_stochastic):
            weights = self.mechanism.weights(q, keys, sight)
        return (out[0, 0], weights[0, 0]) if single else (out[:, 0], weights[:, 0])


@dataclass(frozen=True)
class LeaveOneOut(Pattern):
    """Everybody but oneself: how a store is asked about an item it holds (leave one out).

    >>> print(LeaveOneOut().draw(3))
    · ■ ■
    ■ · ■
    ■ ■ ·
    """

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return q != k


class NadarayaWatson:
    """Regression and classification by kernel pooling: keep the data, and answer with a weighted mean of it.

    `bandwidth` is a number, "silverman", or "leave_one_out", which takes the width that best predicts each item from the
    others. Values are floating-point numbers (regression) or anything else, whole numbers too (classes; the largest share
    wins).

    >>> x = torch.linspace(0, 6, 60)[:, None]
    >>> model = NadarayaWatson().fit(x, x.sin())
    >>> abs(model.predict(torch.tensor([[1.5]])).item() - math.sin(1.5)) < 0.02
    True
    >>> spam = NadarayaWatson(bandwidth=0.5).fit(torch.tensor([[0.0], [0.2], [3.0]]), ["ham", "ham", "spam"])
    >>> spam.predict(torch.tensor([[0.1], [2.9]]))
    ['ham', 'spam']
    """

    def __init__(self, kernel_name: str = "gaussian", bandwidth: float | str = "leave_one_out"):
        if isinstance(bandwidth, str) and bandwidth not in ("silverman", "leave_one_out"):
            raise ValueError(f"A bandwidth is a number, 'silverman' or 'leave_one_out'; got {bandwidth!r}.")
        self.kernel_name, self.bandwidth = kernel_name, bandwidth
        self.kernel = Kernel(kernel_name, bandwidth if not isinstance(bandwidth, str) else 1.0).requires_grad_(False)

    def fit(self, keys: Tensor, values: Tensor | Sequence) -> "NadarayaWatson":
        """Remember the data and settle the width."""
        if keys.dim() != 2 or len(keys) != len(values):
            raise ValueError(f"Keys are (n, d) and values n; got keys {tuple(keys.shape)} and {len(values)} values.")
        self.keys, self.classes = keys, None
        if not isinstance(values, Tensor) and all(isinstance(value, float) for value in values):
            values = torch.tensor(values).to(keys)
        if isinstance(values, Tensor) and values.is_floating_point():
            self.values = values if values.dim() == 2 else values[:, None]
        else:
            items = values.tolist() if isinstance(values, Tensor) else list(values)
            self.classes = sorted(set(items))
            self.values = F.one_hot(torch.tensor([self.classes.index(v) for v in items]), len(self.classes)).to(keys)
        if isinstance(self.bandwidth, str):
            width = silverman_bandwidth(keys)
            self._set_bandwidth(width if self.bandwidth == "silverman" else self._search_bandwidth(width))
        return self

    def predict(self, queries: Tensor) -> Tensor | list:
        """A value for each query, or for classes a list of them."""
        answers, _ = self.predict_with_weights(queries)
        return answers if self.classes is None else [self.classes[i] for i in answers.argmax(-1).tolist()]

    def predict_with_weights(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The answers (for classes, their shares) and the weights of every remembered item, (Q, K)."""
        return AttentionPool(self.kernel)(queries, self.keys, self.values)

    def leave_one_out_error(self) -> float:
        """The mean squared error with which each item is predicted from all others."""
        answers, weights = AttentionPool(self.kernel, pattern=LeaveOneOut())(self.keys, self.keys, self.values)
        alone = weights.sum(-1, keepdim=True) == 0  # nobody inside the kernel: the best guess is the mean
        answers = torch.where(alone, self.values.mean(0, keepdim=True), answers)
        return (answers - self.values).square().mean().item()

    def _set_bandwidth(self, bandwidth: float) -> None:
        self.kernel.log_width.fill_(math.log(bandwidth))

    def _search_bandwidth(self, start: float) -> float:
        """The width of least `error`: a wide net over the orders of magnitude, drawn in twice around the best."""
        best, net = start, torch.linspace(-2.5, 2.5, 41)
        for _ in range(3):
            widths = [best * 10**step for step in net.tolist()]
            errors = []
            for width in widths:
                self._set_bandwidth(width)
                errors.append(self.leave_one_out_error())
            best = widths[errors.index(min(errors))]
            net = net / 15
        return best


def silverman_bandwidth(x: Tensor) -> float:
    """Silverman's width for n points in d dimensions: the best for data that are normally distributed."""
    n, d = x.shape
    if n < 2:
        return 1.0  # one point has no spread
    spread = x.std(0)
    if d == 1:
        quarter, three = torch.quantile(x, torch.tensor([0.25, 0.75], dtype=x.dtype, device=x.device))
        robust = (three - quarter) / 1.34
        spread = torch.minimum(spread, robust) if robust > 0 else spread
        return max(0.9 * spread.item() * n**-0.2, 1e-12)
    return max(spread.mean().item() * (4 / (d + 2)) ** (1 / (d + 4)) * n ** (-1 / (d + 4)), 1e-12)
