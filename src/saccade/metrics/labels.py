"""Metrics of labels, one for each example or several: accuracy, F1, Matthews' correlation, who was taken for whom."""

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
    """The share of examples answered right; of several labels all must be right.

    >>> accuracy(["a", "b", "a", "c"], ["a", "b", "c", "c"]).value
    0.75
    """
    return _exact_match_score("accuracy", gold, answers, bootstrap_samples, seed)


def micro_f1(
    gold: Labels, answers: Labels, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """F1 over all labels of all examples together; with one label each it is the accuracy."""
    pairs = list(zip(*_as_sets("micro_f1", gold, answers), strict=True))
    units = np.array([[2 * len(right & said), len(right) + len(said)] for right, said in pairs], dtype=np.float64)
    return measure("micro_f1", ratio, units.reshape(-1, 2), bootstrap_samples=bootstrap_samples, seed=seed)


def macro_f1(
    gold: Labels, answers: Labels, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """The mean of the classes' F1, over the classes that are in the gold or among the answers."""
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
    """F1 of one class, the one that is sought: paraphrase, spam; the score says which.

    >>> print(f1(["1", "1", "0", "0"], ["1", "0", "1", "0"], "1"))
    f1 0.500 (0.000–1.000), 4 examples [positive:1]
    """
    check_pairs("f1", gold, answers)
    pairs = [(right == positive, said == positive) for right, said in zip(gold, answers, strict=True)]
    units = np.array([[2.0 * (right and said), float(right) + float(said)] for right, said in pairs]).reshape(-1, 2)
    return measure("f1", ratio, units, signature=f"positive:{positive}", bootstrap_samples=bootstrap_samples, seed=seed)


def f1_threshold(
    probabilities: Sequence[float],
    is_positive: Sequence[bool],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> float:
    """How likely a class must be to be said, so that its F1 is the highest.

    The best of one sample is as much chance as skill: this is the median of what is best for many draws of the examples.

    >>> f1_threshold([0.9, 0.6, 0.3, 0.1], [True, True, True, False], bootstrap_samples=50)
    0.2
    """
    check_pairs("f1_threshold", is_positive, probabilities)
    if not len(probabilities):
        raise ValueError("f1_threshold of no examples is not defined; give at least one with its gold answer.")
    order = np.argsort(probabilities, kind="stable")[::-1]
    ranked, sought = np.asarray(probabilities, float)[order], np.asarray(is_positive, float)[order]
    lower = np.append(ranked[1:], 0.0)
    found: list[np.ndarray] = []
    for counts in resample_counts(len(ranked), bootstrap_samples, seed, 1):
        counts = counts[:, order]
        hits = counts * sought
        values = 2 * hits.cumsum(1) / (counts.cumsum(1) + hits.sum(1, keepdims=True)).clip(min=1)
        last = np.where(ranked > lower, values, -1.0).argmax(1)  # examples of one chance are said together
        found.append((ranked[last] + lower[last]) / 2)
    return float(np.median(np.concatenate(found)))


def mcc(
    gold: Sequence[Hashable],
    answers: Sequence[Hashable],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """Matthews' correlation of answers and gold for any number of classes; 0 where one of them never varies.

    Gorodkin, 2004: https://doi.org/10.1016/j.compbiolchem.2004.09.006
    """
    for name, items in (("gold", gold), ("answers", answers)):
        several = next((item for item in items if _is_collection(item)), None)
        if several is not None:
            raise ValueError(f"mcc takes one label for each example, but {name} has {several!r}; use micro_f1.")
    return measure("mcc", _mcc, _class_indicators("mcc", gold, answers), bootstrap_samples=bootstrap_samples, seed=seed)


def multi_label_scores(
    gold: Sequence[Collection[Hashable]],
    answers: Sequence[Collection[Hashable]],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> list[Score]:
    """What is told of examples that have several labels or none: micro F1, macro F1, and how many sets are right as a whole."""
    return [
        micro_f1(gold, answers, bootstrap_samples=bootstrap_samples, seed=seed),
        macro_f1(gold, answers, bootstrap_samples=bootstrap_samples, seed=seed),
        _exact_match_score("exact_match", gold, answers, bootstrap_samples, seed),
    ]


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Who was taken for whom: a row for each gold label, a column for each answer.

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
    """Count each pair of gold label and answer."""
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
    units = np.array([[float(right == said), 1.0] for right, said in pairs]).reshape(-1, 2)
    return measure(name, ratio, units, bootstrap_samples=bootstrap_samples, seed=seed)


def _label_ids(labels: Sequence[Any]) -> dict[Any, int]:
    """Each label's place: in their own order where they have one, else by how they print."""
    known = set(labels)
    try:
        return {label: i for i, label in enumerate(sorted(known))}
    except TypeError:
        return {label: i for i, label in enumerate(sorted(known, key=repr))}


def _class_indicators(name: str, gold: Labels, answers: Labels) -> IndicatorTable:
    """For each class whether it is right, in the gold, and among the answers: three blocks of columns."""
    right, said = _as_sets(name, gold, answers)
    codes = _label_ids([label for labels in [*right, *said] for label in labels])
    blocks = [[a & b for a, b in zip(right, said, strict=True)], right, said]
    ones = [
        (row, len(codes) * block + codes[label])
        for block, sets in enumerate(blocks)
        for row, labels in enumerate(sets)
        for label in labels
    ]
    places = np.array(ones, dtype=np.int64).reshape(-1, 2)
    return IndicatorTable(places[:, 0], places[:, 1], (len(right), 3 * len(codes)))


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    right, gold, said = np.split(sums, 3, axis=1)
    there = gold + said
    f1 = np.divide(2 * right, there, out=np.zeros_like(right), where=there > 0)
    return f1.sum(1) / np.maximum((there > 0).sum(1), 1)


def _mcc(sums: np.ndarray) -> np.ndarray:
    right, gold, said = np.split(sums, 3, axis=1)
    count = gold.sum(1)
    together = right.sum(1) * count - (gold * said).sum(1)
    apart = (count**2 - (gold**2).sum(1)) * (count**2 - (said**2).sum(1))
    return np.divide(together, np.sqrt(apart), out=np.zeros_like(together), where=apart > 0)
