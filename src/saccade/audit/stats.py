"""Figures of shares and differences, with intervals that also hold where all cases are alike."""

from collections.abc import Sequence

import numpy as np

from saccade.audit.suite import Estimate, estimate_from_score
from saccade.metrics.score import Score, Statistic, measure, ratio

FRACTION_SCORES = ("accuracy", "exact_match")  # scores that are a share of the cases


def estimate_fraction(name: str, hits: Sequence[bool] | np.ndarray, *, baseline: float | None = None) -> Estimate:
    """The share of cases that hold. Drawn again, cases that are all alike stay alike, so there the bound is the exact one.

    >>> print(estimate_fraction("heads", [True, False] * 50, baseline=0.5))
    heads 0.500 (0.400 to 0.600), 100 cases, against 0.5: not told apart
    >>> print(estimate_fraction("changes", [False] * 100))
    changes 0.000 (0.000 to 0.036), 100 cases
    """
    held = np.asarray(hits, dtype=np.float64)
    found = estimate_from_score(measure(name, ratio, np.stack([held, np.ones(len(held))], axis=1)), baseline)
    if 0 < found.value < 1:
        return found
    low, high = (
        (0.0, clopper_pearson_bound(len(held))) if found.value == 0 else (1 - clopper_pearson_bound(len(held)), 1.0)
    )
    return Estimate(name, found.value, low, high, found.count, baseline)


def clopper_pearson_bound(count: int) -> float:
    """How far from none, or from all, of so many cases the true share may be: the exact two-sided bound of 95 %
    (Clopper and Pearson, 1934).
    """
    return 1 - 0.025 ** (1 / count)


def score_interval(score: Score) -> tuple[float, float]:
    """The interval of a score; of a share that holds for none, or for all, the exact one."""
    if score.name not in FRACTION_SCORES or score.low != score.high or score.value not in (0, 1):
        return score.low, score.high
    return (
        (0.0, clopper_pearson_bound(score.count)) if score.value == 0 else (1 - clopper_pearson_bound(score.count), 1.0)
    )


def estimate_mean(name: str, values: Sequence[float] | np.ndarray, *, baseline: float | None = None) -> Estimate:
    """The mean of some numbers, such as differences between two versions of the same text."""
    given = np.asarray(values, dtype=np.float64)
    return estimate_from_score(measure(name, ratio, np.stack([given, np.ones(len(given))], axis=1)), baseline)


def estimate_from_sums(
    name: str, statistic: Statistic, units: np.ndarray, *, baseline: float | None = None
) -> Estimate:
    """Any other function of sums over cases."""
    return estimate_from_score(measure(name, statistic, units), baseline)


def estimate_gap(
    name: str, hits: np.ndarray, groups: np.ndarray, *, resamples: int = 1_000, seed: int = 0
) -> tuple[Estimate, float]:
    """How far the best and the worst group lie apart in their share of hits, and how often chance does as much (p).

    The largest of several differences is never nothing, so it is read against what it is on average when the groups are shuffled.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    codes = np.unique(groups, return_inverse=True)[1]
    value = _max_difference(hits, codes)
    drawn = np.array([_max_difference(*_resample_groups(hits, codes, draw)) for _ in range(resamples)])
    chance = np.array([_max_difference(hits, draw.permutation(codes)) for _ in range(resamples)])
    low, high = np.quantile(drawn, [0.025, 0.975])
    if drawn.min() == drawn.max():  # all of each group are alike, and stay so however they are drawn
        wide = sorted((clopper_pearson_bound(int(count)) for count in np.bincount(codes)), reverse=True)
        low, high = (0.0, wide[0]) if value == 0 else (max(0.0, value - sum(wide[:2])), value)
    p = (1 + int((chance >= value - 1e-12).sum())) / (1 + resamples)
    return Estimate(name, value, float(low), float(high), len(hits), float(chance.mean())), p


def _max_difference(hits: np.ndarray, codes: np.ndarray) -> float:
    counts = np.bincount(codes)
    shares = np.bincount(codes, hits)[counts > 0] / counts[counts > 0]
    return float(shares.max() - shares.min())


def _resample_groups(hits: np.ndarray, codes: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The cases of each group drawn again, as many as there are."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    starts = np.cumsum(counts) - counts
    places = np.concatenate(
        [start + draw.integers(count, size=count) for start, count in zip(starts, counts, strict=True)]
    )
    return hits[order][places], codes[order][places]
