"""Mentions of groups in texts, and the words that co-occur with them more often than by chance (PMI)."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from saccade.text.counterfactual_words import Dimension, list_lexicon_languages, load_dimensions
from saccade.text.language_id import get_stopwords

WORD_PATTERN = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
MIN_COOCCURRENCES = 5  # fewer co-occurrences are not reported
COOCCURRENCE_WINDOW = 10  # words to either side that count as co-occurring


@dataclass
class GroupCounts:
    """The counts of one dimension: the sides that each text names, the terms of each side, and the words near them."""

    dimension: Dimension
    text_sides: list[frozenset[int]] = field(default_factory=list)  # for each text, the sides that it names
    neighbor_counts: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    term_counts: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))


@dataclass(frozen=True)
class Association:
    """A word that co-occurs with one side: how often, and its pointwise mutual information (PMI) in bits."""

    word: str
    count: int
    pmi_bits: float


ProgressCallback = Callable[[int, int | None], None]


def count_groups(
    texts: Sequence[str], codes: Iterable[str], on_progress: ProgressCallback = lambda done, of: None
) -> tuple[list[GroupCounts], Counter[str], int]:
    """Count the groups of all dimensions of some languages in texts; also returns the count of each word, and their total."""
    dimensions = [one for code in codes if code in list_lexicon_languages() for one in load_dimensions(code)]
    counts = [GroupCounts(dimension) for dimension in dimensions]
    word_counts: Counter[str] = Counter()
    first_words = [_first_words(dimension) for dimension in dimensions]
    for done, text in enumerate(texts):
        words = [(match.start(), match[0].lower()) for match in WORD_PATTERN.finditer(text)]
        word_counts.update(word for _, word in words)
        stems = {re.split("['’]", word, maxsplit=1)[0] for _, word in words}
        for group_counts, first in zip(counts, first_words, strict=True):
            if first.isdisjoint(stems):  # by far the most frequent case, and a hundred times faster than the word list
                group_counts.text_sides.append(frozenset())
            else:
                _count_text(group_counts, text, words)
        if done % 1000 == 0:
            on_progress(done, len(texts))
    return counts, word_counts, word_counts.total()


def _first_words(dimension: Dimension) -> frozenset[str]:
    """The first words of the terms of a dimension."""
    pronouns = {"her", "hers", "his", "him"} if dimension.name == "gender" and dimension.language == "en" else set()
    return (
        frozenset(term.lower().split()[0] for term in (*dimension.counterparts, *dimension.name_counterparts))
        | pronouns
    )


def _count_text(group_counts: GroupCounts, text: str, words: Sequence[tuple[int, str]]) -> None:
    edits = [edit for edit in group_counts.dimension.swap(text).edits if edit.side is not None]
    group_counts.text_sides.append(frozenset(edit.side for edit in edits if edit.side is not None))
    if not edits:
        return
    term_words = {i for i, (start, _) in enumerate(words) if any(edit.start <= start < edit.end for edit in edits)}
    starts = {start: i for i, (start, _) in enumerate(words)}
    near: defaultdict[int, set[int]] = defaultdict(set)  # a word counts once for a side, however many terms are near it
    for edit in edits:
        assert edit.side is not None
        group_counts.term_counts[edit.side][text[edit.start : edit.end].lower()] += 1
        index = starts.get(edit.start)
        if index is not None:
            window = range(max(0, index - COOCCURRENCE_WINDOW), min(len(words), index + COOCCURRENCE_WINDOW + 1))
            near[edit.side] |= set(window) - term_words
    for side, indices in near.items():
        group_counts.neighbor_counts[side].update(words[i][1] for i in indices)


def find_associations(
    group_counts: GroupCounts, side: int, words: Counter[str], total: int, *, min_count: int = MIN_COOCCURRENCES
) -> list[Association]:
    """The words with the highest PMI with a side, log2 of p(word | near the side) over p(word), without stop words.

    >>> counts = GroupCounts(load_dimensions("en")[0], [], (Counter({"tall": 8, "of": 8}), Counter()))
    >>> find_associations(counts, 0, Counter({"tall": 16, "of": 112}), 128)
    [Association(word='tall', count=8, pmi_bits=2.0)]
    """
    neighbors = group_counts.neighbor_counts[side]
    neighbor_total = neighbors.total()
    stopwords = get_stopwords(group_counts.dimension.language)
    associations = [
        Association(word, count, math.log2(count / neighbor_total * total / words[word]))
        for word, count in neighbors.items()
        if count >= min_count and len(word) > 1 and word not in stopwords
    ]
    return sorted(
        (one for one in associations if one.pmi_bits > 0), key=lambda one: (-one.pmi_bits, -one.count, one.word)
    )
