"""Minimum Bayes risk: of several samples, the one that agrees best with all others (Eikema & Aziz 2020, arXiv 2005.10283).

    draws = [written(model, batch, bounds, Draw(seed=n), tokenizer=tokenizer) for n in range(32)]
    best = [safest([one.text for one in row]) for row in zip(*draws)]     # or, in one call, `GenerationConfig(mbr_samples=32)`

A sample stands for what the model thinks likely, so the mean utility against the samples estimates the utility against
the truth. A text that was drawn twice counts twice.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sacrebleu

from saccade.errors import UsageError
from saccade.text.scripts import split_words

Utility = Callable[[str, str], float]  # how good the first is if the second is right


def chrf(text: str, reference: str) -> float:
    """Shared stretches of letters, 0 to 1 (Popović 2015)."""
    return sacrebleu.sentence_chrf(text, [reference]).score / 100


def bleu(text: str, reference: str) -> float:
    """Shared stretches of words, 0 to 1 (Papineni et al. 2002), smoothed as for single sentences."""
    spaced = " ".join(split_words(text)), " ".join(split_words(reference))  # characters, where words are not set apart
    return sacrebleu.sentence_bleu(spaced[0], [spaced[1]]).score / 100


def word_f1(text: str, reference: str) -> float:
    """Shared words, 0 to 1, in any order; shared characters in scripts without spaces.

    >>> word_f1("a rose is a rose", "a rose"), word_f1("東京都", "東京")
    (0.5714285714285714, 0.8)
    """
    mine, theirs = Counter(split_words(text)), Counter(split_words(reference))
    if not mine or not theirs:
        return float(mine == theirs)
    shared = (mine & theirs).total()
    return 2 * shared / (mine.total() + theirs.total())


UTILITIES: dict[str, Utility] = {"chrf": chrf, "bleu": bleu, "f1": word_f1}


@dataclass(frozen=True)
class MBRResult:
    """The sample that was chosen, which one it is, and its mean utility against the others."""

    text: str
    index: int
    utility: float


def mbr_select(samples: Sequence[str], utility: Utility = chrf) -> MBRResult:
    """The sample with the highest mean utility against all others; of equals the first.

    >>> mbr_select(["a dog ran", "the cat sat", "the cat sits", "the cat sat"]).text
    'the cat sat'
    """
    if not samples:
        raise UsageError("There is no sample to choose from; draw at least one.")
    counts = Counter(samples)
    others = max(1, len(samples) - 1)
    value = {}
    for text in counts:  # the same text is compared once
        total = sum((count - (other == text)) * utility(text, other) for other, count in counts.items())
        value[text] = total / others
    best = max(range(len(samples)), key=lambda number: value[samples[number]])
    return MBRResult(samples[best], best, value[samples[best]])
