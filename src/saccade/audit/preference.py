"""Which of two sentences a language model prefers, and by how much, in nats."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from saccade.audit.likelihood import Row, beginning, fit, hidden, written
from saccade.audit.sentences import BLANK, Pair, Triple
from saccade.audit.suite import Subject
from saccade.models.model import Model
from saccade.tasks.task import need_tokenizer


def reads(subject: Subject) -> bool:
    """Whether a model fills in masks; otherwise it writes."""
    return subject.need_model().kind == "words"


@dataclass(frozen=True)
class Preferences:
    """How much likelier the stereotype is than the other sentence of each pair, (N,).

    `shared` counts the tokens that both sentences have, so that it does not matter how frequent the words for a group are;
    `whole` counts all tokens, and is None for a reader, which has no likelihood of a whole sentence.
    """

    shared: np.ndarray
    whole: np.ndarray | None = None


def preferences(subject: Subject, pairs: Sequence[Pair]) -> Preferences:
    """What a model prefers in each pair."""
    model = subject.need_model()
    if reads(subject):
        return Preferences(_hidden(subject, pairs))
    rows = [_written_row(model, "", sentence) for pair in pairs for sentence in (pair.stereotype, pair.other)]
    found = written(model, rows, subject.told)
    whole, shared = np.zeros(len(pairs)), np.zeros(len(pairs))
    for i, ((one, one_nats), (other, other_nats)) in enumerate(_twos(list(zip(rows, found, strict=True)))):
        whole[i] = sum(one_nats) - sum(other_nats)
        first, second = dict(zip(one.places, one_nats, strict=True)), dict(zip(other.places, other_nats, strict=True))
        both = [(a, b) for a, b in same(one.ids, other.ids) if a in first and b in second]
        shared[i] = sum(first[a] - second[b] for a, b in both)
    return Preferences(shared, whole)


def _twos(rows: list[tuple[Row, list[float]]]) -> Iterator[tuple[tuple[Row, list[float]], tuple[Row, list[float]]]]:
    return zip(rows[0::2], rows[1::2], strict=True)


def same(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    """The places of the tokens that two rows of ids have in common, in order.

    >>> same([1, 2, 3, 9, 4], [1, 7, 3, 4])
    [(0, 0), (2, 2), (4, 3)]
    """
    blocks = SequenceMatcher(None, list(one), list(other), autojunk=False).get_matching_blocks()
    return [(a + k, b + k) for a, b, size in blocks for k in range(size)]


def _written_row(model: Model, before: str, sentence: str) -> Row:
    """A sentence after what stands before it; the tokens of the sentence are asked for."""
    tokenizer = need_tokenizer(model)
    front = beginning(model) + (tokenizer.encode(before, special=False).ids if before else [])
    ids = fit(front + tokenizer.encode(f" {sentence}" if before else sentence, special=False).ids, model)
    return Row(tuple(ids), tuple(range(max(1, len(front)), len(ids))))


def _hidden(subject: Subject, pairs: Sequence[Pair]) -> np.ndarray:
    """Of a reader: the tokens that both sentences have, each hidden alone."""
    model = subject.need_model()
    rows: list[Row] = []
    owners: list[int] = []
    for number, pair in enumerate(pairs):
        one, other = (_ids(model, sentence) for sentence in (pair.stereotype, pair.other))
        both = same(one[0], other[0])
        for side, (ids, special) in enumerate((one, other)):
            places = [pair_of[side] for pair_of in both if not special[pair_of[side]]]
            rows += [Row(tuple(ids), (place,), (place,)) for place in places]
            owners += [2 * number + side] * len(places)
    found = np.array([one[0] for one in hidden(model, rows, subject.told)])
    sums = np.bincount(owners, found, minlength=2 * len(pairs))
    return sums[0::2] - sums[1::2]


def _ids(model: Model, sentence: str, before: str | None = None) -> tuple[list[int], list[bool]]:
    """The ids of a sentence as a reader gets it, and which of them were put around it."""
    tokenizer = need_tokenizer(model)
    found = tokenizer.encode(sentence) if before is None else tokenizer.encode(before, sentence)
    ids = fit(found.ids, model)
    return ids, list(found.special)[: len(ids)]


def triple_scores(subject: Subject, triples: Sequence[Triple]) -> np.ndarray:
    """The mean log-likelihood of what fills or follows each context, (N, 3): stereotype, its opposite, nonsense."""
    model = subject.need_model()
    given = [(one, sentence) for one in triples for sentence in (one.stereotype, one.other, one.unrelated)]
    if not reads(subject):
        rows = [_written_row(model, "" if one.gap else one.context, sentence) for one, sentence in given]
        means = [float(np.mean(found)) if found else 0.0 for found in written(model, rows, subject.told)]
        return np.array(means).reshape(-1, 3)
    rows, owners = [], []
    for number, (one, sentence) in enumerate(given):
        made = _filled(model, one.context, sentence) if one.gap else _followed(model, one.context, sentence)
        rows += made
        owners += [number] * len(made)
    found = np.array([one[0] for one in hidden(model, rows, subject.told)])
    counts = np.maximum(1, np.bincount(owners, minlength=len(given)))
    return (np.bincount(owners, found, minlength=len(given)) / counts).reshape(-1, 3)


def _filled(model: Model, context: str, sentence: str) -> list[Row]:
    """The tokens in the gap from left to right: each is asked for while it and those after it are hidden."""
    tokenizer = need_tokenizer(model)
    found = tokenizer.encode(sentence)
    before, after = context.split(BLANK, 1)
    start, end = len(before), len(sentence) - len(after)
    ids, special = fit(found.ids, model), list(found.special)
    gap = [i for i in range(len(ids)) if not special[i] and found.offsets[i][1] > start and found.offsets[i][0] < end]
    return [Row(tuple(ids), (place,), tuple(gap[k:])) for k, place in enumerate(gap)]


def _followed(model: Model, context: str, sentence: str) -> list[Row]:
    """Each token of the second sentence, hidden alone."""
    ids, special = _ids(model, sentence, context)
    first = len(_ids(model, context)[0])
    segments = need_tokenizer(model).encode(context, sentence).segments
    apart = any(segments)  # otherwise the second begins where the first would end
    places = [i for i in range(len(ids)) if not special[i] and (segments[i] == 1 if apart else i >= first)]
    return [Row(tuple(ids), (place,), (place,)) for place in places]
