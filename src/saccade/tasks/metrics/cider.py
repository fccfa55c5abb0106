"""CIDEr-D: how much a caption has in common with what people said of the same picture, rare word sequences counting most.

Vedantam, Zitnick and Parikh, 2015: arXiv 1411.5726, section 7. Each text is four vectors, of its runs of one to four words,
weighed by how often a run stands in the text and by how few pictures have it in their references. A caption's score against
one reference is the cosine of the two, where a run counts at most as often as the reference has it, times a penalty for
another length; then the mean over the four lengths of runs and over the references, times ten.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.tasks.metrics.score import ROUNDS, Score, check_pairs, measure, ratio
from saccade.tasks.metrics.texts import Gold
from saccade.text.scripts import split_words

LONGEST = 4  # words of a run
SPREAD = 6.0  # of the penalty, in words
WORD = re.compile(r"\w+(?:['’]\w+)*")  # punctuation says nothing of a picture

Run = tuple[str, ...]


@dataclass(frozen=True)
class Frequencies:
    """In how many of some pictures' references a run of words stands."""

    pictures: int
    having: Counter[Run]

    def weight(self, run: Run) -> float:
        """log(pictures / pictures that have it); what no reference has counts as if one had it."""
        return math.log(self.pictures) - math.log(max(1, self.having[run]))


@dataclass(frozen=True)
class Vectors:
    """A text as numbers: its runs by length with their weights, the norm of each length, and its words."""

    runs: tuple[dict[Run, float], ...]
    norms: tuple[float, ...]
    length: int


def words_of(text: str) -> list[str]:
    """Words in lower case, without punctuation; in scripts without spaces each character is a word.

    >>> words_of("A man's dog, running!"), words_of("一只狗。")
    (['a', "man's", 'dog', 'running'], ['一', '只', '狗'])
    """
    return [word for found in WORD.findall(text.lower()) for word in split_words(found)]


def frequencies(gold: Gold) -> Frequencies:
    """Counted over references, one text or several for each picture."""
    having: Counter[Run] = Counter()
    for texts in _several(gold):
        having.update({run for text in texts for run in _runs(words_of(text))})
    return Frequencies(len(gold), having)


def cider(
    gold: Gold, answers: Sequence[str], *, among: Frequencies | None = None, rounds: int = ROUNDS, seed: int = 0
) -> Score:
    """CIDEr-D of captions, 0 to 10; `among` are frequencies of other pictures, where those of the gold would be too few.

    >>> gold = [["a red ring on a table"], ["two dogs run on grass", "dogs on grass"]]
    >>> cider(gold, ["a red ring on a table", "a cat"]).value
    5.0
    """
    check_pairs("cider", gold, answers)
    several, known = _several(gold), among or frequencies(gold)
    for number, texts in enumerate(several):
        if not texts:
            raise ValueError(f"cider: picture {number} has no right caption; at least one is needed.")
    rows = [[_one(said, texts, known), 1.0] for said, texts in zip(answers, several, strict=True)]
    signature = f"n:{LONGEST}|sigma:{SPREAD:g}|case:lower|df:{'given' if among else 'gold'}|pictures:{known.pictures}"
    units = np.array(rows).reshape(-1, 2)
    return measure("cider", ratio, units, signature=signature, rounds=rounds, seed=seed)


def _one(said: str, texts: Sequence[str], known: Frequencies) -> float:
    """The score of one caption against all references of its picture."""
    own = _vectors(said, known)
    return 10 * sum(_alike(own, _vectors(text, known)) for text in texts) / len(texts)


def _alike(said: Vectors, right: Vectors) -> float:
    """The mean over the lengths of runs, for one reference."""
    apart = said.length - right.length
    penalty = math.exp(-(apart**2) / (2 * SPREAD**2))
    total = 0.0
    for ours, theirs, norm, other in zip(said.runs, right.runs, said.norms, right.norms, strict=True):
        if norm and other:
            total += sum(min(ours[run], theirs[run]) * theirs[run] for run in ours if run in theirs) / (norm * other)
    return total * penalty / LONGEST


def _vectors(text: str, known: Frequencies) -> Vectors:
    words = words_of(text)
    by: tuple[dict[Run, float], ...] = tuple({} for _ in range(LONGEST))
    for run, count in Counter(_runs(words)).items():
        by[len(run) - 1][run] = count * known.weight(run)
    norms = tuple(math.sqrt(sum(value**2 for value in runs.values())) for runs in by)
    return Vectors(by, norms, len(words))


def _runs(words: Sequence[str]) -> list[Run]:
    return [tuple(words[i : i + n]) for n in range(1, LONGEST + 1) for i in range(len(words) - n + 1)]


def _several(gold: Gold) -> list[list[str]]:
    return [[right] if isinstance(right, str) else list(right) for right in gold]
