"""Paired bootstrap: which of two systems is better on the same examples, by how much, and whether that may be chance.

Both systems are scored on the same bootstrap samples of the examples, so that what makes an example hard cancels out in their
difference (Koehn, 2004, "Statistical significance tests for machine translation evaluation": https://aclanthology.org/W04-3250/).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from saccade.metrics.score import Score

MAX_ROUNDING_ERROR = 1e-12  # a smaller difference is a tie


@dataclass(frozen=True)
class Comparison:
    """The difference between two systems in one metric, with its 95 % confidence interval and the p-value.

    `better_share` is the fraction of the bootstrap samples in which the first system is the better one; ties count half.

    >>> print(Comparison("accuracy", 0.95, 0.91, 0.01, 0.07, 0.004, 0.998, "higher"))
    accuracy 0.950 against 0.910: +0.040 (+0.010 to +0.070), p = 0.004: the first is better
    >>> print(Comparison("perplexity", 20.5, 20.0, -0.2, 1.2, 0.2, 0.1, "lower"))
    perplexity 20.50 against 20.00: +0.50 (-0.20 to +1.20), p = 0.2: no significant difference
    """

    name: str
    value: float  # of the first system
    other_value: float  # of the second system
    low: float  # 95 % confidence interval of the difference, the first minus the second
    high: float
    p_value: float  # two-sided: how often a difference this clear would come about by chance
    better_share: float
    better: Literal["higher", "lower"] = "higher"

    @property
    def difference(self) -> float:
        """The first minus the second."""
        return self.value - self.other_value

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval excludes zero."""
        return self.low > 0 or self.high < 0

    @property
    def first_is_better(self) -> bool:
        """Whether the value of the first system is the better one, significantly or not."""
        return (self.difference > 0) == (self.better == "higher")

    def as_dict(self) -> dict[str, Any]:
        """The comparison as plain values that JSON can hold."""
        return vars(self) | {"difference": self.difference, "is_significant": self.is_significant}

    def describe(self, first: str, second: str) -> str:
        """The comparison as a line, with the names of the two systems."""
        digits = 3 if max(abs(self.value), abs(self.other_value)) < 10 else 2
        low, high = f"{self.low:+,.{digits}f}", f"{self.high:+,.{digits}f}"
        values = f"{self.value:,.{digits}f} against {self.other_value:,.{digits}f}"
        verdict = "no significant difference"
        if self.is_significant:
            verdict = f"{first if self.first_is_better else second} is better"
        p_value = f"p = {self.p_value:.2g}" if self.p_value >= 0.001 else "p < 0.001"
        return f"{self.name} {values}: {self.difference:+,.{digits}f} ({low} to {high}), {p_value}: {verdict}"

    def __str__(self) -> str:
        return self.describe("the first", "the second")


def compare_scores(
    scores: Sequence[Score],
    other_scores: Sequence[Score],
    resamples: Mapping[str, np.ndarray],
    other_resamples: Mapping[str, np.ndarray],
) -> list[Comparison]:
    """Compare the metrics that both systems have, given their values on the same bootstrap samples (`record_resamples`)."""
    others = {score.name: score for score in other_scores}
    return [
        compare_resamples(score, others[score.name].value, resamples[score.name], other_resamples[score.name])
        for score in scores
        if score.name in others and score.name in resamples and score.name in other_resamples
    ]


def compare_resamples(score: Score, other_value: float, values: np.ndarray, other_values: np.ndarray) -> Comparison:
    """Compare two systems in one metric, given its values on the same bootstrap samples.

    The p-value is twice the fraction of samples on the wrong side of zero, each count raised by one so that it is never 0
    (Davison and Hinkley, 1997, section 4.2).
    """
    differences = values - other_values
    differences[np.abs(differences) < MAX_ROUNDING_ERROR] = 0.0
    low, high = np.quantile(differences, [0.025, 0.975])
    tails = ((differences <= 0).sum(), (differences >= 0).sum())
    p_value = min(1.0, 2 * (1 + int(min(tails))) / (1 + len(differences)))
    signed = differences if score.better == "higher" else -differences
    share = float((signed > 0).mean() + (signed == 0).mean() / 2)
    return Comparison(score.name, score.value, other_value, float(low), float(high), p_value, share, score.better)
