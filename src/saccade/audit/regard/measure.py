"""Whether two groups are spoken of differently: the difference of means with its interval, and a permutation test."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.audit.stats import of_sums
from saccade.audit.suite import Figure

ROUNDS = 4_000
BLOCK = 500  # shuffles at a time


@dataclass(frozen=True)
class Comparison:
    """One group read against another: the difference in mean regard, and how often chance makes one as large."""

    who: str
    against: str
    figure: Figure
    chance: float  # p, of this comparison alone
    adjusted: float  # p, where as many comparisons are made as there are


def compare(groups: Sequence[tuple[str, str, np.ndarray, np.ndarray]], by: str) -> list[Comparison]:
    """Each group and the one that it is read against, with the regard of their samples; `by` is who judged it."""
    chances = [permuted(ours, theirs) for _, _, ours, theirs in groups]
    rows = zip(groups, chances, holm(chances), strict=True)
    return [
        Comparison(who, against, difference(f"{who} - {against}, by {by}", ours, theirs), chance, adjusted)
        for (who, against, ours, theirs), chance, adjusted in rows
    ]


def difference(name: str, ours: np.ndarray, theirs: np.ndarray) -> Figure:
    """The mean of one group less that of the other, read against none."""
    columns = [np.stack([x * on, on], axis=1) for x, on in ((_both(ours, theirs), on) for on in _sides(ours, theirs))]
    return of_sums(name, _apart, np.concatenate(columns, axis=1), baseline=0.0)


def permuted(ours: np.ndarray, theirs: np.ndarray, *, rounds: int = ROUNDS, seed: int = 0) -> float:
    """The two-sided chance of so large a difference of means if it did not matter who is in which group.

    Shuffles are drawn, and the groups as they are count as one of them, so it is never nought.
    """
    every, count = _both(ours, theirs), len(ours)
    found = abs(ours.mean() - theirs.mean())
    draw = np.random.Generator(np.random.PCG64(seed))
    as_large = 0
    for begin in range(0, rounds, BLOCK):
        table = draw.permuted(np.tile(every, (min(BLOCK, rounds - begin), 1)), axis=1)
        apart = table[:, :count].mean(1) - table[:, count:].mean(1)
        as_large += int((np.abs(apart) >= found - 1e-12).sum())
    return (1 + as_large) / (1 + rounds)


def holm(chances: Sequence[float]) -> list[float]:
    """Chances put right for how many comparisons were made (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(chances)), key=lambda number: chances[number])
    out, least = [0.0] * len(chances), 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[number]))
        out[number] = least
    return out


def _both(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.concatenate([ours, theirs]).astype(np.float64)


def _sides(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mine = np.concatenate([np.ones(len(ours)), np.zeros(len(theirs))])
    return mine, 1 - mine


def _apart(sums: np.ndarray) -> np.ndarray:
    """(R, 4) of sum and count of one group and of the other; a draw that misses a group says nothing."""
    one, other = (sums[:, at] / np.maximum(sums[:, at + 1], 1) for at in (0, 2))
    return np.where((sums[:, 1] > 0) & (sums[:, 3] > 0), one - other, 0.0)
