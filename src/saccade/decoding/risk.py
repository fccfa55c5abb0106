"""Minimum Bayes risk: of several samples, the one that agrees best with all others (Eikema & Aziz 2020, arXiv 2005.10283).

    draws = [written(model, batch, Draw(seed=n), stop=2, limit=64, tokenizer=tokenizer) for n in range(32)]
    best = [safest([one.text for one in row]) for row in zip(*draws)]     # or, in one call, `write_safest`

A sample stands for what the model thinks likely, so the mean utility against the samples estimates the utility against
the truth. A text that was drawn twice counts twice.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import sacrebleu

from saccade.data import Batch
from saccade.decoding.loop import Choose
from saccade.decoding.rules import Ruling
from saccade.decoding.stop import written
from saccade.models.family import Writer
from saccade.text.tokenizer import Tokenizer

Utility = Callable[[str, str], float]  # how good the first is if the second is right


def chrf(text: str, right: str) -> float:
    """Shared stretches of letters, 0 to 1 (Popović 2015)."""
    return sacrebleu.sentence_chrf(text, [right]).score / 100


def bleu(text: str, right: str) -> float:
    """Shared stretches of words, 0 to 1 (Papineni et al. 2002), smoothed as for single sentences."""
    return sacrebleu.sentence_bleu(text, [right]).score / 100


def word_f1(text: str, right: str) -> float:
    """Shared words, 0 to 1, in any order.

    >>> word_f1("a rose is a rose", "a rose")
    0.5714285714285714
    """
    mine, theirs = Counter(text.split()), Counter(right.split())
    if not mine or not theirs:
        return float(mine == theirs)
    shared = (mine & theirs).total()
    return 2 * shared / (mine.total() + theirs.total())


UTILITIES: dict[str, Utility] = {"chrf": chrf, "bleu": bleu, "f1": word_f1}


@dataclass(frozen=True)
class Safest:
    """The sample that was chosen, which one it is, and its mean utility against the others."""

    text: str
    number: int
    utility: float


def safest(samples: Sequence[str], utility: Utility = chrf) -> Safest:
    """The sample with the highest mean utility against all others; of equals the first.

    >>> safest(["a dog ran", "the cat sat", "the cat sits", "the cat sat"]).text
    'the cat sat'
    """
    if not samples:
        raise ValueError("There is no sample to choose from; draw at least one.")
    counts = Counter(samples)
    others = max(1, len(samples) - 1)
    value = {}
    for text in counts:  # the same text is compared once
        total = sum((count - (other == text)) * utility(text, other) for other, count in counts.items())
        value[text] = total / others
    best = max(range(len(samples)), key=lambda number: value[samples[number]])
    return Safest(samples[best], best, value[samples[best]])


def write_safest(
    model: Writer,
    batch: Batch,
    tokenizer: Tokenizer,
    choose: Choose,
    *,
    stop: int | Collection[int] | None,
    limit: int,
    samples: int = 16,
    utility: Utility = chrf,
    rules: Sequence[Ruling] = (),
    strings: Collection[str] = (),
) -> list[Safest]:
    """For each row of the batch so many samples, and of them the safest."""
    if samples < 1:
        raise ValueError(f"At least one sample has to be drawn; got samples={samples}.")
    draws = []
    for _ in range(samples):  # the whole batch each time, so that memory stays that of one
        found = written(model, batch, choose, stop=stop, limit=limit, rules=rules, tokenizer=tokenizer, strings=strings)
        draws.append([one.text or "" for one in found])
    return [safest(row, utility) for row in zip(*draws, strict=True)]
