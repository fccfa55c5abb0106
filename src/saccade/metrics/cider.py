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

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio
from saccade.metrics.texts import Gold
from saccade.text.scripts import split_words

MAX_NGRAM = 4  # words of a run
LENGTH_SIGMA = 6.0  # of the penalty, in words
WORD_PATTERN = re.compile(r"\w+(?:['’]\w+)*")  # punctuation says nothing of a picture

Ngram = tuple[str, ...]


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many of some pictures' references a run of words stands."""

    image_count: int
    counts: Counter[Ngram]

    def idf(self, ngram: Ngram) -> float:
        """log(pictures / pictures that have it); what no reference has counts as if one had it."""
        return math.log(self.image_count) - math.log(max(1, self.counts[ngram]))


@dataclass(frozen=True)
class TfidfVectors:
    """A text as numbers: its runs by length with their weights, the norm of each length, and its words."""

    ngrams: tuple[dict[Ngram, float], ...]
    norms: tuple[float, ...]
    length: int


def split_caption(text: str) -> list[str]:
    """Words in lower case, without punctuation; in scripts without spaces each character is a word.

    >>> split_caption("A man's dog, running!"), split_caption("一只狗。")
    (['a', "man's", 'dog', 'running'], ['一', '只', '狗'])
    """
    return [word for found in WORD_PATTERN.findall(text.lower()) for word in split_words(found)]


def count_document_frequencies(gold: Gold) -> DocumentFrequencies:
    """Counted over references, one text or several for each picture."""
    having: Counter[Ngram] = Counter()
    for texts in _as_reference_lists(gold):
        having.update({run for text in texts for run in _ngrams(split_caption(text))})
    return DocumentFrequencies(len(gold), having)


def cider(
    gold: Gold,
    answers: Sequence[str],
    *,
    frequencies: DocumentFrequencies | None = None,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """CIDEr-D of captions, 0 to 10; `among` are frequencies of other pictures, where those of the gold would be too few.

    >>> gold = [["a red ring on a table"], ["two dogs run on grass", "dogs on grass"]]
    >>> cider(gold, ["a red ring on a table", "a cat"]).value
    5.0
    """
    check_pairs("cider", gold, answers)
    several, known = _as_reference_lists(gold), frequencies or count_document_frequencies(gold)
    for number, texts in enumerate(several):
        if not texts:
            raise ValueError(f"cider: picture {number} has no right caption; at least one is needed.")
    rows = [[_score_caption(said, texts, known), 1.0] for said, texts in zip(answers, several, strict=True)]
    signature = f"n:{MAX_NGRAM}|sigma:{LENGTH_SIGMA:g}|case:lower|df:{'given' if frequencies else 'gold'}|pictures:{known.image_count}"
    units = np.array(rows).reshape(-1, 2)
    return measure("cider", ratio, units, signature=signature, bootstrap_samples=bootstrap_samples, seed=seed)


def _score_caption(answer: str, references: Sequence[str], frequencies: DocumentFrequencies) -> float:
    """The score of one caption against all references of its picture."""
    own = _tfidf_vectors(answer, frequencies)
    return 10 * sum(_similarity(own, _tfidf_vectors(text, frequencies)) for text in references) / len(references)


def _similarity(answer: TfidfVectors, reference: TfidfVectors) -> float:
    """The mean over the lengths of runs, for one reference."""
    apart = answer.length - reference.length
    penalty = math.exp(-(apart**2) / (2 * LENGTH_SIGMA**2))
    total = 0.0
    for ours, theirs, norm, other in zip(answer.ngrams, reference.ngrams, answer.norms, reference.norms, strict=True):
        if norm and other:
            total += sum(min(ours[run], theirs[run]) * theirs[run] for run in ours if run in theirs) / (norm * other)
    return total * penalty / MAX_NGRAM


def _tfidf_vectors(text: str, frequencies: DocumentFrequencies) -> TfidfVectors:
    words = split_caption(text)
    by: tuple[dict[Ngram, float], ...] = tuple({} for _ in range(MAX_NGRAM))
    for run, count in Counter(_ngrams(words)).items():
        by[len(run) - 1][run] = count * frequencies.idf(run)
    norms = tuple(math.sqrt(sum(value**2 for value in runs.values())) for runs in by)
    return TfidfVectors(by, norms, len(words))


def _ngrams(words: Sequence[str]) -> list[Ngram]:
    return [tuple(words[i : i + n]) for n in range(1, MAX_NGRAM + 1) for i in range(len(words) - n + 1)]


def _as_reference_lists(gold: Gold) -> list[list[str]]:
    return [[right] if isinstance(right, str) else list(right) for right in gold]
