"""Class weights of the loss: rare labels count more. "balanced" follows scikit-learn; others are written label=weight,..."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from saccade.errors import UsageError
from saccade.tasks.classification.label_values import check_labels_known, parse_label_values

BALANCED, UNWEIGHTED = "balanced", "none"


def make_class_weights(setting: str, labels: Sequence[str], counts: Mapping[str, int]) -> tuple[float, ...]:
    """The weight of each label for `task.class_weights`; empty if it is "none".

    Balanced weights are n / (k count) for n examples and k labels (King and Zeng 2001), so their mean over the examples is 1.

    >>> make_class_weights("balanced", ["ham", "spam"], {"ham": 6, "spam": 2})
    (0.6666666666666666, 2.0)
    >>> make_class_weights("spam=5", ["ham", "spam"], {})
    (1.0, 5.0)
    """
    if setting == UNWEIGHTED:
        return ()
    if setting == BALANCED:
        known = [label for label in labels if counts.get(label)]
        total = sum(counts[label] for label in known)
        return tuple(total / (len(known) * counts[label]) if counts.get(label) else 1.0 for label in labels)
    weights = _parse_weights(setting)
    check_labels_known("class_weights", weights, labels)
    return tuple(weights.get(label, 1.0) for label in labels)


def make_positive_weights(
    setting: str, labels: Sequence[str], counts: Mapping[str, int], examples: int
) -> tuple[float, ...]:
    """The weight of the examples that have a label (multi-label); balanced: examples without the label per example with it.

    >>> make_positive_weights("balanced", ["art", "war"], {"art": 5, "war": 1}, 10)
    (1.0, 9.0)
    """
    if setting != BALANCED:
        return make_class_weights(setting, labels, counts)
    return tuple(max(1, examples - counts[label]) / counts[label] for label in labels)


def _parse_weights(setting: str) -> dict[str, float]:
    try:
        weights = parse_label_values(setting)
    except ValueError:
        weights = {}
    if not weights or not all(math.isfinite(weight) and weight > 0 for weight in weights.values()):
        raise UsageError(
            f"task.class_weights is {setting!r}: write balanced, or a weight above 0 for labels, such as spam=5,ham=1."
        )
    return weights


def as_tensor(weights: Sequence[float], like: Tensor) -> Tensor | None:
    """Class weights as a tensor for a loss; None without weights."""
    return torch.tensor(weights, dtype=like.dtype, device=like.device) if weights else None
