"""Which of two sentences a language model prefers, and by how much, in nats."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from saccade.audit.bias_datasets import GAP_MARKER, SentencePair, SentenceTriple
from saccade.audit.likelihood import ScoredRow, causal_logprobs, masked_logprobs, prefix_ids, truncate_ids
from saccade.audit.suite import AuditSubject
from saccade.models.model import Model
from saccade.tasks.base import require_tokenizer


def is_masked_lm(subject: AuditSubject) -> bool:
    """Whether a model fills in masks; otherwise it writes."""
    return subject.need_model().head_name == "lm"


@dataclass(frozen=True)
class Preferences:
    """How much likelier the stereotype is than the other sentence of each pair, (N,).

    `shared` counts the tokens that both sentences have, so that it does not matter how frequent the words for a group are;
    `whole` counts all tokens, and is None for a reader, which has no likelihood of a whole sentence.
    """

    shared_tokens: np.ndarray
    all_tokens: np.ndarray | None = None


def measure_preferences(subject: AuditSubject, pairs: Sequence[SentencePair]) -> Preferences:
    """What a model prefers in each pair."""
    model = subject.need_model()
    if is_masked_lm(subject):
        return Preferences(_masked_preferences(subject, pairs))
    rows = [_causal_row(model, "", sentence) for pair in pairs for sentence in (pair.stereotype, pair.anti_stereotype)]
    found = causal_logprobs(model, rows, subject.on_progress)
    whole, shared = np.zeros(len(pairs)), np.zeros(len(pairs))
    for i, ((one, one_nats), (other, other_nats)) in enumerate(_pair_rows(list(zip(rows, found, strict=True)))):
        whole[i] = sum(one_nats) - sum(other_nats)
        first, second = (
            dict(zip(one.positions, one_nats, strict=True)),
            dict(zip(other.positions, other_nats, strict=True)),
        )
        both = [(a, b) for a, b in match_tokens(one.ids, other.ids) if a in first and b in second]
        shared[i] = sum(first[a] - second[b] for a, b in both)
    return Preferences(shared, whole)


def _pair_rows(
    rows: list[tuple[ScoredRow, list[float]]],
) -> Iterator[tuple[tuple[ScoredRow, list[float]], tuple[ScoredRow, list[float]]]]:
    return zip(rows[0::2], rows[1::2], strict=True)


def match_tokens(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    """The places of the tokens that two rows of ids have in common, in order.

    >>> match_tokens([1, 2, 3, 9, 4], [1, 7, 3, 4])
    [(0, 0), (2, 2), (4, 3)]
    """
    blocks = SequenceMatcher(None, list(one), list(other), autojunk=False).get_matching_blocks()
    return [(a + k, b + k) for a, b, size in blocks for k in range(size)]


def _causal_row(model: Model, before: str, sentence: str) -> ScoredRow:
    """A sentence after what stands before it; the tokens of the sentence are asked for."""
    tokenizer = require_tokenizer(model)
    front = prefix_ids(model) + (tokenizer.encode(before, add_special_tokens=False).ids if before else [])
    ids = truncate_ids(
        front + tokenizer.encode(f" {sentence}" if before else sentence, add_special_tokens=False).ids, model
    )
    return ScoredRow(tuple(ids), tuple(range(max(1, len(front)), len(ids))))


def _masked_preferences(subject: AuditSubject, pairs: Sequence[SentencePair]) -> np.ndarray:
    """Of a reader: the tokens that both sentences have, each hidden alone."""
    model = subject.need_model()
    rows: list[ScoredRow] = []
    owners: list[int] = []
    for number, pair in enumerate(pairs):
        one, other = (_encode_sentence(model, sentence) for sentence in (pair.stereotype, pair.anti_stereotype))
        both = match_tokens(one[0], other[0])
        for side, (ids, special) in enumerate((one, other)):
            places = [pair_of[side] for pair_of in both if not special[pair_of[side]]]
            rows += [ScoredRow(tuple(ids), (place,), (place,)) for place in places]
            owners += [2 * number + side] * len(places)
    found = np.array([one[0] for one in masked_logprobs(model, rows, subject.on_progress)])
    sums = np.bincount(owners, found, minlength=2 * len(pairs))
    return sums[0::2] - sums[1::2]


def _encode_sentence(model: Model, sentence: str, before: str | None = None) -> tuple[list[int], list[bool]]:
    """The ids of a sentence as a reader gets it, and which of them were put around it."""
    tokenizer = require_tokenizer(model)
    found = tokenizer.encode(sentence) if before is None else tokenizer.encode(before, sentence)
    ids = truncate_ids(found.ids, model)
    return ids, list(found.special_tokens_mask)[: len(ids)]


def score_triples(subject: AuditSubject, triples: Sequence[SentenceTriple]) -> np.ndarray:
    """The mean log-likelihood of what fills or follows each context, (N, 3): stereotype, its opposite, nonsense."""
    model = subject.need_model()
    given = [(one, sentence) for one in triples for sentence in (one.stereotype, one.anti_stereotype, one.unrelated)]
    if not is_masked_lm(subject):
        rows = [_causal_row(model, "" if one.has_gap else one.context, sentence) for one, sentence in given]
        means = [float(np.mean(found)) if found else 0.0 for found in causal_logprobs(model, rows, subject.on_progress)]
        return np.array(means).reshape(-1, 3)
    rows, owners = [], []
    for number, (one, sentence) in enumerate(given):
        made = (
            _gap_rows(model, one.context, sentence) if one.has_gap else _continuation_rows(model, one.context, sentence)
        )
        rows += made
        owners += [number] * len(made)
    found = np.array([one[0] for one in masked_logprobs(model, rows, subject.on_progress)])
    counts = np.maximum(1, np.bincount(owners, minlength=len(given)))
    return (np.bincount(owners, found, minlength=len(given)) / counts).reshape(-1, 3)


def _gap_rows(model: Model, context: str, sentence: str) -> list[ScoredRow]:
    """The tokens in the gap from left to right: each is asked for while it and those after it are hidden."""
    tokenizer = require_tokenizer(model)
    found = tokenizer.encode(sentence)
    before, after = context.split(GAP_MARKER, 1)
    start, end = len(before), len(sentence) - len(after)
    ids, special = truncate_ids(found.ids, model), list(found.special_tokens_mask)
    gap = [i for i in range(len(ids)) if not special[i] and found.offsets[i][1] > start and found.offsets[i][0] < end]
    return [ScoredRow(tuple(ids), (place,), tuple(gap[k:])) for k, place in enumerate(gap)]


def _continuation_rows(model: Model, context: str, sentence: str) -> list[ScoredRow]:
    """Each token of the second sentence, hidden alone."""
    ids, special = _encode_sentence(model, sentence, context)
    first = len(_encode_sentence(model, context)[0])
    segments = require_tokenizer(model).encode(context, sentence).segment_ids
    apart = any(segments)  # otherwise the second begins where the first would end
    places = [i for i in range(len(ids)) if not special[i] and (segments[i] == 1 if apart else i >= first)]
    return [ScoredRow(tuple(ids), (place,), (place,)) for place in places]
