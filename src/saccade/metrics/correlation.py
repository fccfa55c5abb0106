"""How well numbers go together with the gold's: Pearson's correlation, and Spearman's, which is the same of their ranks.

Each draw of examples is correlated anew, and for Spearman ranked anew, so that the interval is the statistic's own.
"""

from collections.abc import Sequence

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, resample_indices

Numbers = Sequence[float] | np.ndarray


def pearson(
    gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """How nearly answers and gold lie on a line, -1 to 1; 0 where one of them never varies.

    >>> pearson([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]).value
    1.0
    """
    right, said = _as_columns("pearson", gold, answers)
    return _correlate("pearson", right, said, bootstrap_samples, seed, ranked=False)


def spearman(
    gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """How nearly answers and gold have the same order, -1 to 1; equal numbers share their ranks.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 20.0, 900.0]).value
    1.0
    """
    right, said = _as_columns("spearman", gold, answers)
    return _correlate("spearman", right, said, bootstrap_samples, seed, ranked=True)


def _correlate(
    name: str, gold: np.ndarray, answers: np.ndarray, bootstrap_samples: int, seed: int, *, ranked: bool
) -> Score:
    count = len(gold)
    places = [np.unique(column, return_inverse=True)[1] for column in (gold, answers)] if ranked else []

    def value(often: np.ndarray) -> float:
        """The correlation where each example counts so often."""
        x, y = (_weighted_ranks(place, often) for place in places) if ranked else (gold, answers)
        return _weighted_pearson(x, y, often)

    draws = [
        value(np.bincount(row, minlength=count).astype(np.float64))
        for rows in resample_indices(count, bootstrap_samples, seed)
        for row in rows
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return Score(name, value(np.ones(count)), float(low), float(high), count)


def _weighted_ranks(value_ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The rank of each example among all, each of them being there so often; equal ones have the mean of their ranks.

    >>> _weighted_ranks(np.array([0, 1, 1, 2]), np.ones(4)).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    same = np.bincount(value_ids, counts)
    return (np.cumsum(same) - (same - 1) / 2)[value_ids]


def _weighted_pearson(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> float:
    share = counts / counts.sum()
    fixed = [float(share @ (z - share @ z) ** 2) <= 1e-24 * float(share @ z**2) for z in (x, y)]  # but for rounding
    if any(fixed):
        return 0.0
    x, y = x - share @ x, y - share @ y
    return float(np.clip(share @ (x * y) / np.sqrt((share @ x**2) * (share @ y**2)), -1, 1))


def _as_columns(name: str, gold: Numbers, answers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    check_pairs(name, gold, answers)
    if not len(gold):
        raise ValueError(f"{name} of no examples is not defined; give at least one example with its gold answer.")
    right, said = np.asarray(gold, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if right.ndim != 1 or said.ndim != 1:
        raise ValueError(f"{name}: gold is {right.shape} and answers are {said.shape}; one number each is needed.")
    return right, said
