"""Softmax regression on n-grams with naive Bayes scaling, the wide branch of a classifier (Wang and Manning 2012, ACL P12-2018).

Each feature is multiplied by its naive Bayes log-ratio r to a power, sign(r)·|r|^a: with a = 0 the model is plain softmax
regression, with a = 1 it is NB-SVM's. C is chosen for each power by the log-loss on the dev part, after temperature scaling, and
the models of three powers are averaged. The mean of log-probabilities of linear models is itself a linear model, so one matrix is
all that is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from saccade.baselines.ngram_features import NgramFeatures, Rows, State

POWERS = (0.0, 0.5, 1.0)  # of the naive Bayes log-ratio
INVERSE_REGULARIZATION = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)  # C, in ascending order
DEFAULT_C = 16.0  # without a dev part
MAX_ITERATIONS = 60  # of L-BFGS
LBFGS_HISTORY = 10
TEMPERATURES = (0.25, 50.0)  # bounds: a dev part without a mistake would ask for certainty


@dataclass(frozen=True)
class NgramContribution:
    """What one n-gram adds to the logit of a label, compared with its mean over the labels."""

    ngram: str
    value: float


@dataclass(frozen=True)
class NgramClassifier:
    """Labels of texts, or of pairs of texts, by their n-grams; probabilities are calibrated on the dev part.

    >>> texts, labels = [("a fine film",), ("a fine play",), ("a dull film",), ("a dull play",)], ["+", "+", "-", "-"]
    >>> model = NgramClassifier.fit(texts, labels)
    >>> model.predict([("fine!",), ("so dull",)])
    ['+', '-']
    >>> model.contributions(("fine play",), "+", limit=1)[0].value > 0
    True
    """

    labels: tuple[str, ...]
    features: NgramFeatures
    weights: np.ndarray  # (F, K)
    bias: np.ndarray  # (K,)

    @classmethod
    def fit(cls, rows: Rows, gold: Sequence[str], dev_rows: Rows = (), dev_gold: Sequence[str] = ()) -> Self:
        """Fit to training examples; without dev examples, C is 16 and nothing is calibrated."""
        labels = tuple(sorted(set(gold)))
        features = NgramFeatures.fit(rows)
        train = _Examples(features.transform(rows), _number_labels(gold, labels), len(labels))
        known = [i for i, label in enumerate(dev_gold) if label in labels]
        dev = None
        if known:
            numbers = _number_labels([dev_gold[i] for i in known], labels)
            dev = _Examples(features.transform([dev_rows[i] for i in known]), numbers, len(labels))
        log_ratio = naive_bayes_log_ratio(train.inputs, train.gold, len(labels))
        models = [_fit_power(train, dev, log_ratio, power) for power in POWERS]
        weights, bias = (np.mean(parts, axis=0) for parts in zip(*models, strict=True))
        if dev is not None:
            temperature = fit_temperature(dev.inputs @ weights + bias, dev.gold)
            weights, bias = weights / temperature, bias / temperature
        return cls(labels, features, weights.astype(np.float32), bias.astype(np.float32))

    def predict_log_proba(self, rows: Rows) -> np.ndarray:
        """The log-probability of each label, (N, K), in the order of `labels`."""
        return log_softmax(self.features.transform(rows) @ self.weights + self.bias)

    def predict(self, rows: Rows) -> list[str]:
        """The most probable label of each example."""
        return [self.labels[best] for best in self.predict_log_proba(rows).argmax(1)]

    def contributions(self, row: Sequence[str], label: str, limit: int = 10) -> list[NgramContribution]:
        """The n-grams of one example that count most for or against a label, the largest first.

        All contributions and the bias, minus their means over the labels, sum to the logit of the label, minus its mean.
        """
        cells = self.features.transform([row]).tocoo()
        centered = self.weights[cells.col] - self.weights[cells.col].mean(1, keepdims=True)
        values = cells.data * centered[:, self.labels.index(label)]
        largest = np.argsort(-np.abs(values), kind="stable")[:limit]
        return [NgramContribution(self.features.decode(int(cells.col[i])), float(values[i])) for i in largest]

    def to_state(self) -> State:
        """Everything as arrays, which a safetensors file can hold."""
        names = np.frombuffer("\0".join(self.labels).encode(), np.uint8).copy()
        return {"labels": names, "weights": self.weights, "bias": self.bias} | self.features.to_state()

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> Self:
        labels = tuple(state["labels"].tobytes().decode().split("\0"))
        return cls(labels, NgramFeatures.from_state(state), state["weights"], state["bias"])


@dataclass(frozen=True)
class _Examples:
    inputs: Any  # CSR (N, F)
    gold: np.ndarray  # (N,) numbers of the labels
    label_count: int


def naive_bayes_log_ratio(inputs: Any, gold: np.ndarray, label_count: int) -> np.ndarray:
    """r = ln((p / |p|) / (q / |q|)) of each feature and label, one label against the rest, (F, K).

    p is 1 + the number of examples of the label that hold the feature, q is the same for all other examples.
    """
    present = inputs.astype(bool).astype(np.float64)
    held = present.T @ np.eye(label_count)[gold]  # (F, K)
    p, q = 1 + held, 1 + held.sum(1, keepdims=True) - held
    return np.log(p / p.sum(0)) - np.log(q / q.sum(0))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def log_loss(logits: np.ndarray, gold: np.ndarray) -> float:
    return -float(log_softmax(logits)[np.arange(len(gold)), gold].mean())


def fit_temperature(logits: np.ndarray, gold: np.ndarray) -> float:
    """The temperature by which logits are divided for the lowest log-loss (Guo et al. 2017, arXiv 1706.04599)."""
    from scipy.optimize import minimize_scalar

    bounds = np.log(TEMPERATURES)
    found = minimize_scalar(lambda log: log_loss(logits / np.exp(log), gold), bounds=bounds, method="bounded")
    return float(np.exp(found.x))


def _fit_power(
    train: _Examples, dev: _Examples | None, log_ratio: np.ndarray, power: float
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias with the C of the lowest log-loss on dev, calibrated; C ascends until the log-loss rises."""
    scale = np.sign(log_ratio) * np.abs(log_ratio) ** power if power else np.ones_like(log_ratio)
    if dev is None:
        return fit_softmax_regression(train.inputs, train.gold, scale, DEFAULT_C)
    best, best_loss = None, np.inf
    for c in INVERSE_REGULARIZATION:
        weights, bias = fit_softmax_regression(train.inputs, train.gold, scale, c)
        logits = dev.inputs @ weights + bias
        temperature = fit_temperature(logits, dev.gold)
        loss = log_loss(logits / temperature, dev.gold)
        if best is not None and loss >= best_loss:
            break
        best, best_loss = (weights / temperature, bias / temperature), loss
    assert best is not None
    return best


def fit_softmax_regression(inputs: Any, gold: np.ndarray, scale: np.ndarray, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Minimize the mean cross-entropy of x·(scale ∘ V) + b plus |V|² / (2·C·N) by L-BFGS; returns scale ∘ V and b.

    With two labels whose scales are of the same size, the columns of the solution differ only in their sign: one is fitted.
    """
    from scipy.optimize import minimize

    count, label_count = len(gold), scale.shape[1]
    inputs = inputs.astype(np.float64)
    transposed = inputs.T.tocsr()
    targets = np.eye(label_count)[gold]
    is_mirrored = label_count == 2 and np.allclose(np.abs(scale[:, 0]), np.abs(scale[:, 1]))
    signs = np.array([[1.0, -1.0]]) if is_mirrored else np.eye(label_count)  # (fitted columns, K)
    columns, copies = len(signs), label_count // len(signs)
    scale = scale[:, :columns]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        v, bias = flat[:-columns].reshape(-1, columns), flat[-columns:]
        log_probabilities = log_softmax((inputs @ (scale * v) + bias) @ signs)
        loss = -(log_probabilities * targets).sum() / count + copies * (v * v).sum() / (2 * c * count)
        error = (np.exp(log_probabilities) - targets) @ signs.T / count
        gradient = scale * (transposed @ error) + copies * v / (c * count)
        return loss, np.concatenate([gradient.ravel(), error.sum(0)])

    options = {"maxiter": MAX_ITERATIONS, "maxcor": LBFGS_HISTORY}
    start = np.zeros((len(scale) + 1) * columns)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    return (scale * found[:-columns].reshape(-1, columns)) @ signs, found[-columns:] @ signs


def _number_labels(gold: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    numbers = {label: number for number, label in enumerate(labels)}
    return np.array([numbers[label] for label in gold])
