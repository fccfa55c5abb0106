"""Error rates of transcripts: the edits that turn the answer into the gold, per word (WER) or per character (CER) of the gold.

Levenshtein 1966; both are sums over all texts divided by the length of all gold texts, as jiwer computes them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio


class Edits(NamedTuple):
    """The fewest edits that turn a gold sequence into an answer, by kind."""

    substitutions: int
    deletions: int
    insertions: int

    @property
    def total(self) -> int:
        return sum(self)


def count_edits(gold: Sequence[str], answer: Sequence[str]) -> Edits:
    """Count the fewest edits from the gold to the answer; of equally few, those with the most substitutions.

    >>> count_edits("go to the bank".split(), "to the the pank".split())
    Edits(substitutions=3, deletions=0, insertions=0)
    >>> count_edits(list("abc"), list("ac")), count_edits([], ["uh"]).total
    (Edits(substitutions=0, deletions=1, insertions=0), 1)
    """
    # (total, deletions + insertions, deletions) of the best edits to each prefix of the answer
    row = [(j, j, 0) for j in range(len(answer) + 1)]
    for i, wanted in enumerate(gold, 1):
        diagonal, row[0] = row[0], (i, i, i)
        for j, given in enumerate(answer, 1):
            above, left = row[j], row[j - 1]
            best = diagonal if wanted == given else (diagonal[0] + 1, diagonal[1], diagonal[2])
            best = min(best, (above[0] + 1, above[1] + 1, above[2] + 1), (left[0] + 1, left[1] + 1, left[2]))
            diagonal, row[j] = above, best
    total, shifts, deletions = row[-1]
    return Edits(total - shifts, deletions, shifts - deletions)


def word_error_rate(
    gold: Sequence[str], answers: Sequence[str], *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """The word error rate (WER) of transcripts; 0 is perfect, and it can be above 1.

    >>> word_error_rate(["go to the bank", "yes"], ["to the pank", "yes"]).value
    0.4
    """
    return _error_rate(
        "wer", [text.split() for text in gold], [text.split() for text in answers], bootstrap_samples, seed
    )


def character_error_rate(
    gold: Sequence[str], answers: Sequence[str], *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """The character error rate (CER) of transcripts, spaces included.

    >>> character_error_rate(["bank"], ["pank"]).value
    0.25
    """
    gold_rows, rows = ([list(" ".join(text.split())) for text in texts] for texts in (gold, answers))
    return _error_rate("cer", gold_rows, rows, bootstrap_samples, seed)


def _error_rate(
    name: str, gold: Sequence[Sequence[str]], answers: Sequence[Sequence[str]], bootstrap_samples: int, seed: int
) -> Score:
    check_pairs(name, gold, answers)
    rows = [[count_edits(a, b).total, len(a)] for a, b in zip(gold, answers, strict=True)]
    units = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return measure(name, ratio, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)
