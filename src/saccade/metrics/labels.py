"""Classification metrics, for one label per example or several: accuracy, F1, Matthews correlation, confusion matrix."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.metrics.score import (
    DEFAULT_BOOTSTRAP_SAMPLES,
    IndicatorTable,
    Score,
    check_pairs,
    measure,
    ratio,
    resample_counts,
)

Labels = Sequence[Hashable] | Sequence[Collection[Hashable]]


def accuracy(
    gold: Labels, answers: Labels, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """The fraction of correct predictions; with several labels per example, all of them must match.

    >>> accuracy(["a", "b", "a", "c"], ["a", "b", "c", "c"]).value
    0.75
    """
    return _exact_match_score("accuracy", gold, answers, bootstrap_samples, seed)


def micro_f1(
    gold: Labels, answers: Labels, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """Micro-averaged F1, over all labels of all examples; with one label per example it equals the accuracy."""
    pairs = list(zip(*_as_sets("micro_f1", gold, answers), strict=True))
    units = np.array(
        [[2 * len(gold_set & predicted_set), len(gold_set) + len(predicted_set)] for gold_set, predicted_set in pairs],
        dtype=np.float64,
    )
    return measure("micro_f1", ratio, units.reshape(-1, 2), bootstrap_samples=bootstrap_samples, seed=seed)


def macro_f1(
    gold: Labels, answers: Labels, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """Macro-averaged F1: the mean F1 of the classes that occur in the gold labels or the predictions."""
    return measure(
        "macro_f1",
        _macro_f1,
        _class_indicators("macro_f1", gold, answers),
        bootstrap_samples=bootstrap_samples,
        seed=seed,
    )


def f1(
    gold: Sequence[Hashable],
    answers: Sequence[Hashable],
    positive: Hashable,
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """F1 of the positive class, such as paraphrase or spam; the signature of the score names it.

    >>> print(f1(["1", "1", "0", "0"], ["1", "0", "1", "0"], "1"))
    f1 0.500 (0.000–1.000), 4 examples [positive:1]
    """
    check_pairs("f1", gold, answers)
    pairs = [(true == positive, predicted == positive) for true, predicted in zip(gold, answers, strict=True)]
    units = np.array(
        [[2.0 * (true and predicted), float(true) + float(predicted)] for true, predicted in pairs]
    ).reshape(-1, 2)
    return measure("f1", ratio, units, signature=f"positive:{positive}", bootstrap_samples=bootstrap_samples, seed=seed)


def f1_threshold(
    probabilities: Sequence[float],
    is_positive: Sequence[bool],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> float:
    """The decision threshold on the probability of a class that maximizes its F1.

    The best threshold of a single sample is noisy, so this is the median of the best thresholds of many bootstrap samples.

    >>> f1_threshold([0.9, 0.6, 0.3, 0.1], [True, True, True, False], bootstrap_samples=50)
    0.2
    """
    _check_not_empty("f1_threshold", probabilities, is_positive)
    chunks = resample_counts(len(probabilities), bootstrap_samples, seed, 1)
    return float(np.median(np.concatenate([_best_cuts(probabilities, is_positive, counts) for counts in chunks])))


def best_f1_threshold(probabilities: Sequence[float], is_positive: Sequence[bool]) -> float:
    """The decision threshold on the probability of a class with the highest F1 on these examples.

    It is midway between the lowest probability that is predicted and the next one; of equally good ones, the highest.

    >>> best_f1_threshold([0.9, 0.6, 0.3, 0.1], [True, True, True, False])
    0.2
    """
    _check_not_empty("best_f1_threshold", probabilities, is_positive)
    return float(_best_cuts(probabilities, is_positive, np.ones((1, len(probabilities))))[0])


def _check_not_empty(name: str, probabilities: Sequence[float], is_positive: Sequence[bool]) -> None:
    check_pairs(name, is_positive, probabilities)
    if not len(probabilities):
        raise ValueError(f"{name} of no examples is not defined; give at least one example with its gold label.")


def _best_cuts(probabilities: Sequence[float], is_positive: Sequence[bool], counts: np.ndarray) -> np.ndarray:
    """The threshold with the highest F1 for each sample, given how often it contains each example, (samples, N)."""
    order = np.argsort(probabilities, kind="stable")[::-1]
    ranked, positives = np.asarray(probabilities, float)[order], np.asarray(is_positive, float)[order]
    lower = np.append(ranked[1:], 0.0)
    counts = counts[:, order]
    hits = counts * positives
    values = 2 * hits.cumsum(1) / (counts.cumsum(1) + hits.sum(1, keepdims=True)).clip(min=1)
    last = np.where(ranked > lower, values, -1.0).argmax(1)  # equal probabilities are on the same side
    return (ranked[last] + lower[last]) / 2


def mcc(
    gold: Sequence[Hashable],
    answers: Sequence[Hashable],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """Matthews correlation coefficient (MCC) for any number of classes; 0 if gold or predictions are constant.

    Gorodkin, 2004: https://doi.org/10.1016/j.compbiolchem.2004.09.006
    """
    for name, items in (("gold", gold), ("answers", answers)):
        several = next((item for item in items if _is_collection(item)), None)
        if several is not None:
            raise ValueError(f"mcc takes one label per example, but {name} has {several!r}; use micro_f1.")
    return measure("mcc", _mcc, _class_indicators("mcc", gold, answers), bootstrap_samples=bootstrap_samples, seed=seed)


def multi_label_scores(
    gold: Sequence[Collection[Hashable]],
    answers: Sequence[Collection[Hashable]],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> list[Score]:
    """The scores of multi-label classification: micro F1, macro F1, and the fraction of label sets that match exactly."""
    return [
        micro_f1(gold, answers, bootstrap_samples=bootstrap_samples, seed=seed),
        macro_f1(gold, answers, bootstrap_samples=bootstrap_samples, seed=seed),
        _exact_match_score("exact_match", gold, answers, bootstrap_samples, seed),
    ]


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """A confusion matrix: one row per gold label, one column per predicted label.

    >>> print(confusion_matrix(["cat", "dog", "dog"], ["cat", "cat", "dog"]))
        cat dog
    cat   1   0
    dog   1   1
    """

    labels: tuple[Any, ...]
    counts: np.ndarray  # (C, C)

    def __str__(self) -> str:
        names = [str(label) for label in self.labels]
        width = max(map(len, [*names, str(self.counts.max())]))
        lines = [" " * width + " " + " ".join(name.rjust(width) for name in names)]
        for name, row in zip(names, self.counts.tolist(), strict=True):
            lines.append(name.ljust(width) + " " + " ".join(str(x).rjust(width) for x in row))
        return "\n".join(lines)


def confusion_matrix(gold: Sequence[Hashable], answers: Sequence[Hashable]) -> ConfusionMatrix:
    """Count each pair of gold and predicted label."""
    check_pairs("confusion", gold, answers)
    codes = _label_ids([*gold, *answers])
    counts = np.zeros((len(codes), len(codes)), dtype=np.int64)
    np.add.at(counts, ([codes[x] for x in gold], [codes[x] for x in answers]), 1)
    return ConfusionMatrix(tuple(codes), counts)


def _is_collection(item: object) -> bool:
    return isinstance(item, (list, tuple, set, frozenset))


def _as_sets(name: str, gold: Labels, answers: Labels) -> tuple[list[frozenset[Any]], list[frozenset[Any]]]:
    check_pairs(name, gold, answers)
    both: list[Any] = [
        [frozenset(x) if isinstance(x, list | tuple | set | frozenset) else frozenset([x]) for x in items]
        for items in (gold, answers)
    ]
    return both[0], both[1]


def _exact_match_score(name: str, gold: Labels, answers: Labels, bootstrap_samples: int, seed: int) -> Score:
    pairs = zip(*_as_sets(name, gold, answers), strict=True)
    units = np.array([[float(gold_set == predicted_set), 1.0] for gold_set, predicted_set in pairs]).reshape(-1, 2)
    return measure(name, ratio, units, bootstrap_samples=bootstrap_samples, seed=seed)


def _label_ids(labels: Sequence[Any]) -> dict[Any, int]:
    """The index of each label: in sorted order, or sorted by `repr` if the labels cannot be compared."""
    known = set(labels)
    try:
        return {label: i for i, label in enumerate(sorted(known))}
    except TypeError:
        return {label: i for i, label in enumerate(sorted(known, key=repr))}


def _class_indicators(name: str, gold: Labels, answers: Labels) -> IndicatorTable:
    """For each example and class: true positive, gold, predicted, as three blocks of columns."""
    gold_sets, predicted_sets = _as_sets(name, gold, answers)
    codes = _label_ids([label for labels in [*gold_sets, *predicted_sets] for label in labels])
    blocks = [[a & b for a, b in zip(gold_sets, predicted_sets, strict=True)], gold_sets, predicted_sets]
    ones = [
        (row, len(codes) * block + codes[label])
        for block, sets in enumerate(blocks)
        for row, labels in enumerate(sets)
        for label in labels
    ]
    coordinates = np.array(ones, dtype=np.int64).reshape(-1, 2)
    return IndicatorTable(coordinates[:, 0], coordinates[:, 1], (len(gold_sets), 3 * len(codes)))


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    correct, gold, predicted = np.split(sums, 3, axis=1)
    total = gold + predicted
    f1 = np.divide(2 * correct, total, out=np.zeros_like(correct), where=total > 0)
    return f1.sum(1) / np.maximum((total > 0).sum(1), 1)


def _mcc(sums: np.ndarray) -> np.ndarray:
    correct, gold, predicted = np.split(sums, 3, axis=1)
    count = gold.sum(1)
    covariance = correct.sum(1) * count - (gold * predicted).sum(1)
    variances = (count**2 - (gold**2).sum(1)) * (count**2 - (predicted**2).sum(1))
    return np.divide(covariance, np.sqrt(variances), out=np.zeros_like(covariance), where=variances > 0)
