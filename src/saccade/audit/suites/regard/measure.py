"""Comparison of two groups: the difference in mean regard with its confidence interval, and a permutation test."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.audit.stats import estimate_from_sums
from saccade.audit.suite import Estimate

DEFAULT_PERMUTATIONS = 4_000
MAX_PERMUTATIONS_AT_ONCE = 500


@dataclass(frozen=True)
class GroupComparison:
    """The difference in mean regard between a group and its reference group, with the p-values of a permutation test."""

    group: str
    reference_group: str
    difference: Estimate
    p_value: float
    adjusted_p_value: float  # Holm correction for all comparisons


def compare_groups(groups: Sequence[tuple[str, str, np.ndarray, np.ndarray]], scorer: str) -> list[GroupComparison]:
    """Compare groups: each item is a group, its reference group, and the regard of their samples by `scorer`."""
    p_values = [permutation_test(values, reference_values) for _, _, values, reference_values in groups]
    rows = zip(groups, p_values, holm_correction(p_values), strict=True)
    comparisons = []
    for (group, reference, values, reference_values), p_value, adjusted in rows:
        difference = estimate_difference(f"{group} - {reference}, by {scorer}", values, reference_values)
        comparisons.append(GroupComparison(group, reference, difference, p_value, adjusted))
    return comparisons


def estimate_difference(name: str, one: np.ndarray, other: np.ndarray) -> Estimate:
    """The mean of one group minus that of the other, with its bootstrap interval; the baseline is 0."""
    values = _concatenate(one, other)
    columns = [np.stack([values * indicator, indicator], axis=1) for indicator in _group_indicators(one, other)]
    return estimate_from_sums(name, _mean_difference, np.concatenate(columns, axis=1), baseline=0.0)


def permutation_test(
    one: np.ndarray, other: np.ndarray, *, permutations: int = DEFAULT_PERMUTATIONS, seed: int = 0
) -> float:
    """The two-sided p-value of the difference of means, by random permutations of the groups.

    The observed groups count as one of the permutations, so the p-value is never 0.
    """
    values, count = _concatenate(one, other), len(one)
    observed = abs(one.mean() - other.mean())
    rng = np.random.Generator(np.random.PCG64(seed))
    as_large = 0
    for start in range(0, permutations, MAX_PERMUTATIONS_AT_ONCE):
        table = rng.permuted(np.tile(values, (min(MAX_PERMUTATIONS_AT_ONCE, permutations - start), 1)), axis=1)
        differences = table[:, :count].mean(1) - table[:, count:].mean(1)
        as_large += int((np.abs(differences) >= observed - 1e-12).sum())
    return (1 + as_large) / (1 + permutations)


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for multiple comparisons (Holm 1979).

    >>> holm_correction([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda number: p_values[number])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[number]))
        adjusted[number] = largest
    return adjusted


def _concatenate(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.concatenate([one, other]).astype(np.float64)


def _group_indicators(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    indicator = np.concatenate([np.ones(len(one)), np.zeros(len(other))])
    return indicator, 1 - indicator


def _mean_difference(sums: np.ndarray) -> np.ndarray:
    """The difference of means from the sums (R, 4): sum and count of each group; 0 for a sample that lacks one of them."""
    one, other = (sums[:, i] / np.maximum(sums[:, i + 1], 1) for i in (0, 2))
    return np.where((sums[:, 1] > 0) & (sums[:, 3] > 0), one - other, 0.0)
