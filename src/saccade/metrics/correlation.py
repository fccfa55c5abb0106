"""Pearson correlation, and Spearman rank correlation, with bootstrap intervals.

The correlation, and for Spearman also the ranking, is computed anew for each bootstrap sample.
"""

from collections.abc import Sequence

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, record_values, resample_indices

Numbers = Sequence[float] | np.ndarray


def pearson(
    gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """Pearson correlation of predictions and gold values, -1 to 1; 0 if one of them is constant.

    >>> pearson([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]).value
    1.0
    """
    x, y = _as_columns("pearson", gold, answers)
    return _correlate("pearson", x, y, bootstrap_samples, seed, ranked=False)


def spearman(
    gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """Spearman rank correlation of predictions and gold values, -1 to 1; ties get their mean rank.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 20.0, 900.0]).value
    1.0
    """
    x, y = _as_columns("spearman", gold, answers)
    return _correlate("spearman", x, y, bootstrap_samples, seed, ranked=True)


def _correlate(
    name: str, gold: np.ndarray, answers: np.ndarray, bootstrap_samples: int, seed: int, *, ranked: bool
) -> Score:
    count = len(gold)
    value_ids = [np.unique(column, return_inverse=True)[1] for column in (gold, answers)] if ranked else []

    def value(counts: np.ndarray) -> float:
        """The correlation of a sample that has each example `counts` times."""
        x, y = (_weighted_ranks(ids, counts) for ids in value_ids) if ranked else (gold, answers)
        return _weighted_pearson(x, y, counts)

    values = [
        value(np.bincount(row, minlength=count).astype(np.float64))
        for rows in resample_indices(count, bootstrap_samples, seed)
        for row in rows
    ]
    record_values(name, np.array(values))
    low, high = np.quantile(values, [0.025, 0.975])
    return Score(name, value(np.ones(count)), float(low), float(high), count)


def _weighted_ranks(value_ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The rank of each example in a sample that has each example `counts` times; ties get their mean rank.

    >>> _weighted_ranks(np.array([0, 1, 1, 2]), np.ones(4)).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    ties = np.bincount(value_ids, counts)
    return (np.cumsum(ties) - (ties - 1) / 2)[value_ids]


def _weighted_pearson(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> float:
    weights = counts / counts.sum()
    is_constant = [
        float(weights @ (z - weights @ z) ** 2) <= 1e-24 * float(weights @ z**2) for z in (x, y)
    ]  # up to rounding
    if any(is_constant):
        return 0.0
    x, y = x - weights @ x, y - weights @ y
    return float(np.clip(weights @ (x * y) / np.sqrt((weights @ x**2) * (weights @ y**2)), -1, 1))


def _as_columns(name: str, gold: Numbers, answers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    check_pairs(name, gold, answers)
    if not len(gold):
        raise ValueError(f"{name} of no examples is not defined; give at least one example with its gold answer.")
    x, y = np.asarray(gold, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(
            f"{name}: gold has the shape {x.shape} and the predictions {y.shape}; give one number per example."
        )
    return x, y
