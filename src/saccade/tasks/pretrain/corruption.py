"""How texts are spoilt so that a model can learn to mend them: pure functions of tokens and of chance.

Chance is handed in as numbers from 0 to 1, some for each token: from torch's own generator where a model learns (`drawn`), from
a seed of each row's own where it is scored (`fixed`). Tokens have numbers, (B, L): of the words they belong to, counted from 0
in each row, and -1 for what is never touched: special tokens, padding.
"""

import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from saccade.data import Text
from saccade.tasks.base import Item

MASK_FRACTION, RANDOM_FRACTION = 0.8, 0.1  # of the chosen tokens; the others stay
Span = tuple[int, int]  # from the first token of a stretch to the one after its last


def random_noise(text: Text, channels: int) -> Tensor:
    """Numbers from 0 to 1 for each token, (kinds, B, L), other ones at each call."""
    return torch.rand(channels, *text.tokens.shape, device=text.tokens.device)


def seeded_noise(text: Text, items: Sequence[Item], channels: int) -> Tensor:
    """The same numbers for a text whenever and beside whatever it is read: their seed is made of its ids."""
    out = torch.zeros(channels, *text.tokens.shape)
    for row, item in enumerate(items):
        chance = torch.Generator().manual_seed(zlib.crc32(np.ascontiguousarray(item.source).tobytes()))
        out[:, row, : len(item.source)] = torch.rand(channels, len(item.source), generator=chance)
    return out.to(text.tokens.device)


def count_masked(word_ids: Tensor, mask_ratio: float) -> Tensor:
    """How many tokens of each row are hidden, (B,): a share of those that can be, and one at least.

    >>> count_masked(torch.tensor([[-1, 0, 1, 2, 3, 4, 5, 6, -1], [-1, 0, -1, -1, -1, -1, -1, -1, -1]]), 0.3).tolist()
    [2, 1]
    """
    can = (word_ids >= 0).sum(1)
    return torch.round(can * mask_ratio).long().clamp(min=1).minimum(can)


def choose_masked(word_ids: Tensor, mask_ratio: float, order: Tensor) -> Tensor:
    """Which tokens are hidden, (B, L): whole words in the order that chance gives them, until there are enough tokens.

    A word on the border is taken if half of it fits. Where each token is a word, exactly `asked` are chosen.

    >>> words = torch.tensor([[-1, 0, 0, 1, 2, 3, -1]])
    >>> choose_masked(words, 0.4, torch.tensor([[0.1, 0.9, 0.8, 0.7, 0.0, 0.0, 0.0]])).int().tolist()
    [[0, 1, 1, 0, 0, 0, 0]]
    """
    some = count_masked(word_ids, mask_ratio)
    at = word_ids.clamp(min=0)
    dice = order.gather(1, at).masked_fill(word_ids < 0, 2.0)  # one number for all tokens of a word: they stay together
    place = dice.argsort(dim=1, stable=True)
    ranked = word_ids.gather(1, place)
    count = torch.arange(word_ids.size(1), device=word_ids.device).expand_as(word_ids)
    begins = torch.ones_like(ranked, dtype=torch.bool)
    begins[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    first = torch.where(begins, count, 0).cummax(1).values  # how many tokens come before the word
    sizes = torch.zeros_like(word_ids).scatter_add(1, at, (word_ids >= 0).long()).gather(1, ranked.clamp(min=0))
    fits = (2 * first + sizes <= 2 * some.unsqueeze(1)) | (first == 0)
    return torch.zeros_like(begins).scatter(1, place, fits & (ranked >= 0))


def apply_mlm_mask(
    tokens: Tensor, selected: Tensor, action_noise: Tensor, token_noise: Tensor, *, mask_id: int, ordinary_ids: Tensor
) -> Tensor:
    """BERT's noise: of the hidden tokens 80 % become the mask, 10 % any word of `plain`, and 10 % stay as they are."""
    words = ordinary_ids[(token_noise * len(ordinary_ids)).long().clamp(max=len(ordinary_ids) - 1)]
    spoilt = torch.where(
        action_noise < MASK_FRACTION,
        mask_id,
        torch.where(action_noise < MASK_FRACTION + RANDOM_FRACTION, words, tokens),
    )
    return torch.where(selected, spoilt, tokens)


def choose_span_counts(length: int, mask_ratio: float, mean_span_length: float, *, max_spans: int) -> tuple[int, int]:
    """How many of so many tokens are taken out, and in how many stretches: at least one of each, and a token stays between.

    >>> choose_span_counts(100, 0.15, 3.0, max_spans=100), choose_span_counts(1, 0.15, 3.0, max_spans=100)
    ((15, 5), (1, 1))
    """
    tokens = min(max(1, round(length * mask_ratio)), length)
    return tokens, max(1, min(round(tokens / mean_span_length), tokens, length - tokens + 1, max_spans))


def sample_spans(length: int, tokens: int, count: int, noise: np.ndarray) -> list[Span]:
    """`count` stretches that have `tokens` tokens together, each way to cut and to place them as likely as any other.

    No two of them touch. `chance` is (2, length or more).
    """
    cuts = np.sort(np.argsort(noise[0, : tokens - 1])[: count - 1]) + 1
    return _place_spans(length, np.diff([0, *cuts, tokens]), noise[1])


def sample_poisson_spans(length: int, mask_ratio: float, mean_span_length: float, noise: np.ndarray) -> list[Span]:
    """Stretches of Poisson lengths with that mean, a share of all tokens together; some have no token at all.

    No two of them touch. `chance` is (2, length or more).
    """
    tokens = min(max(1, round(length * mask_ratio)), length)
    sizes = np.searchsorted(_poisson_cdf(mean_span_length), noise[0, :length], side="right")
    total = np.cumsum(sizes)
    count = int(np.searchsorted(total, tokens)) + 1  # enough of them
    sizes = sizes[:count]
    sizes[-1] -= max(0, int(sizes.sum()) - tokens)
    fit = np.sort(np.argsort(-sizes, kind="stable")[: length - int(sizes.sum()) + 1])  # a token stays between
    return _place_spans(length, sizes[fit], noise[1])


def _place_spans(length: int, sizes: np.ndarray, noise: np.ndarray) -> list[Span]:
    """Stretches of these sizes, in this order, with a kept token between any two."""
    kept = length - int(sizes.sum())
    gaps = np.sort(np.argsort(noise[: kept + 1])[: len(sizes)])  # after how many of the kept tokens each begins
    starts = gaps + np.cumsum(sizes) - sizes
    return [(int(start), int(start + size)) for start, size in zip(starts, sizes, strict=True)]


@cache
def _poisson_cdf(mean: float) -> np.ndarray:
    """How likely a Poisson number is at most 0, 1, 2 and so on, until nothing is missing."""
    terms, k = [np.exp(-mean)], 0
    while sum(terms) < 1 - 1e-9 and k < 10 * mean + 100:
        k += 1
        terms.append(terms[-1] * mean / k)
    return np.cumsum(terms)


def remove_spans(ids: np.ndarray, spans: Sequence[Span], sentinels: Sequence[int]) -> tuple[list[int], list[int]]:
    """A text with a mark for each stretch, and the marks, each followed by what it stands for.

    >>> remove_spans(np.array([11, 12, 13, 14, 15]), [(1, 3), (4, 5)], [90, 91])
    ([11, 90, 14, 91], [90, 12, 13, 91, 15])
    """
    read, written, at = [], [], 0
    for (start, end), mark in zip(spans, sentinels, strict=False):  # there may be more marks than stretches
        read += [*ids[at:start].tolist(), mark]
        written += [mark, *ids[start:end].tolist()]
        at = end
    return [*read, *ids[at:].tolist()], written


def restore_spans(read: Sequence[int], written: Sequence[int], sentinels: Sequence[int]) -> list[int]:
    """The text of which `taken_out` made two.

    >>> restore_spans([11, 90, 14, 91], [90, 12, 13, 91, 15], [90, 91])
    [11, 12, 13, 14, 15]
    """
    known, found = set(sentinels), dict[int, list[int]]()
    for token in written:
        if token in known:
            found[token] = []
        elif found:
            next(reversed(found.values())).append(token)
    return [id for token in read for id in found.get(token, [token] if token not in known else [])]


def mask_spans(ids: np.ndarray, spans: Sequence[Span], mask_id: int) -> list[int]:
    """A text with one mask for each stretch, however long; one without tokens puts a mask between two others.

    >>> mask_spans(np.array([11, 12, 13]), [(0, 2), (3, 3)], 9)
    [9, 13, 9]
    """
    return remove_spans(ids, spans, [mask_id] * len(spans))[0]


def permute_sentences(sentence_ids: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The order of tokens (n,) when units, such as sentences, are put in the order that chance gives them.

    >>> permute_sentences(np.array([0, 0, 1, 2, 2]), np.array([0.5, 0.9, 0.1, 0.0, 0.0])).tolist()
    [3, 4, 0, 1, 2]
    """
    return np.argsort(noise[sentence_ids], kind="stable")
