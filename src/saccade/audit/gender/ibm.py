"""Which word stands for which, learnt from the sentences at hand: IBM's first model with a liking for the diagonal, both ways.

Brown et al. 1993 (ACL J93-2003); the diagonal as Dyer et al. 2013 (ACL N13-1073) have it. It needs no model, so it aligns
stored translations too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROUNDS = 6
TENSION = 4.0  # how much a word prefers its own place
FLOOR = 1e-9

Words = Sequence[str]
Pair = tuple[Words, Words]


def align(pairs: Sequence[Pair], hints: Sequence[Pair] = (), *, rounds: int = ROUNDS) -> list[np.ndarray]:
    """For each pair, how much each source word and each target word choose each other, (S, T) from 0 to 1.

    `hints` are further pairs to learn from, such as a dictionary; they are not handed back.

    >>> table = align([(["the", "dog"], ["der", "Hund"]), (["the", "cat"], ["die", "Katze"]), (["a", "dog"], ["ein", "Hund"])])
    >>> table[0].argmax(1).tolist()
    [0, 1]
    """
    every = [*pairs, *hints]
    if not every:
        return []
    cells = _cells(every)
    forth, back = (_posterior(cells, way, rounds) for way in (False, True))
    both = np.sqrt(forth * back)
    found, at = [], 0
    for source, target in pairs:
        size = len(source) * len(target)
        found.append(both[at : at + size].reshape(len(source), len(target)))
        at += size
    return found


@dataclass(frozen=True)
class _Cells:
    """Every meeting of a source word and a target word in one sentence."""

    pair: np.ndarray  # which two words, as one number
    words: tuple[np.ndarray, np.ndarray]  # of each two words the source and the target
    groups: tuple[
        np.ndarray, np.ndarray
    ]  # of each meeting its place in the source, and in the target, over all sentences
    near: np.ndarray


def _cells(pairs: Sequence[Pair]) -> _Cells:
    codes: tuple[dict[str, int], dict[str, int]] = ({}, {})
    sides: list[list[np.ndarray]] = [[], []]
    groups: list[list[np.ndarray]] = [[], []]
    near, starts = [], [0, 0]
    for source, target in pairs:
        ids = [_ids(side, code) for code, side in zip(codes, (source, target), strict=True)]
        shape = (len(source), len(target))
        rows, columns = (grid.ravel() for grid in np.indices(shape))
        sides[0].append(ids[0][rows])
        sides[1].append(ids[1][columns])
        groups[0].append(rows + starts[0])
        groups[1].append(columns + starts[1])
        near.append(np.exp(-TENSION * np.abs(rows / max(1, shape[0]) - columns / max(1, shape[1]))))
        starts = [starts[0] + shape[0], starts[1] + shape[1]]
    first, second = (np.concatenate(side) for side in sides)
    width = len(codes[1])
    kinds, pair = np.unique(first * width + second, return_inverse=True)
    return _Cells(
        pair,
        (kinds // width, kinds % width),
        (np.concatenate(groups[0]), np.concatenate(groups[1])),
        np.concatenate(near),
    )


def _ids(words: Words, codes: dict[str, int]) -> np.ndarray:
    """Words as numbers; a new word gets the next one."""
    return np.array([codes.setdefault(word.lower(), len(codes)) for word in words], np.int64)


def _posterior(cells: _Cells, back: bool, rounds: int) -> np.ndarray:
    """Expectation and maximisation: source words come from target words, or with `back` the other way round."""
    group = cells.groups[int(back)]
    given = cells.words[int(not back)]
    chance = np.ones(len(given))
    share = cells.near
    for _ in range(rounds):
        share = chance[cells.pair] * cells.near + FLOOR
        share = share / np.bincount(group, share)[group]
        counts = np.bincount(cells.pair, share, len(given))
        chance = counts / np.bincount(given, counts)[given]
    return share
