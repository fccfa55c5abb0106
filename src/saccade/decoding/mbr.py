"""Minimum Bayes risk decoding: choose the sample most similar to all others (Eikema & Aziz 2020, arXiv 2005.10283).

    samples = [generate_texts(model, batch, criteria, Sampler(seed=n), tokenizer=tokenizer) for n in range(32)]
    best = [mbr_select([text.text for text in row]) for row in zip(*samples)]  # or `GenerationConfig(mbr_samples=32)`

Samples follow the distribution of the model, so the mean utility against them estimates the utility against the unknown
reference. A text that was sampled twice counts twice.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sacrebleu

from saccade.errors import UsageError
from saccade.text.scripts import split_words

Utility = Callable[[str, str], float]  # (hypothesis, reference) -> similarity


def chrf(text: str, reference: str) -> float:
    """chrF: F-score of character n-grams, 0 to 1 (Popović 2015)."""
    return sacrebleu.sentence_chrf(text, [reference]).score / 100


def bleu(text: str, reference: str) -> float:
    """Sentence BLEU with smoothing, 0 to 1 (Papineni et al. 2002)."""
    text, reference = (" ".join(split_words(t)) for t in (text, reference))  # characters in scripts without spaces
    return sacrebleu.sentence_bleu(text, [reference]).score / 100


def word_f1(text: str, reference: str) -> float:
    """F1 of words regardless of order, 0 to 1; of characters in scripts without spaces.

    >>> word_f1("a rose is a rose", "a rose"), word_f1("東京都", "東京")
    (0.5714285714285714, 0.8)
    """
    words, reference_words = Counter(split_words(text)), Counter(split_words(reference))
    if not words or not reference_words:
        return float(words == reference_words)
    shared = (words & reference_words).total()
    return 2 * shared / (words.total() + reference_words.total())


UTILITIES: dict[str, Utility] = {"chrf": chrf, "bleu": bleu, "f1": word_f1}


@dataclass(frozen=True)
class MBRResult:
    """The chosen sample, its index, and its mean utility against the others."""

    text: str
    index: int
    utility: float


def mbr_select(samples: Sequence[str], utility: Utility = chrf) -> MBRResult:
    """Choose the sample with the highest mean utility against all others; the first one among equals.

    >>> mbr_select(["a dog ran", "the cat sat", "the cat sits", "the cat sat"]).text
    'the cat sat'
    """
    if not samples:
        raise UsageError("mbr_select needs at least one sample; got none.")
    counts = Counter(samples)
    other_count = max(1, len(samples) - 1)
    mean_utility = {}
    for text in counts:  # equal texts are compared once
        total = sum((count - (other == text)) * utility(text, other) for other, count in counts.items())
        mean_utility[text] = total / other_count
    best = max(range(len(samples)), key=lambda index: mean_utility[samples[index]])
    return MBRResult(samples[best], best, mean_utility[samples[best]])
