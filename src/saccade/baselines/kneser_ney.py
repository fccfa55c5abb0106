"""N-gram language model with interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998; Kneser and Ney 1995).

For a context h of n - 1 symbols, with h' its last n - 2 and c the count of an n-gram:

    p(w | h) = max(0, c(hw) - D(c(hw))) / c(h) + gamma(h) · p(w | h')

c is the count in the text for the longest n-grams, and below them the number of different symbols that precede the n-gram. D is
D1, D2 or D3 for a count of 1, 2, or 3 and more; they follow from the counts of counts. gamma(h) is what the discounts free, and
below single symbols is the uniform distribution. A context that was never seen leaves it to the shorter one.

The n-grams are a tree in sorted arrays: the key of an n-gram is the number of its first n - 1 symbols times V plus its last, so
every order is counted, and every position of a text looked up, in one vectorized pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

UNKNOWN = -1  # the number of an n-gram that was never seen
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)  # for a text without n-grams that occur once, twice, three or four times
CHUNK = 4096  # positions whose distributions are computed at a time
DEFAULT_FOLDS = 10  # of cross-fitting


@dataclass(frozen=True)
class _Order:
    """The n-grams of one length."""

    keys: np.ndarray  # (N,) sorted: number of the context x V + last symbol
    shares: np.ndarray  # (N,) discounted count / total of the context
    starts: np.ndarray  # (C + 1,) the n-grams that extend context i are starts[i] to starts[i + 1]
    backoff: np.ndarray  # (C,) gamma of each context; 1 for one that nothing follows


class KneserNey:
    """An n-gram model over the symbols 0 to V - 1: bytes, characters or words.

    >>> text = np.frombuffer(b"abracadabra " * 20, np.uint8)
    >>> model = KneserNey.fit(text, order=3, vocab=256)
    >>> probabilities = model.distributions(text[:4])  # after nothing, "a", "ab" and "abr"
    >>> chr(probabilities[3].argmax()), round(float(probabilities[3].sum()), 6)
    ('a', 1.0)
    """

    def __init__(self, orders: list[_Order], vocab: int):
        self.orders, self.vocab = orders, vocab

    @classmethod
    def fit(cls, symbols: np.ndarray, *, order: int, vocab: int) -> Self:
        """Count the n-grams of a text up to length `order`."""
        if order < 1 or len(symbols) < order:
            raise ValueError(f"An n-gram model of order {order} needs a text of at least {max(1, order)} symbols.")
        text = np.asarray(symbols, np.int64)
        if text.min() < 0 or text.max() >= vocab:
            raise ValueError(
                f"Symbols range from {text.min()} to {text.max()}; with vocab {vocab} they are 0 to {vocab - 1}."
            )
        ids = np.zeros(
            len(text) + 1, np.int64
        )  # of the n-gram that begins at each position; all begin with the empty one
        keys, counts, first, ids_of = [], [], [], [ids]
        for length in range(1, order + 1):
            grams = ids[: len(text) - length + 1] * vocab + text[length - 1 :]
            unique, places, ids, count = np.unique(grams, return_index=True, return_inverse=True, return_counts=True)
            keys.append(unique)
            counts.append(count)
            first.append(places)
            ids_of.append(ids)
        for length in range(1, order):  # continuation counts: how many different symbols precede the n-gram
            suffixes = ids_of[length][first[length] + 1]
            counts[length - 1] = np.bincount(suffixes, minlength=len(keys[length - 1]))
        contexts = [1, *map(len, keys)]
        return cls([_smooth(*parts, vocab) for parts in zip(keys, counts, contexts[:-1], strict=True)], vocab)

    def log_probabilities(self, symbols: np.ndarray, skip: int = 0) -> np.ndarray:
        """The natural logarithm of the probability of each symbol after those before it; the first `skip` are only context."""
        text = np.asarray(symbols, np.int64)
        probability = np.full(len(text), 1 / self.vocab)
        for order, contexts in zip(self.orders, self._find_contexts(text), strict=True):
            seen = np.flatnonzero(contexts != UNKNOWN)
            places, found = _find(order.keys, contexts[seen] * self.vocab + text[seen])
            probability[seen] = order.backoff[contexts[seen]] * probability[seen] + np.where(
                found, order.shares[places], 0
            )
        return np.log(probability[skip:])

    def distributions(self, symbols: np.ndarray, skip: int = 0) -> np.ndarray:
        """The distribution over all symbols at each position, given those before it, (L - skip, V) in float32."""
        text = np.asarray(symbols, np.int64)
        contexts = [part[skip:] for part in self._find_contexts(text)]
        out = np.empty((len(text) - skip, self.vocab), np.float32)
        for start in range(0, len(out), CHUNK):
            rows = np.full((min(CHUNK, len(out) - start), self.vocab), 1 / self.vocab)
            for order, part in zip(self.orders, contexts, strict=True):
                _interpolate(rows, order, part[start : start + CHUNK], self.vocab)
            out[start : start + CHUNK] = rows
        return out

    def _find_contexts(self, text: np.ndarray) -> Iterator[np.ndarray]:
        """For each order the number of the context of every position; UNKNOWN if it was never seen, or the text is too short."""
        ids = np.zeros(len(text), np.int64)  # of the context that begins `length` symbols before each position
        yield ids
        for length, order in enumerate(self.orders[:-1], 1):
            # the context that ends before position t extends the one, shorter by its last symbol, that ended before t - 1
            contexts = np.full(len(text), UNKNOWN)
            contexts[length:] = ids[length - 1 : -1]
            seen = np.flatnonzero(contexts != UNKNOWN)
            places, found = _find(order.keys, contexts[seen] * self.vocab + text[seen - 1])
            ids = np.full(len(text), UNKNOWN)
            ids[seen] = np.where(found, places, UNKNOWN)
            yield ids


def cross_fit(symbols: np.ndarray, *, order: int, vocab: int, folds: int = DEFAULT_FOLDS) -> Iterator[np.ndarray]:
    """Yield the distributions of each contiguous block of a training text, by the model of all other blocks.

    The model of the whole text has seen the answer at every position of it: what is trained on its distributions learns to trust
    them far too much.
    """
    text = np.asarray(symbols, np.int64)
    edges = np.linspace(0, len(text), folds + 1).astype(int)
    for start, end in pairwise(edges.tolist()):
        model = KneserNey.fit(np.concatenate([text[:start], text[end:]]), order=order, vocab=vocab)
        context = max(0, start - order + 1)
        yield model.distributions(text[context:end], skip=start - context)


def estimate_discounts(counts: np.ndarray) -> np.ndarray:
    """D1, D2 and D3 from the counts of counts n1 to n4 (Chen and Goodman 1998, equation 26)."""
    n1, n2, n3, n4 = (int((counts == value).sum()) for value in (1, 2, 3, 4))
    if not (n1 and n2 and n3 and n4):
        return np.array(FALLBACK_DISCOUNTS)
    y = n1 / (n1 + 2 * n2)
    discounts = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
    return np.clip(discounts, 0.0, [1.0, 2.0, 3.0])


def _smooth(keys: np.ndarray, counts: np.ndarray, context_count: int, vocab: int) -> _Order:
    contexts = keys // vocab
    discounts = np.concatenate([[0.0], estimate_discounts(counts)])[np.minimum(counts, 3)]
    totals = np.bincount(contexts, counts, context_count)
    freed = np.bincount(contexts, discounts, context_count)
    known = totals > 0
    backoff = np.divide(freed, totals, out=np.ones(context_count), where=known)
    # a count of 0: the n-gram occurs once, at the very beginning of the text, where nothing precedes it
    shares = np.divide(counts - discounts, totals[contexts], out=np.zeros(len(keys)), where=known[contexts])
    return _Order(keys, shares, np.searchsorted(contexts, np.arange(context_count + 1)), backoff)


def _find(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of keys in a sorted array, and which of them are there."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return places, keys[places] == wanted


def _interpolate(rows: np.ndarray, order: _Order, contexts: np.ndarray, vocab: int) -> None:
    """Turn the distributions of shorter contexts, (L, V), into those of this order, in place."""
    seen = np.flatnonzero(contexts != UNKNOWN)
    ids = contexts[seen]
    rows[seen] *= order.backoff[ids, None]
    sizes = order.starts[ids + 1] - order.starts[ids]
    ends = np.cumsum(sizes)
    grams = np.repeat(order.starts[ids] - (ends - sizes), sizes) + np.arange(sizes.sum())
    rows[np.repeat(seen, sizes), order.keys[grams] % vocab] += order.shares[grams]
