"""The groups that texts name, and the words that stand beside them more often than chance would have it."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from saccade.text.languages import small_words
from saccade.text.swap import Dimension, dimensions, languages

WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
LEAST = 5  # times that two words have to stand together
WINDOW = 10  # words on either side that stand beside a word


@dataclass
class Seen:
    """What was counted of one dimension: texts that name either side alone, both, and the words beside each side."""

    dimension: Dimension
    texts: list[frozenset[int]] = field(default_factory=list)  # of each text, the sides that it names
    beside: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    terms: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))


@dataclass(frozen=True)
class Bond:
    """A word that stands beside one side: how often, and how much more often than chance (PMI, in bits)."""

    word: str
    count: int
    bits: float


Told = Callable[[int, int | None], None]


def look(
    texts: Sequence[str], codes: Iterable[str], told: Told = lambda done, of: None
) -> tuple[list[Seen], Counter[str], int]:
    """All dimensions of some languages over texts; beside them how often each word stands anywhere, and how many there are."""
    seen = [Seen(one) for code in codes if code in languages() for one in dimensions(code)]
    words: Counter[str] = Counter()
    firsts = [_firsts(one.dimension) for one in seen]
    for done, text in enumerate(texts):
        found = [(match.start(), match[0].lower()) for match in WORD.finditer(text)]
        words.update(word for _, word in found)
        heads = {re.split("['’]", word, maxsplit=1)[0] for _, word in found}
        for one, first in zip(seen, firsts, strict=True):
            if first.isdisjoint(heads):  # by far the most frequent case, and a hundred times quicker than the list
                one.texts.append(frozenset())
            else:
                _note(one, text, found)
        if done % 1000 == 0:
            told(done, len(texts))
    return seen, words, words.total()


def _firsts(dimension: Dimension) -> frozenset[str]:
    """The words with which the terms of a dimension begin."""
    pronouns = {"her", "hers", "his", "him"} if dimension.name == "gender" and dimension.language == "en" else set()
    return frozenset(term.lower().split()[0] for term in (*dimension.other, *dimension.names)) | pronouns


def _note(seen: Seen, text: str, words: Sequence[tuple[int, str]]) -> None:
    edits = [edit for edit in seen.dimension.swap(text).edits if edit.side is not None]
    seen.texts.append(frozenset(edit.side for edit in edits if edit.side is not None))
    if not edits:
        return
    own = {i for i, (start, _) in enumerate(words) if any(edit.start <= start < edit.end for edit in edits)}
    starts = {start: i for i, (start, _) in enumerate(words)}
    near: defaultdict[int, set[int]] = defaultdict(set)  # each word counts once for a side, however often that is named
    for edit in edits:
        assert edit.side is not None
        seen.terms[edit.side][text[edit.start : edit.end].lower()] += 1
        at = starts.get(edit.start)
        if at is not None:
            near[edit.side] |= set(range(max(0, at - WINDOW), min(len(words), at + WINDOW + 1))) - own
    for side, places in near.items():
        seen.beside[side].update(words[i][1] for i in places)


def bonds(seen: Seen, side: int, words: Counter[str], total: int, *, least: int = LEAST) -> list[Bond]:
    """The words that are bound to a side the most: log2 of p(word beside the side) over p(word), without small words.

    >>> seen = Seen(dimensions("en")[0], [], (Counter({"tall": 8, "of": 8}), Counter()))
    >>> bonds(seen, 0, Counter({"tall": 16, "of": 112}), 128)
    [Bond(word='tall', count=8, bits=2.0)]
    """
    beside = seen.beside[side]
    all_beside = beside.total()
    small = small_words(seen.dimension.language)
    found = [
        Bond(word, count, math.log2(count / all_beside * total / words[word]))
        for word, count in beside.items()
        if count >= least and len(word) > 1 and word not in small
    ]
    return sorted((bond for bond in found if bond.bits > 0), key=lambda bond: (-bond.bits, -bond.count, bond.word))
