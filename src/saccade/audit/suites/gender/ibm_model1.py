"""Which word stands for which, learnt from the sentences at hand: IBM's first model with a liking for the diagonal, both ways.

Brown et al. 1993 (ACL J93-2003); the diagonal as Dyer et al. 2013 (ACL N13-1073) have it. It needs no model, so it aligns
stored translations too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DEFAULT_EM_ITERATIONS = 6
DIAGONAL_TENSION = 4.0  # how much a word prefers its own place
MIN_PROBABILITY = 1e-9

Words = Sequence[str]
BitextPair = tuple[Words, Words]


def align(
    pairs: Sequence[BitextPair], hints: Sequence[BitextPair] = (), *, iterations: int = DEFAULT_EM_ITERATIONS
) -> list[np.ndarray]:
    """For each pair, how much each source word and each target word choose each other, (S, T) from 0 to 1.

    `hints` are further pairs to learn from, such as a dictionary; they are not handed back.

    >>> table = align([(["the", "dog"], ["der", "Hund"]), (["the", "cat"], ["die", "Katze"]), (["a", "dog"], ["ein", "Hund"])])
    >>> table[0].argmax(1).tolist()
    [0, 1]
    """
    every = [*pairs, *hints]
    if not every:
        return []
    cells = _make_word_pair_table(every)
    forth, back = (_run_em(cells, way, iterations) for way in (False, True))
    both = np.sqrt(forth * back)
    found, at = [], 0
    for source, target in pairs:
        size = len(source) * len(target)
        found.append(both[at : at + size].reshape(len(source), len(target)))
        at += size
    return found


@dataclass(frozen=True)
class _WordPairTable:
    """Every meeting of a source word and a target word in one sentence."""

    pair_ids: np.ndarray  # which two words, as one number
    word_ids: tuple[np.ndarray, np.ndarray]  # of each two words the source and the target
    positions: tuple[
        np.ndarray, np.ndarray
    ]  # of each meeting its place in the source, and in the target, over all sentences
    diagonal_prior: np.ndarray


def _make_word_pair_table(pairs: Sequence[BitextPair]) -> _WordPairTable:
    codes: tuple[dict[str, int], dict[str, int]] = ({}, {})
    sides: list[list[np.ndarray]] = [[], []]
    groups: list[list[np.ndarray]] = [[], []]
    near, starts = [], [0, 0]
    for source, target in pairs:
        ids = [_encode_words(side, code) for code, side in zip(codes, (source, target), strict=True)]
        shape = (len(source), len(target))
        rows, columns = (grid.ravel() for grid in np.indices(shape))
        sides[0].append(ids[0][rows])
        sides[1].append(ids[1][columns])
        groups[0].append(rows + starts[0])
        groups[1].append(columns + starts[1])
        near.append(np.exp(-DIAGONAL_TENSION * np.abs(rows / max(1, shape[0]) - columns / max(1, shape[1]))))
        starts = [starts[0] + shape[0], starts[1] + shape[1]]
    first, second = (np.concatenate(side) for side in sides)
    width = len(codes[1])
    kinds, pair = np.unique(first * width + second, return_inverse=True)
    return _WordPairTable(
        pair,
        (kinds // width, kinds % width),
        (np.concatenate(groups[0]), np.concatenate(groups[1])),
        np.concatenate(near),
    )


def _encode_words(words: Words, codes: dict[str, int]) -> np.ndarray:
    """Words as numbers; a new word gets the next one."""
    return np.array([codes.setdefault(word.lower(), len(codes)) for word in words], np.int64)


def _run_em(cells: _WordPairTable, reverse: bool, iterations: int) -> np.ndarray:
    """Expectation and maximisation: source words come from target words, or with `back` the other way round."""
    group = cells.positions[int(reverse)]
    given = cells.word_ids[int(not reverse)]
    chance = np.ones(len(given))
    share = cells.diagonal_prior
    for _ in range(iterations):
        share = chance[cells.pair_ids] * cells.diagonal_prior + MIN_PROBABILITY
        share = share / np.bincount(group, share)[group]
        counts = np.bincount(cells.pair_ids, share, len(given))
        chance = counts / np.bincount(given, counts)[given]
    return share
