"""Precision, recall, F1 and support of each class, with macro and weighted averages: a classification report."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.metrics.labels import ConfusionMatrix
from saccade.metrics.spans import SpanCounts

CLASS_SCORE_COLUMNS = ("", "precision", "recall", "F1", "support")


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class, and its support: the number of examples (or spans) with this gold label.

    >>> print(ClassScore("spam", 0.5, 1.0, 2 / 3, 10))
    spam: precision 0.500, recall 1.000, F1 0.667, support 10
    """

    label: str
    precision: float
    recall: float
    f1: float
    support: int

    def cells(self) -> tuple[str, ...]:
        """Label, precision, recall, F1 and support, formatted as the cells of a table row."""
        return self.label, f"{self.precision:.3f}", f"{self.recall:.3f}", f"{self.f1:.3f}", f"{self.support:,}"

    def __str__(self) -> str:
        label, precision, recall, f1, support = self.cells()
        return f"{label}: precision {precision}, recall {recall}, F1 {f1}, support {support}"


def make_class_score(label: str, correct: int, predicted: int, gold: int) -> ClassScore:
    """The scores of a class from the numbers of correct, predicted and gold items; 0 where the denominator is 0.

    >>> make_class_score("spam", correct=3, predicted=4, gold=6)
    ClassScore(label='spam', precision=0.75, recall=0.5, f1=0.6, support=6)
    """
    f1 = 2 * correct / (predicted + gold) if predicted + gold else 0.0
    return ClassScore(label, correct / max(1, predicted), correct / max(1, gold), f1, gold)


def class_scores(confusion: ConfusionMatrix) -> list[ClassScore]:
    """The scores of each class of a confusion matrix."""
    counts = confusion.counts
    columns = (np.diag(counts).tolist(), counts.sum(0).tolist(), counts.sum(1).tolist())
    rows = zip(map(str, confusion.labels), *columns, strict=True)
    return [make_class_score(label, correct, predicted, gold) for label, correct, predicted, gold in rows]


def multi_label_class_scores(
    gold: Sequence[Iterable[Any]], answers: Sequence[Iterable[Any]], labels: Iterable[Any] = ()
) -> list[ClassScore]:
    """The scores of each label where an example has any number of labels.

    >>> [one.f1 for one in multi_label_class_scores([["a", "b"], ["a"]], [["a"], ["a"]])]
    [1.0, 0.0]
    """
    pairs = [(set(map(str, ours)), set(map(str, theirs))) for ours, theirs in zip(gold, answers, strict=True)]
    names = sorted(set(map(str, labels)).union(*(ours | theirs for ours, theirs in pairs)))
    return [
        make_class_score(
            name,
            sum(name in ours and name in theirs for ours, theirs in pairs),
            sum(name in theirs for _, theirs in pairs),
            sum(name in ours for ours, _ in pairs),
        )
        for name in names
    ]


def span_class_scores(counts: dict[str, SpanCounts]) -> list[ClassScore]:
    """The scores of each kind of span."""
    return [make_class_score(kind, one.correct, one.predicted, one.gold) for kind, one in counts.items()]


def average_class_scores(scores: Sequence[ClassScore]) -> list[ClassScore]:
    """The macro average, in which every class counts the same, and the average weighted by support."""
    total = sum(one.support for one in scores)
    averages = []
    for name, weights in (("macro avg", np.ones(len(scores))), ("weighted avg", [one.support for one in scores])):
        if np.sum(weights) == 0:
            continue
        values = np.average([[one.precision, one.recall, one.f1] for one in scores], axis=0, weights=weights)
        averages.append(ClassScore(name, *values.tolist(), support=total))
    return averages
