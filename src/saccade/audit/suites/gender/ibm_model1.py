"""Statistical word alignment: IBM model 1 with a prior for the diagonal, in both directions, trained on the sentences themselves.

Brown et al. 1993 (ACL J93-2003); the diagonal prior as in Dyer et al. 2013 (ACL N13-1073). It needs no translation model, so it
also aligns stored translations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DEFAULT_EM_ITERATIONS = 6
DIAGONAL_TENSION = 4.0  # how strongly words prefer the same relative position
MIN_PROBABILITY = 1e-9

Words = Sequence[str]
BitextPair = tuple[Words, Words]


def align(
    pairs: Sequence[BitextPair], hints: Sequence[BitextPair] = (), *, iterations: int = DEFAULT_EM_ITERATIONS
) -> list[np.ndarray]:
    """The alignment probabilities of each pair, (S, T), as the geometric mean of both directions.

    `hints` are further pairs to train on, such as a dictionary; their alignments are not returned.

    >>> table = align([(["the", "dog"], ["der", "Hund"]), (["the", "cat"], ["die", "Katze"]), (["a", "dog"], ["ein", "Hund"])])
    >>> table[0].argmax(1).tolist()
    [0, 1]
    """
    bitext = [*pairs, *hints]
    if not bitext:
        return []
    table = _make_word_pair_table(bitext)
    forward, backward = (_run_em(table, reverse, iterations) for reverse in (False, True))
    probabilities = np.sqrt(forward * backward)
    alignments, start = [], 0
    for source, target in pairs:
        size = len(source) * len(target)
        alignments.append(probabilities[start : start + size].reshape(len(source), len(target)))
        start += size
    return alignments


@dataclass(frozen=True)
class _WordPairTable:
    """Every co-occurrence of a source word and a target word in a sentence pair."""

    pair_ids: np.ndarray  # for each co-occurrence, the word pair
    word_ids: tuple[np.ndarray, np.ndarray]  # for each word pair, its source word and its target word
    positions: tuple[np.ndarray, np.ndarray]  # for each co-occurrence, the token in all sources, and in all targets
    diagonal_prior: np.ndarray


def _make_word_pair_table(pairs: Sequence[BitextPair]) -> _WordPairTable:
    codes: tuple[dict[str, int], dict[str, int]] = ({}, {})
    sides: list[list[np.ndarray]] = [[], []]
    groups: list[list[np.ndarray]] = [[], []]
    priors, starts = [], [0, 0]
    for source, target in pairs:
        ids = [_encode_words(side, code) for code, side in zip(codes, (source, target), strict=True)]
        shape = (len(source), len(target))
        rows, columns = (grid.ravel() for grid in np.indices(shape))
        sides[0].append(ids[0][rows])
        sides[1].append(ids[1][columns])
        groups[0].append(rows + starts[0])
        groups[1].append(columns + starts[1])
        priors.append(np.exp(-DIAGONAL_TENSION * np.abs(rows / max(1, shape[0]) - columns / max(1, shape[1]))))
        starts = [starts[0] + shape[0], starts[1] + shape[1]]
    first, second = (np.concatenate(side) for side in sides)
    width = len(codes[1])
    word_pairs, pair_ids = np.unique(first * width + second, return_inverse=True)
    positions = np.concatenate(groups[0]), np.concatenate(groups[1])
    return _WordPairTable(pair_ids, (word_pairs // width, word_pairs % width), positions, np.concatenate(priors))


def _encode_words(words: Words, codes: dict[str, int]) -> np.ndarray:
    """Words as ids; a new word gets the next id."""
    return np.array([codes.setdefault(word.lower(), len(codes)) for word in words], np.int64)


def _run_em(table: _WordPairTable, reverse: bool, iterations: int) -> np.ndarray:
    """Expectation maximization: the model generates source words from target words, with `reverse` target from source."""
    generated = table.positions[int(reverse)]
    condition = table.word_ids[int(not reverse)]
    translation = np.ones(len(condition))
    posterior = table.diagonal_prior
    for _ in range(iterations):
        posterior = translation[table.pair_ids] * table.diagonal_prior + MIN_PROBABILITY
        posterior = posterior / np.bincount(generated, posterior)[generated]
        counts = np.bincount(table.pair_ids, posterior, len(condition))
        translation = counts / np.bincount(condition, counts)[condition]
    return posterior
