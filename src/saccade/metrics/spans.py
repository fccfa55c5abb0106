"""Span F1 for named entities and other tagged spans, by the rules of conlleval, the script of the CoNLL shared tasks.

Tjong Kim Sang and Buchholz, 2000: https://aclanthology.org/W00-0726/
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio

TAG_PREFIXES = ("B", "I", "E", "S", "O")  # begin, inside, end, single, outside


class Span(NamedTuple):
    """A labeled span of words, from `start` up to but not including `end`."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class SpanCounts:
    """The numbers of correct, gold and predicted spans."""

    correct: int
    gold: int
    predicted: int

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.correct / (self.gold + self.predicted) if self.gold + self.predicted else 0.0


def extract_spans(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence; an I- tag that does not continue a span of its kind begins one, as in conlleval.

    >>> extract_spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [Span(start=0, end=2, kind='PER'), Span(start=3, end=4, kind='LOC'), Span(start=4, end=5, kind='LOC')]
    >>> extract_spans(["B-PER", "I-LOC"])
    [Span(start=0, end=1, kind='PER'), Span(start=1, end=2, kind='LOC')]
    """
    spans: list[Span] = []
    start, previous, kind = 0, "O", ""
    for i, (prefix, next_kind) in enumerate([*map(_split_tag, tags), ("O", "")]):
        begins = prefix != "O" and (prefix in "BS" or previous in "OES" or next_kind != kind)
        if previous != "O" and (begins or prefix == "O"):
            spans.append(Span(start, i, kind))
        if begins:
            start = i
        previous, kind = prefix, next_kind
    return spans


def count_spans(gold: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]) -> dict[str, SpanCounts]:
    """The numbers of correct, gold and predicted spans of each kind."""
    correct, expected, predicted = Counter[str](), Counter[str](), Counter[str]()
    for gold_spans, predicted_spans in _paired_spans(gold, answers):
        expected.update(span.kind for span in gold_spans)
        predicted.update(span.kind for span in predicted_spans)
        correct.update(span.kind for span in set(gold_spans) & set(predicted_spans))
    return {kind: SpanCounts(correct[kind], expected[kind], predicted[kind]) for kind in sorted(expected | predicted)}


def span_f1(
    gold: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str]],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """Micro-averaged F1 of spans; a span is correct if its kind and both ends match.

    >>> span_f1([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-PER"]]).value
    0.5
    """
    pairs = _paired_spans(gold, answers)
    units = [[2 * len(set(expected) & set(predicted)), len(expected) + len(predicted)] for expected, predicted in pairs]
    return measure(
        "span_f1",
        ratio,
        np.array(units, dtype=np.float64).reshape(-1, 2),
        bootstrap_samples=bootstrap_samples,
        seed=seed,
    )


def _paired_spans(
    gold: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]
) -> list[tuple[list[Span], list[Span]]]:
    check_pairs("span_f1", gold, answers)
    pairs = []
    for i, (gold_tags, predicted_tags) in enumerate(zip(gold, answers, strict=True)):
        if len(gold_tags) != len(predicted_tags):
            raise ValueError(
                f"Sentence {i} has {len(gold_tags)} gold tags but {len(predicted_tags)} predicted tags; one per word is needed."
            )
        pairs.append((extract_spans(gold_tags), extract_spans(predicted_tags)))
    return pairs


def _split_tag(tag: str) -> tuple[str, str]:
    prefix, _, kind = tag.partition("-")
    if prefix not in TAG_PREFIXES:
        raise ValueError(
            f"The tag {tag!r} is not O or B-, I-, E-, S- with a kind, such as B-PER; for other tags use accuracy."
        )
    return prefix, kind
