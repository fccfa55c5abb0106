"""Ridge regression on n-grams: the wide branch of a model that predicts a number for a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from saccade.baselines.ngram_classifier import NgramContribution
from saccade.baselines.ngram_features import NgramFeatures, Rows, State

RIDGE_ALPHA = (0.1, 0.3, 1.0, 3.0, 10.0)  # in ascending order
DEFAULT_ALPHA = 1.0  # without a dev part


@dataclass(frozen=True)
class NgramRegressor:
    """Numbers of texts, or of pairs of texts, by their n-grams; alpha is chosen by the squared error on the dev part.

    >>> texts, numbers = [("a fine film",), ("a fine play",), ("a dull film",), ("a dull play",)], [5, 5, 1, 1]
    >>> model = NgramRegressor.fit(texts, numbers)
    >>> (model.predict([("fine",), ("dull",)]) > 3).tolist()
    [True, False]
    """

    features: NgramFeatures
    weights: np.ndarray  # (F,)
    bias: float

    @classmethod
    def fit(cls, rows: Rows, gold: Sequence[float], dev_rows: Rows = (), dev_gold: Sequence[float] = ()) -> Self:
        """Fit to training examples; without dev examples, alpha is 1."""
        features = NgramFeatures.fit(rows)
        inputs, targets = features.transform(rows), np.array(gold, float)
        if not len(dev_rows):
            return cls(features, *fit_ridge_weights(inputs, targets, DEFAULT_ALPHA))
        dev_inputs, best, best_error = features.transform(dev_rows), (np.zeros(features.width), 0.0), np.inf
        for alpha in RIDGE_ALPHA:
            weights, bias = fit_ridge_weights(inputs, targets, alpha)
            error = float(((dev_inputs @ weights + bias - np.array(dev_gold, float)) ** 2).mean())
            if error < best_error:
                best, best_error = (weights, bias), error
        return cls(features, *best)

    def predict(self, rows: Rows) -> np.ndarray:
        """The number of each example, (N,)."""
        return self.features.transform(rows) @ self.weights + self.bias

    def contributions(self, row: Sequence[str], limit: int = 10) -> list[NgramContribution]:
        """What the n-grams of one example add to its number, the largest first."""
        cells = self.features.transform([row]).tocoo()
        values = cells.data * self.weights[cells.col]
        largest = np.argsort(-np.abs(values), kind="stable")[:limit]
        return [NgramContribution(self.features.decode(int(cells.col[i])), float(values[i])) for i in largest]

    def to_state(self) -> State:
        """Everything as arrays, which a safetensors file can hold."""
        return {"weights": self.weights, "bias": np.array(self.bias)} | self.features.to_state()

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> Self:
        return cls(NgramFeatures.from_state(state), state["weights"], float(state["bias"]))


def fit_ridge_weights(inputs: Any, targets: np.ndarray, alpha: float) -> tuple[np.ndarray, float]:
    """Weights and bias of the least |Xw + b - y|² + alpha · |w|², with b free; from an equation of size N, not of size F."""
    from scipy.sparse.linalg import LinearOperator, cg

    count = len(targets)
    center = lambda values: values - values.mean()
    # the dual: w = X'u, where (K + alpha) u = y, K = X X', all of them centered
    multiply = lambda u: center(inputs @ (inputs.T @ center(u))) + alpha * u
    kernel = LinearOperator((count, count), multiply, dtype=float)  # type: ignore[call-arg]
    dual, _ = cg(kernel, center(targets), rtol=1e-6, maxiter=300)
    weights = inputs.T @ center(dual)
    return weights, float((targets - inputs @ weights).mean())
