"""Spans in tagged words, found and counted by the rules of conlleval, the script of the CoNLL shared tasks.

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
    """Words from `start` up to but not including `end`, and what they are."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class SpanCounts:
    """How many spans are right, in the gold, and among the answers."""

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
    """The spans of one sentence; an I- with nothing of its kind before it begins a span, as conlleval has it.

    >>> extract_spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [Span(start=0, end=2, kind='PER'), Span(start=3, end=4, kind='LOC'), Span(start=4, end=5, kind='LOC')]
    >>> extract_spans(["B-PER", "I-LOC"])
    [Span(start=0, end=1, kind='PER'), Span(start=1, end=2, kind='LOC')]
    """
    found: list[Span] = []
    start, before, kind = 0, "O", ""
    for i, (prefix, what) in enumerate([*map(_split_tag, tags), ("O", "")]):
        begins = prefix != "O" and (prefix in "BS" or before in "OES" or what != kind)
        if before != "O" and (begins or prefix == "O"):
            found.append(Span(start, i, kind))
        if begins:
            start = i
        before, kind = prefix, what
    return found


def count_spans(gold: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]) -> dict[str, SpanCounts]:
    """The counts of each kind of span."""
    right, there, said = Counter[str](), Counter[str](), Counter[str]()
    for wanted, got in _paired_spans(gold, answers):
        there.update(span.kind for span in wanted)
        said.update(span.kind for span in got)
        right.update(span.kind for span in set(wanted) & set(got))
    return {kind: SpanCounts(right[kind], there[kind], said[kind]) for kind in sorted(there | said)}


def span_f1(
    gold: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str]],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """F1 of whole spans, kind and both ends right, over all kinds together.

    >>> span_f1([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-PER"]]).value
    0.5
    """
    units = [[2 * len(set(wanted) & set(got)), len(wanted) + len(got)] for wanted, got in _paired_spans(gold, answers)]
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
    for i, (right, said) in enumerate(zip(gold, answers, strict=True)):
        if len(right) != len(said):
            raise ValueError(
                f"Sentence {i} has {len(right)} gold tags but {len(said)} answers; a tag for each word is needed."
            )
        pairs.append((extract_spans(right), extract_spans(said)))
    return pairs


def _split_tag(tag: str) -> tuple[str, str]:
    prefix, _, kind = tag.partition("-")
    if prefix not in TAG_PREFIXES:
        raise ValueError(f"The tag {tag!r} is none of B-, I-, E-, S- with a kind, or O; for other tags use accuracy.")
    return prefix, kind
