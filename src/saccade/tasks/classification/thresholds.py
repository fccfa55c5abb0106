"""Decision thresholds of multi-label classification: a label is predicted if its probability reaches the threshold of the label.

Each threshold is tuned on dev for the highest F1 of its label. A label with few dev examples has the common threshold instead,
which maximizes the F1 of all decisions together (micro F1), since the best threshold of a few examples is mostly chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from saccade.errors import UsageError
from saccade.metrics import best_f1_threshold
from saccade.tasks.classification.label_values import check_labels_known, format_label_values, parse_label_values

AUTO = "auto"  # the setting that tunes all thresholds
DEFAULT_THRESHOLD = 0.5
MIN_POSITIVES = 10  # dev examples with a label, from which on it has a threshold of its own
MAX_LABELS_DESCRIBED = 12


@dataclass(frozen=True)
class TunedThresholds:
    """The threshold of each label, and the labels with too few dev examples, which have the common one."""

    values: Mapping[str, float]
    common: float
    small: tuple[str, ...]

    @property
    def setting(self) -> str:
        """The value of `task.thresholds` that a run stores."""
        return format_label_values({label: f"{value:.6g}" for label, value in self.values.items()})

    def with_given(self, given: Mapping[str, float]) -> "TunedThresholds":
        """The thresholds with those that were set by hand."""
        small = tuple(label for label in self.small if label not in given)
        return TunedThresholds({**self.values, **given}, self.common, small)

    def __str__(self) -> str:
        own = [f"{label} {value:.3f}" for label, value in self.values.items() if label not in self.small]
        parts = [", ".join(_shorten(own))] if own else []
        if self.small:
            few = f"{', '.join(_shorten(self.small))} (fewer than {MIN_POSITIVES} dev examples)"
            parts.append(f"the common threshold {self.common:.3f} for {few}")
        return f"Decision thresholds, tuned on dev for the F1 of each label: {'; '.join(parts)}."


def _shorten(items: Sequence[str]) -> list[str]:
    more = [f"and {len(items) - MAX_LABELS_DESCRIBED:,} more"] if len(items) > MAX_LABELS_DESCRIBED else []
    return [*items[:MAX_LABELS_DESCRIBED], *more]


def tune_thresholds(probabilities: np.ndarray, gold: np.ndarray, labels: Sequence[str]) -> TunedThresholds:
    """The thresholds with the highest F1 for (N, K) probabilities and gold labels (N, K) of zeros and ones."""
    positives = gold.sum(0)
    common = _tune(probabilities.ravel(), gold.ravel()) if positives.sum() >= MIN_POSITIVES else DEFAULT_THRESHOLD
    small = tuple(label for label, count in zip(labels, positives, strict=True) if count < MIN_POSITIVES)
    values = {
        label: common if label in small else _tune(probabilities[:, i], gold[:, i]) for i, label in enumerate(labels)
    }
    return TunedThresholds(values, common, small)


def _tune(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """The best threshold, kept strictly between 0 and 1 when it is written with six digits."""
    return float(np.clip(best_f1_threshold(probabilities.tolist(), gold.astype(bool).tolist()), 1e-6, 1 - 1e-6))


@lru_cache(maxsize=32)
def parse_thresholds(setting: str, labels: tuple[str, ...]) -> Mapping[str, float]:
    """The threshold of each label for `task.thresholds`; labels that it does not name have 0.5.

    >>> dict(parse_thresholds("art=0.3", ("art", "war"))), dict(parse_thresholds("0.4", ("art", "war")))
    ({'art': 0.3, 'war': 0.5}, {'art': 0.4, 'war': 0.4})
    """
    given = parse_given_thresholds(setting, labels)
    return MappingProxyType({label: given.get(label, DEFAULT_THRESHOLD) for label in labels})


def parse_given_thresholds(setting: str, labels: Sequence[str]) -> dict[str, float]:
    """The thresholds of the labels that `task.thresholds` names; one number is for all labels."""
    if setting == AUTO:
        return {}
    try:
        try:
            values = dict.fromkeys(labels, float(setting))
        except ValueError:
            values = parse_label_values(setting)
    except ValueError:
        values = {"": 0.0}
    if not all(0 < value < 1 for value in values.values()):
        raise UsageError(
            f"task.thresholds is {setting!r}: write one probability between 0 and 1 for all labels, or one for some, such as "
            "spam=0.4,ham=0.6."
        )
    check_labels_known("thresholds", values, labels)
    return values
