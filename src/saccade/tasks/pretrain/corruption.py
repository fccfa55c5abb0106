"""Corruption of texts for self-supervised pretraining (masking, span corruption): pure functions of tokens and noise.

Noise is uniform in [0, 1), with some channels for each token: from torch's global generator in training (`random_noise`), from a
seed per row in evaluation (`seeded_noise`). `word_ids` (B, L) number the words of each row from 0; -1 marks tokens that are never
corrupted, such as special tokens and padding.
"""

import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from saccade.data import Text
from saccade.tasks.base import Item

MASK_FRACTION, RANDOM_FRACTION = 0.8, 0.1  # of the selected tokens; the others are unchanged
Span = tuple[int, int]  # start and end (exclusive) in tokens


def random_noise(text: Text, channels: int) -> Tensor:
    """Uniform noise for each token, (channels, B, L), different in each call."""
    return torch.rand(channels, *text.tokens.shape, device=text.tokens.device)


def seeded_noise(text: Text, items: Sequence[Item], channels: int) -> Tensor:
    """Uniform noise for each token, (channels, B, L), seeded by the ids of each row, so that it does not depend on the batch."""
    out = torch.zeros(channels, *text.tokens.shape)
    for row, item in enumerate(items):
        generator = torch.Generator().manual_seed(zlib.crc32(np.ascontiguousarray(item.source).tobytes()))
        out[:, row, : len(item.source)] = torch.rand(channels, len(item.source), generator=generator)
    return out.to(text.tokens.device)


def count_masked(word_ids: Tensor, mask_ratio: float) -> Tensor:
    """The number of tokens to mask in each row, (B,): a fraction of those that can be masked, and at least one.

    >>> count_masked(torch.tensor([[-1, 0, 1, 2, 3, 4, 5, 6, -1], [-1, 0, -1, -1, -1, -1, -1, -1, -1]]), 0.3).tolist()
    [2, 1]
    """
    maskable = (word_ids >= 0).sum(1)
    return torch.round(maskable * mask_ratio).long().clamp(min=1).minimum(maskable)


def choose_masked(word_ids: Tensor, mask_ratio: float, order: Tensor) -> Tensor:
    """The mask of the selected tokens, (B, L): whole words in random order until there are enough tokens.

    The last word is selected if at least half of it fits. If each token is a word, exactly `count_masked` tokens are selected.

    >>> words = torch.tensor([[-1, 0, 0, 1, 2, 3, -1]])
    >>> choose_masked(words, 0.4, torch.tensor([[0.1, 0.9, 0.8, 0.7, 0.0, 0.0, 0.0]])).int().tolist()
    [[0, 1, 1, 0, 0, 0, 0]]
    """
    budget = count_masked(word_ids, mask_ratio)
    words = word_ids.clamp(min=0)
    keys = order.gather(1, words).masked_fill(
        word_ids < 0, 2.0
    )  # the same for all tokens of a word, to keep them together
    shuffled = keys.argsort(dim=1, stable=True)
    ranked = word_ids.gather(1, shuffled)
    index = torch.arange(word_ids.size(1), device=word_ids.device).expand_as(word_ids)
    begins = torch.ones_like(ranked, dtype=torch.bool)
    begins[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    first = torch.where(begins, index, 0).cummax(1).values  # the number of tokens before the word
    sizes = torch.zeros_like(word_ids).scatter_add(1, words, (word_ids >= 0).long()).gather(1, ranked.clamp(min=0))
    fits = (2 * first + sizes <= 2 * budget.unsqueeze(1)) | (first == 0)
    return torch.zeros_like(begins).scatter(1, shuffled, fits & (ranked >= 0))


def apply_mlm_mask(
    tokens: Tensor, selected: Tensor, action_noise: Tensor, token_noise: Tensor, *, mask_id: int, ordinary_ids: Tensor
) -> Tensor:
    """BERT's 80/10/10 rule: of the selected tokens 80 % become the mask, 10 % a random ordinary token, and 10 % are unchanged."""
    random_tokens = ordinary_ids[(token_noise * len(ordinary_ids)).long().clamp(max=len(ordinary_ids) - 1)]
    corrupted = torch.where(
        action_noise < MASK_FRACTION,
        mask_id,
        torch.where(action_noise < MASK_FRACTION + RANDOM_FRACTION, random_tokens, tokens),
    )
    return torch.where(selected, corrupted, tokens)


def choose_span_counts(length: int, mask_ratio: float, mean_span_length: float, *, max_spans: int) -> tuple[int, int]:
    """The number of tokens to remove from `length` tokens, and of spans: at least one of each, with a kept token between spans.

    >>> choose_span_counts(100, 0.15, 3.0, max_spans=100), choose_span_counts(1, 0.15, 3.0, max_spans=100)
    ((15, 5), (1, 1))
    """
    tokens = min(max(1, round(length * mask_ratio)), length)
    return tokens, max(1, min(round(tokens / mean_span_length), tokens, length - tokens + 1, max_spans))


def sample_spans(length: int, tokens: int, count: int, noise: np.ndarray) -> list[Span]:
    """`count` spans of `tokens` tokens in total, sampled uniformly over all ways to cut and to place them.

    No two spans are adjacent. `noise` has the shape (2, length or more).
    """
    cuts = np.sort(np.argsort(noise[0, : tokens - 1])[: count - 1]) + 1
    return _place_spans(length, np.diff([0, *cuts, tokens]), noise[1])


def sample_poisson_spans(length: int, mask_ratio: float, mean_span_length: float, noise: np.ndarray) -> list[Span]:
    """Spans of Poisson-distributed lengths that cover a fraction of all tokens; some are empty.

    No two spans are adjacent. `noise` has the shape (2, length or more).
    """
    tokens = min(max(1, round(length * mask_ratio)), length)
    sizes = np.searchsorted(_poisson_cdf(mean_span_length), noise[0, :length], side="right")
    cumulative = np.cumsum(sizes)
    count = int(np.searchsorted(cumulative, tokens)) + 1  # as many as are needed
    sizes = sizes[:count]
    sizes[-1] -= max(0, int(sizes.sum()) - tokens)
    spans = np.sort(np.argsort(-sizes, kind="stable")[: length - int(sizes.sum()) + 1])  # with a kept token between
    return _place_spans(length, sizes[spans], noise[1])


def _place_spans(length: int, sizes: np.ndarray, noise: np.ndarray) -> list[Span]:
    """Spans of these sizes, in this order, with at least one kept token between any two."""
    kept = length - int(sizes.sum())
    gaps = np.sort(np.argsort(noise[: kept + 1])[: len(sizes)])  # the number of kept tokens before each
    starts = gaps + np.cumsum(sizes) - sizes
    return [(int(start), int(start + size)) for start, size in zip(starts, sizes, strict=True)]


@cache
def _poisson_cdf(mean: float) -> np.ndarray:
    """The cumulative distribution function of the Poisson distribution at 0, 1, 2, ..., until it is almost 1."""
    terms, k = [np.exp(-mean)], 0
    while sum(terms) < 1 - 1e-9 and k < 10 * mean + 100:
        k += 1
        terms.append(terms[-1] * mean / k)
    return np.cumsum(terms)


def remove_spans(ids: np.ndarray, spans: Sequence[Span], sentinels: Sequence[int]) -> tuple[list[int], list[int]]:
    """The source with a sentinel in place of each span, and the target: each sentinel followed by the tokens of its span.

    >>> remove_spans(np.array([11, 12, 13, 14, 15]), [(1, 3), (4, 5)], [90, 91])
    ([11, 90, 14, 91], [90, 12, 13, 91, 15])
    """
    source, target, position = [], [], 0
    for (start, end), sentinel in zip(spans, sentinels, strict=False):  # there may be more sentinels than spans
        source += [*ids[position:start].tolist(), sentinel]
        target += [sentinel, *ids[start:end].tolist()]
        position = end
    return [*source, *ids[position:].tolist()], target


def restore_spans(read: Sequence[int], written: Sequence[int], sentinels: Sequence[int]) -> list[int]:
    """The original text from the source and the target of `remove_spans`.

    >>> restore_spans([11, 90, 14, 91], [90, 12, 13, 91, 15], [90, 91])
    [11, 12, 13, 14, 15]
    """
    sentinel_set, spans = set(sentinels), dict[int, list[int]]()
    for token in written:
        if token in sentinel_set:
            spans[token] = []
        elif spans:
            next(reversed(spans.values())).append(token)
    return [id for token in read for id in spans.get(token, [token] if token not in sentinel_set else [])]


def mask_spans(ids: np.ndarray, spans: Sequence[Span], mask_id: int) -> list[int]:
    """A text with one mask in place of each span; an empty span inserts a mask.

    >>> mask_spans(np.array([11, 12, 13]), [(0, 2), (3, 3)], 9)
    [9, 13, 9]
    """
    return remove_spans(ids, spans, [mask_id] * len(spans))[0]


def permute_sentences(sentence_ids: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The order of tokens (n,) after a random permutation of their units, such as sentences.

    >>> permute_sentences(np.array([0, 0, 1, 2, 2]), np.array([0.5, 0.9, 0.1, 0.0, 0.0])).tolist()
    [3, 4, 0, 1, 2]
    """
    return np.argsort(noise[sentence_ids], kind="stable")
