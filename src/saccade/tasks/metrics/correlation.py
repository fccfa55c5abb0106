"""How well numbers go together with the gold's: Pearson's correlation, and Spearman's, which is the same of their ranks.

Each draw of examples is correlated anew, and for Spearman ranked anew, so that the interval is the statistic's own.
"""

from collections.abc import Sequence

import numpy as np

from saccade.tasks.metrics.score import ROUNDS, Score, check_pairs, resamples

Numbers = Sequence[float] | np.ndarray


def pearson(gold: Numbers, answers: Numbers, *, rounds: int = ROUNDS, seed: int = 0) -> Score:
    """How nearly answers and gold lie on a line, -1 to 1; 0 where one of them never varies.

    >>> pearson([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]).value
    1.0
    """
    right, said = _columns("pearson", gold, answers)
    return _score("pearson", right, said, rounds, seed, ranked=False)


def spearman(gold: Numbers, answers: Numbers, *, rounds: int = ROUNDS, seed: int = 0) -> Score:
    """How nearly answers and gold have the same order, -1 to 1; equal numbers share their ranks.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 20.0, 900.0]).value
    1.0
    """
    right, said = _columns("spearman", gold, answers)
    return _score("spearman", right, said, rounds, seed, ranked=True)


def _score(name: str, gold: np.ndarray, said: np.ndarray, rounds: int, seed: int, *, ranked: bool) -> Score:
    count = len(gold)
    places = [np.unique(column, return_inverse=True)[1] for column in (gold, said)] if ranked else []

    def value(often: np.ndarray) -> float:
        """The correlation where each example counts so often."""
        x, y = (_ranks(place, often) for place in places) if ranked else (gold, said)
        return _together(x, y, often)

    draws = [
        value(np.bincount(row, minlength=count).astype(np.float64))
        for rows in resamples(count, rounds, seed)
        for row in rows
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return Score(name, value(np.ones(count)), float(low), float(high), count)


def _ranks(place: np.ndarray, often: np.ndarray) -> np.ndarray:
    """The rank of each example among all, each of them being there so often; equal ones have the mean of their ranks.

    >>> _ranks(np.array([0, 1, 1, 2]), np.ones(4)).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    same = np.bincount(place, often)
    return (np.cumsum(same) - (same - 1) / 2)[place]


def _together(x: np.ndarray, y: np.ndarray, often: np.ndarray) -> float:
    share = often / often.sum()
    fixed = [float(share @ (z - share @ z) ** 2) <= 1e-24 * float(share @ z**2) for z in (x, y)]  # but for rounding
    if any(fixed):
        return 0.0
    x, y = x - share @ x, y - share @ y
    return float(np.clip(share @ (x * y) / np.sqrt((share @ x**2) * (share @ y**2)), -1, 1))


def _columns(name: str, gold: Numbers, answers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    check_pairs(name, gold, answers)
    if not len(gold):
        raise ValueError(f"{name} of no examples is not defined; give at least one example with its gold answer.")
    right, said = np.asarray(gold, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if right.ndim != 1 or said.ndim != 1:
        raise ValueError(f"{name}: gold is {right.shape} and answers are {said.shape}; one number each is needed.")
    return right, said
