"""Whether two groups are spoken of differently: the difference of means with its interval, and a permutation test."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.audit.stats import estimate_from_sums
from saccade.audit.suite import Estimate

DEFAULT_PERMUTATIONS = 4_000
MAX_PERMUTATIONS_AT_ONCE = 500  # shuffles at a time


@dataclass(frozen=True)
class GroupComparison:
    """One group read against another: the difference in mean regard, and how often chance makes one as large."""

    group: str
    reference_group: str
    difference: Estimate
    p_value: float  # p, of this comparison alone
    adjusted_p_value: float  # p, where as many comparisons are made as there are


def compare_groups(groups: Sequence[tuple[str, str, np.ndarray, np.ndarray]], scorer: str) -> list[GroupComparison]:
    """Each group and the one that it is read against, with the regard of their samples; `scorer` is who judged it."""
    chances = [permutation_test(one, other) for _, _, one, other in groups]
    rows = zip(groups, chances, holm_correction(chances), strict=True)
    return [
        GroupComparison(
            who, against, estimate_difference(f"{who} - {against}, by {scorer}", one, other), chance, adjusted
        )
        for (who, against, one, other), chance, adjusted in rows
    ]


def estimate_difference(name: str, one: np.ndarray, other: np.ndarray) -> Estimate:
    """The mean of one group less that of the other, read against none."""
    columns = [
        np.stack([x * on, on], axis=1)
        for x, on in ((_concatenate(one, other), on) for on in _group_indicators(one, other))
    ]
    return estimate_from_sums(name, _mean_difference, np.concatenate(columns, axis=1), baseline=0.0)


def permutation_test(
    one: np.ndarray, other: np.ndarray, *, permutations: int = DEFAULT_PERMUTATIONS, seed: int = 0
) -> float:
    """The two-sided chance of so large a difference of means if it did not matter who is in which group.

    Shuffles are drawn, and the groups as they are count as one of them, so it is never nought.
    """
    every, count = _concatenate(one, other), len(one)
    found = abs(one.mean() - other.mean())
    draw = np.random.Generator(np.random.PCG64(seed))
    as_large = 0
    for begin in range(0, permutations, MAX_PERMUTATIONS_AT_ONCE):
        table = draw.permuted(np.tile(every, (min(MAX_PERMUTATIONS_AT_ONCE, permutations - begin), 1)), axis=1)
        apart = table[:, :count].mean(1) - table[:, count:].mean(1)
        as_large += int((np.abs(apart) >= found - 1e-12).sum())
    return (1 + as_large) / (1 + permutations)


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """Chances put right for how many comparisons were made (Holm 1979).

    >>> holm_correction([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda number: p_values[number])
    out, least = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[number]))
        out[number] = least
    return out


def _concatenate(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.concatenate([one, other]).astype(np.float64)


def _group_indicators(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mine = np.concatenate([np.ones(len(one)), np.zeros(len(other))])
    return mine, 1 - mine


def _mean_difference(sums: np.ndarray) -> np.ndarray:
    """(R, 4) of sum and count of one group and of the other; a draw that misses a group says nothing."""
    one, other = (sums[:, at] / np.maximum(sums[:, at + 1], 1) for at in (0, 2))
    return np.where((sums[:, 1] > 0) & (sums[:, 3] > 0), one - other, 0.0)
