"""CIDEr-D for image captions: TF-IDF weighted n-gram similarity of a caption to the references of the same image.

Vedantam, Zitnick and Parikh, 2015: arXiv 1411.5726, section 7. Each text is represented by four TF-IDF vectors, of its n-grams of
one to four words; the document frequency counts images. The score of a caption against one reference is the cosine similarity,
where the weight of an n-gram is clipped to that in the reference, times a penalty for a difference in length; it is averaged over
the four n-gram orders and over the references, and multiplied by ten.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio
from saccade.metrics.texts import Gold
from saccade.text.scripts import split_words

MAX_NGRAM = 4  # the highest n-gram order
LENGTH_SIGMA = 6.0  # standard deviation of the length penalty, in words
WORD_PATTERN = re.compile(r"\w+(?:['’]\w+)*")  # words without punctuation

Ngram = tuple[str, ...]


@dataclass(frozen=True)
class DocumentFrequencies:
    """Document frequencies of n-grams: in the references of how many images each of them occurs."""

    image_count: int
    counts: Counter[Ngram]

    def idf(self, ngram: Ngram) -> float:
        """Inverse document frequency, log(images / images with the n-gram); an unseen n-gram counts as seen once."""
        return math.log(self.image_count) - math.log(max(1, self.counts[ngram]))


@dataclass(frozen=True)
class TfidfVectors:
    """The TF-IDF weights of a text for each n-gram order, their norms, and its length in words."""

    ngrams: tuple[dict[Ngram, float], ...]
    norms: tuple[float, ...]
    length: int


def split_caption(text: str) -> list[str]:
    """Lowercase words without punctuation; in scripts without spaces each character is a word.

    >>> split_caption("A man's dog, running!"), split_caption("一只狗。")
    (['a', "man's", 'dog', 'running'], ['一', '只', '狗'])
    """
    return [word for match in WORD_PATTERN.findall(text.lower()) for word in split_words(match)]


def count_document_frequencies(gold: Gold) -> DocumentFrequencies:
    """Count document frequencies over references, one text or several per image."""
    counts: Counter[Ngram] = Counter()
    for texts in _as_reference_lists(gold):
        counts.update({ngram for text in texts for ngram in _ngrams(split_caption(text))})
    return DocumentFrequencies(len(gold), counts)


def cider(
    gold: Gold,
    answers: Sequence[str],
    *,
    frequencies: DocumentFrequencies | None = None,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """CIDEr-D of captions, 0 to 10; pass `frequencies` of a larger set if there are few references.

    >>> gold = [["a red ring on a table"], ["two dogs run on grass", "dogs on grass"]]
    >>> cider(gold, ["a red ring on a table", "a cat"]).value
    5.0
    """
    check_pairs("cider", gold, answers)
    references, table = _as_reference_lists(gold), frequencies or count_document_frequencies(gold)
    for number, texts in enumerate(references):
        if not texts:
            raise ValueError(f"cider: image {number} has no reference caption; give at least one.")
    rows = [[_score_caption(answer, texts, table), 1.0] for answer, texts in zip(answers, references, strict=True)]
    source = "given" if frequencies else "gold"
    signature = f"n:{MAX_NGRAM}|sigma:{LENGTH_SIGMA:g}|case:lower|df:{source}|pictures:{table.image_count}"
    units = np.array(rows).reshape(-1, 2)
    return measure("cider", ratio, units, signature=signature, bootstrap_samples=bootstrap_samples, seed=seed)


def _score_caption(answer: str, references: Sequence[str], frequencies: DocumentFrequencies) -> float:
    """The CIDEr-D score of one caption against all references of its image."""
    vectors = _tfidf_vectors(answer, frequencies)
    return 10 * sum(_similarity(vectors, _tfidf_vectors(text, frequencies)) for text in references) / len(references)


def _similarity(answer: TfidfVectors, reference: TfidfVectors) -> float:
    """The similarity to one reference, averaged over the n-gram orders."""
    difference = answer.length - reference.length
    penalty = math.exp(-(difference**2) / (2 * LENGTH_SIGMA**2))
    total = 0.0
    orders = zip(answer.ngrams, reference.ngrams, answer.norms, reference.norms, strict=True)
    for weights, others, norm, other_norm in orders:
        if norm and other_norm:
            shared = sum(min(weights[ngram], others[ngram]) * others[ngram] for ngram in weights if ngram in others)
            total += shared / (norm * other_norm)
    return total * penalty / MAX_NGRAM


def _tfidf_vectors(text: str, frequencies: DocumentFrequencies) -> TfidfVectors:
    words = split_caption(text)
    orders: tuple[dict[Ngram, float], ...] = tuple({} for _ in range(MAX_NGRAM))
    for ngram, count in Counter(_ngrams(words)).items():
        orders[len(ngram) - 1][ngram] = count * frequencies.idf(ngram)
    norms = tuple(math.sqrt(sum(weight**2 for weight in weights.values())) for weights in orders)
    return TfidfVectors(orders, norms, len(words))


def _ngrams(words: Sequence[str]) -> list[Ngram]:
    return [tuple(words[i : i + n]) for n in range(1, MAX_NGRAM + 1) for i in range(len(words) - n + 1)]


def _as_reference_lists(gold: Gold) -> list[list[str]]:
    return [[texts] if isinstance(texts, str) else list(texts) for texts in gold]
