"""The groups that texts name, and the words that stand beside them more often than chance would have it."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from saccade.text.counterfactual_words import Dimension, list_lexicon_languages, load_dimensions
from saccade.text.language_id import get_stopwords

WORD_PATTERN = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
MIN_COOCCURRENCES = 5  # times that two words have to stand together
COOCCURRENCE_WINDOW = 10  # words on either side that stand beside a word


@dataclass
class GroupCounts:
    """What was counted of one dimension: texts that name either side alone, both, and the words beside each side."""

    dimension: Dimension
    text_sides: list[frozenset[int]] = field(default_factory=list)  # of each text, the sides that it names
    neighbor_counts: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    term_counts: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))


@dataclass(frozen=True)
class Association:
    """A word that stands beside one side: how often, and how much more often than chance (PMI, in bits)."""

    word: str
    count: int
    pmi_bits: float


ProgressCallback = Callable[[int, int | None], None]


def count_groups(
    texts: Sequence[str], codes: Iterable[str], on_progress: ProgressCallback = lambda done, of: None
) -> tuple[list[GroupCounts], Counter[str], int]:
    """All dimensions of some languages over texts; beside them how often each word stands anywhere, and how many there are."""
    seen = [GroupCounts(one) for code in codes if code in list_lexicon_languages() for one in load_dimensions(code)]
    words: Counter[str] = Counter()
    firsts = [_first_words(one.dimension) for one in seen]
    for done, text in enumerate(texts):
        found = [(match.start(), match[0].lower()) for match in WORD_PATTERN.finditer(text)]
        words.update(word for _, word in found)
        heads = {re.split("['’]", word, maxsplit=1)[0] for _, word in found}
        for one, first in zip(seen, firsts, strict=True):
            if first.isdisjoint(heads):  # by far the most frequent case, and a hundred times quicker than the list
                one.text_sides.append(frozenset())
            else:
                _count_text(one, text, found)
        if done % 1000 == 0:
            on_progress(done, len(texts))
    return seen, words, words.total()


def _first_words(dimension: Dimension) -> frozenset[str]:
    """The words with which the terms of a dimension begin."""
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
    own = {i for i, (start, _) in enumerate(words) if any(edit.start <= start < edit.end for edit in edits)}
    starts = {start: i for i, (start, _) in enumerate(words)}
    near: defaultdict[int, set[int]] = defaultdict(set)  # each word counts once for a side, however often that is named
    for edit in edits:
        assert edit.side is not None
        group_counts.term_counts[edit.side][text[edit.start : edit.end].lower()] += 1
        at = starts.get(edit.start)
        if at is not None:
            near[edit.side] |= (
                set(range(max(0, at - COOCCURRENCE_WINDOW), min(len(words), at + COOCCURRENCE_WINDOW + 1))) - own
            )
    for side, places in near.items():
        group_counts.neighbor_counts[side].update(words[i][1] for i in places)


def find_associations(
    group_counts: GroupCounts, side: int, words: Counter[str], total: int, *, min_count: int = MIN_COOCCURRENCES
) -> list[Association]:
    """The words that are bound to a side the most: log2 of p(word beside the side) over p(word), without small words.

    >>> seen = GroupCounts(load_dimensions("en")[0], [], (Counter({"tall": 8, "of": 8}), Counter()))
    >>> find_associations(seen, 0, Counter({"tall": 16, "of": 112}), 128)
    [Association(word='tall', count=8, pmi_bits=2.0)]
    """
    beside = group_counts.neighbor_counts[side]
    all_beside = beside.total()
    small = get_stopwords(group_counts.dimension.language)
    found = [
        Association(word, count, math.log2(count / all_beside * total / words[word]))
        for word, count in beside.items()
        if count >= min_count and len(word) > 1 and word not in small
    ]
    return sorted(
        (bond for bond in found if bond.pmi_bits > 0), key=lambda bond: (-bond.pmi_bits, -bond.count, bond.word)
    )
