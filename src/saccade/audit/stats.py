"""Confidence intervals of fractions, means and group differences: bootstrap, or exact where all cases agree."""

from collections.abc import Sequence

import numpy as np

from saccade.audit.suite import Estimate, estimate_from_score
from saccade.metrics.score import Score, Statistic, measure, ratio

FRACTION_SCORES = ("accuracy", "exact_match")  # scores that are a fraction of the cases


def estimate_fraction(name: str, hits: Sequence[bool] | np.ndarray, *, baseline: float | None = None) -> Estimate:
    """The fraction of hits with its confidence interval.

    The interval is a bootstrap interval; if all cases are hits or none is, every resample is the same, and it is the exact one.

    >>> print(estimate_fraction("heads", [True, False] * 50, baseline=0.5))
    heads 0.500 (0.400 to 0.600), 100 cases, baseline 0.5: not significant
    >>> print(estimate_fraction("changes", [False] * 100))
    changes 0.000 (0.000 to 0.036), 100 cases
    """
    values = np.asarray(hits, dtype=np.float64)
    estimate = estimate_from_score(measure(name, ratio, np.stack([values, np.ones(len(values))], axis=1)), baseline)
    if 0 < estimate.value < 1:
        return estimate
    bound = clopper_pearson_bound(len(values))
    low, high = (0.0, bound) if estimate.value == 0 else (1 - bound, 1.0)
    return Estimate(name, estimate.value, low, high, estimate.count, baseline)


def clopper_pearson_bound(count: int) -> float:
    """The width of the exact 95 % confidence interval of a fraction if none, or all, of `count` cases are hits
    (Clopper and Pearson, 1934).
    """
    return 1 - 0.025 ** (1 / count)


def score_interval(score: Score) -> tuple[float, float]:
    """The confidence interval of a score; the exact one for a fraction that is 0 or 1."""
    if score.name not in FRACTION_SCORES or score.low != score.high or score.value not in (0, 1):
        return score.low, score.high
    return (
        (0.0, clopper_pearson_bound(score.count)) if score.value == 0 else (1 - clopper_pearson_bound(score.count), 1.0)
    )


def estimate_mean(name: str, values: Sequence[float] | np.ndarray, *, baseline: float | None = None) -> Estimate:
    """The mean of some numbers, such as differences between two versions of the same text, with its bootstrap interval."""
    numbers = np.asarray(values, dtype=np.float64)
    return estimate_from_score(measure(name, ratio, np.stack([numbers, np.ones(len(numbers))], axis=1)), baseline)


def estimate_from_sums(
    name: str, statistic: Statistic, units: np.ndarray, *, baseline: float | None = None
) -> Estimate:
    """A function of sums over the cases, with its bootstrap interval; `units` has one row for each case."""
    return estimate_from_score(measure(name, statistic, units), baseline)


def estimate_gap(
    name: str, hits: np.ndarray, groups: np.ndarray, *, resamples: int = 1_000, seed: int = 0
) -> tuple[Estimate, float]:
    """The largest difference between groups in their fraction of hits, and its p-value by a permutation test.

    The largest of several differences is positive even by chance, so the baseline is its mean over permutations of the groups.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    codes = np.unique(groups, return_inverse=True)[1]
    value = _max_difference(hits, codes)
    resampled = np.array([_max_difference(*_resample_groups(hits, codes, rng)) for _ in range(resamples)])
    permuted = np.array([_max_difference(hits, rng.permutation(codes)) for _ in range(resamples)])
    low, high = np.quantile(resampled, [0.025, 0.975])
    if resampled.min() == resampled.max():  # within each group all cases agree, so every resample is the same
        bounds = sorted((clopper_pearson_bound(int(count)) for count in np.bincount(codes)), reverse=True)
        low, high = (0.0, bounds[0]) if value == 0 else (max(0.0, value - sum(bounds[:2])), value)
    p = (1 + int((permuted >= value - 1e-12).sum())) / (1 + resamples)
    return Estimate(name, value, float(low), float(high), len(hits), float(permuted.mean())), p


def _max_difference(hits: np.ndarray, codes: np.ndarray) -> float:
    counts = np.bincount(codes)
    fractions = np.bincount(codes, hits)[counts > 0] / counts[counts > 0]
    return float(fractions.max() - fractions.min())


def _resample_groups(hits: np.ndarray, codes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Resample the cases of each group with replacement; the sizes of the groups stay."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    starts = np.cumsum(counts) - counts
    rows = np.concatenate(
        [start + rng.integers(count, size=count) for start, count in zip(starts, counts, strict=True)]
    )
    return hits[order][rows], codes[order][rows]
