"""Preferences of a language model between two sentences: the difference of their log-likelihoods, in nats."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from saccade.audit.bias_datasets import GAP_MARKER, SentencePair, SentenceTriple
from saccade.audit.likelihood import ScoredRow, causal_logprobs, masked_logprobs, prefix_ids, truncate_ids
from saccade.audit.suite import AuditSubject
from saccade.models.model import Model
from saccade.tasks.base import require_tokenizer


def is_masked_lm(subject: AuditSubject) -> bool:
    """Whether the model is a masked language model; otherwise it is a causal one."""
    return subject.need_model().head_name == "lm"


@dataclass(frozen=True)
class Preferences:
    """The log-likelihood of the stereotype minus that of the other sentence, for each pair, (N,).

    `shared_tokens` sums over the tokens that both sentences have, so the frequency of the words for a group has no influence.
    `all_tokens` sums over all tokens; it is None for a masked language model, which defines no likelihood of a sentence.
    """

    shared_tokens: np.ndarray
    all_tokens: np.ndarray | None = None


def measure_preferences(subject: AuditSubject, pairs: Sequence[SentencePair]) -> Preferences:
    """The preference of the model in each pair."""
    model = subject.need_model()
    if is_masked_lm(subject):
        return Preferences(_masked_preferences(subject, pairs))
    rows = [_causal_row(model, "", sentence) for pair in pairs for sentence in (pair.stereotype, pair.anti_stereotype)]
    logprobs = [
        dict(zip(row.positions, values, strict=True))
        for row, values in zip(rows, causal_logprobs(model, rows, subject.on_progress), strict=True)
    ]
    all_tokens, shared_tokens = np.zeros(len(pairs)), np.zeros(len(pairs))
    for i in range(len(pairs)):
        first, second = logprobs[2 * i], logprobs[2 * i + 1]
        all_tokens[i] = sum(first.values()) - sum(second.values())
        matches = match_tokens(rows[2 * i].ids, rows[2 * i + 1].ids)
        shared_tokens[i] = sum(first[a] - second[b] for a, b in matches if a in first and b in second)
    return Preferences(shared_tokens, all_tokens)


def match_tokens(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    """The positions of the tokens that two sequences of ids have in common, in order.

    >>> match_tokens([1, 2, 3, 9, 4], [1, 7, 3, 4])
    [(0, 0), (2, 2), (4, 3)]
    """
    blocks = SequenceMatcher(None, list(one), list(other), autojunk=False).get_matching_blocks()
    return [(a + k, b + k) for a, b, size in blocks for k in range(size)]


def _causal_row(model: Model, context: str, sentence: str) -> ScoredRow:
    """A sentence after its context, of which the tokens of the sentence are scored."""
    tokenizer = require_tokenizer(model)
    prefix = prefix_ids(model) + (tokenizer.encode(context, add_special_tokens=False).ids if context else [])
    sentence_ids = tokenizer.encode(f" {sentence}" if context else sentence, add_special_tokens=False).ids
    ids = truncate_ids(prefix + sentence_ids, model)
    return ScoredRow(tuple(ids), tuple(range(max(1, len(prefix)), len(ids))))


def _masked_preferences(subject: AuditSubject, pairs: Sequence[SentencePair]) -> np.ndarray:
    """Preferences by pseudo-log-likelihood: the tokens that both sentences have, each masked alone."""
    model = subject.need_model()
    rows: list[ScoredRow] = []
    owners: list[int] = []
    for number, pair in enumerate(pairs):
        one, other = (_encode_sentence(model, sentence) for sentence in (pair.stereotype, pair.anti_stereotype))
        matches = match_tokens(one[0], other[0])
        for side, (ids, special) in enumerate((one, other)):
            positions = [match[side] for match in matches if not special[match[side]]]
            rows += [ScoredRow(tuple(ids), (position,), (position,)) for position in positions]
            owners += [2 * number + side] * len(positions)
    logprobs = np.array([values[0] for values in masked_logprobs(model, rows, subject.on_progress)])
    sums = np.bincount(owners, logprobs, minlength=2 * len(pairs))
    return sums[0::2] - sums[1::2]


def _encode_sentence(model: Model, sentence: str, context: str | None = None) -> tuple[list[int], list[bool]]:
    """The ids of a sentence, or of a context and a sentence as a pair, and which of them are special tokens."""
    tokenizer = require_tokenizer(model)
    encoding = tokenizer.encode(sentence) if context is None else tokenizer.encode(context, sentence)
    ids = truncate_ids(encoding.ids, model)
    return ids, list(encoding.special_tokens_mask)[: len(ids)]


def score_triples(subject: AuditSubject, triples: Sequence[SentenceTriple]) -> np.ndarray:
    """The mean log-likelihood per token of the three sentences of each item, (N, 3): stereotype, opposite, unrelated."""
    model = subject.need_model()
    items = [
        (triple, text) for triple in triples for text in (triple.stereotype, triple.anti_stereotype, triple.unrelated)
    ]
    if not is_masked_lm(subject):
        rows = [_causal_row(model, "" if triple.has_gap else triple.context, text) for triple, text in items]
        logprobs = causal_logprobs(model, rows, subject.on_progress)
        return np.array([float(np.mean(values)) if values else 0.0 for values in logprobs]).reshape(-1, 3)
    rows, owners = [], []
    for number, (triple, text) in enumerate(items):
        make_rows = _gap_rows if triple.has_gap else _continuation_rows
        item_rows = make_rows(model, triple.context, text)
        rows += item_rows
        owners += [number] * len(item_rows)
    logprobs = np.array([values[0] for values in masked_logprobs(model, rows, subject.on_progress)])
    counts = np.maximum(1, np.bincount(owners, minlength=len(items)))
    return (np.bincount(owners, logprobs, minlength=len(items)) / counts).reshape(-1, 3)


def _gap_rows(model: Model, context: str, sentence: str) -> list[ScoredRow]:
    """The tokens in the gap from left to right: each is scored with itself and the tokens after it in the gap masked."""
    encoding = require_tokenizer(model).encode(sentence)
    before, after = context.split(GAP_MARKER, 1)
    start, end = len(before), len(sentence) - len(after)
    ids, special, spans = truncate_ids(encoding.ids, model), list(encoding.special_tokens_mask), encoding.offsets
    gap = [i for i in range(len(ids)) if not special[i] and spans[i][1] > start and spans[i][0] < end]
    return [ScoredRow(tuple(ids), (position,), tuple(gap[k:])) for k, position in enumerate(gap)]


def _continuation_rows(model: Model, context: str, sentence: str) -> list[ScoredRow]:
    """The tokens of the second sentence, each masked alone."""
    ids, special = _encode_sentence(model, sentence, context)
    first = len(_encode_sentence(model, context)[0])
    segments = require_tokenizer(model).encode(context, sentence).segment_ids
    has_segments = any(segments)  # otherwise the second sentence begins where the first one alone would end
    positions = [i for i in range(len(ids)) if not special[i] and (segments[i] == 1 if has_segments else i >= first)]
    return [ScoredRow(tuple(ids), (position,), (position,)) for position in positions]
