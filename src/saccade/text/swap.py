"""Texts about the other group: pronouns, nouns, names and group terms exchanged for their counterparts, one dimension at a time.

>>> gender = dimensions("en")[0]
>>> gender.swap("Her father gave her his old car, and she thanked him.").text
'His mother gave him her old car, and he thanked her.'
"""

import hashlib
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from saccade.text.languages import shares

PART = 0.1  # of the texts that have to be in a language for its words to be exchanged
CONTROL = "control"  # the dimension of words that stand for no group
NEXT = re.compile(r"\s+([\w'’-]+)")
HER, HIS = ("him", "his"), ("her", "hers")  # what an object, and what a possession becomes
VOWEL, NOT_VOWEL = re.compile(r"(?i)[aeiou]|hour|honest|heir"), re.compile(r"(?i)eu|uni|use|one|ubiq")


@dataclass(frozen=True)
class Edit:
    """One exchange: where it stood, what stands there now, and the side that it came from; None for an article."""

    start: int
    end: int
    new: str
    side: int | None


@dataclass(frozen=True)
class Swapped:
    """A text after its exchanges."""

    text: str
    edits: tuple[Edit, ...]

    @property
    def side(self) -> int | None:
        """The side that all exchanged words came from; None where they came from both, or where there are none."""
        sides = {edit.side for edit in self.edits if edit.side is not None}
        return sides.pop() if len(sides) == 1 else None

    def moved(self, place: int) -> int:
        """Where a place of the text before stands now; a place inside an exchanged word goes to its beginning or its end."""
        at = bisect_right([edit.start for edit in self.edits], place)
        shift = sum(len(edit.new) - (edit.end - edit.start) for edit in self.edits[: at - 1]) if at else 0
        if not at:
            return place
        last = self.edits[at - 1]
        if place >= last.end:
            return place + shift + len(last.new) - (last.end - last.start)
        return last.start + shift

    def by_word(self, before: str) -> "Swapped":
        """The same with every exchange of several words as exchanges of one word each; both sides have equally many.

        >>> text = "a white man"
        >>> [(edit.start, edit.new) for edit in dimensions("en")[1].swap(text).by_word(text).edits]
        [(2, 'black'), (8, 'man')]
        """
        edits = [
            Edit(edit.start + old.start(), edit.start + old.end(), new, edit.side)
            for edit in self.edits
            for old, new in zip(re.finditer(r"\S+", before[edit.start : edit.end]), edit.new.split(), strict=True)
        ]
        return Swapped(self.text, tuple(edits))


@dataclass(frozen=True)
class Dimension:
    """One way in which groups differ: its two sides, and the words that stand for each."""

    name: str
    language: str
    sides: tuple[str, str]
    other: dict[str, tuple[str, int]] = field(repr=False)  # a word in small letters -> its counterpart and its own side
    names: dict[str, tuple[str, int]] = field(repr=False)

    @property
    def called(self) -> str:
        """Its name for a person; of other languages than English with the language."""
        return self.name if self.language == "en" else f"{self.name} ({self.language})"

    @property
    def pattern(self) -> re.Pattern[str]:
        return _pattern(self.name, self.language)

    def swap(self, text: str) -> Swapped:
        """The text about the other side; words of both sides change places."""
        edits: list[Edit] = []
        for found in self.pattern.finditer(text):
            article, word = found["article"], found["word"]
            new, side = self._counterpart(word, text[found.end() :])
            if new is None:
                continue
            if article and _article(word, article) != _article(new, article):
                edits.append(Edit(found.start("article"), found.end("article"), _article(new, article), None))
            made = new.lower() if text.islower() else _cased(new, word)  # who writes american writes nigerian
            edits.append(Edit(found.start("word"), found.end("word"), made, side))
        return Swapped(_edited(text, edits), tuple(edits))

    def side_of(self, word: str) -> int | None:
        """The side that a word stands for."""
        found = self.names.get(word) or self.other.get(word.lower())
        if found is None and self.name == "gender" and self.language == "en":
            return {"him": 0, "his": 0, "her": 1, "hers": 1}.get(word.lower())
        return None if found is None else found[1]

    def _counterpart(self, word: str, rest: str) -> tuple[str | None, int]:
        low = word.lower()
        if self.name == "gender" and self.language == "en" and low in ("her", "his", "him", "hers"):
            return _pronoun(low, rest), 1 if low in ("her", "hers") else 0
        found = self.names.get(word) if word in self.names else self.other.get(low)
        return (None, 0) if found is None else found


def _pronoun(word: str, rest: str) -> str:
    """him and his are both her; her is one of them, and his is her or hers, by what follows."""
    if word in ("him", "hers"):
        return {"him": "her", "hers": "his"}[word]
    after = NEXT.match(rest)
    owns = after is not None and after[1].lower() not in _after_object()
    return (HER if word == "her" else HIS)[owns if word == "her" else not owns]


@cache
def _after_object() -> frozenset[str]:
    """The words that follow an object, not a possession: "saw her and left", "told her that"."""
    return frozenset(_raw()["after_object"].split())


def _article(word: str, like: str) -> str:
    """a or an, as a word needs it, in the letters of another."""
    an = VOWEL.match(word) is not None and NOT_VOWEL.match(word) is None
    return _cased("an" if an else "a", like) if len(like) > 1 or not like.isupper() else ("An" if an else "A")


def _cased(word: str, like: str) -> str:
    """A word in the letters of another: small, with a capital, or all capitals; a name keeps its capital."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[0].upper() + word[1:] if like[:1].isupper() else word


def _edited(text: str, edits: list[Edit]) -> str:
    parts, at = [], 0
    for edit in edits:
        parts += [text[at : edit.start], edit.new]
        at = edit.end
    return "".join([*parts, text[at:]])


def _written() -> str:
    return (files("saccade.text") / "swap.toml").read_text(encoding="utf-8")


@cache
def _raw() -> dict[str, Any]:
    return tomllib.loads(_written())


def lexicon_mark() -> str:
    """The beginning of the SHA-256 of all words and pairs, so that a changed lexicon is seen."""
    return hashlib.sha256(_written().encode()).hexdigest()[:12]


@cache
def _tables() -> tuple[Dimension, ...]:
    return tuple(_dimension(entry) for entry in _raw()["dimension"])


def _dimension(raw: dict[str, Any]) -> Dimension:
    """The pairs as a map from each word; the first pair that a word is in says what it becomes."""
    other: dict[str, tuple[str, int]] = {}
    names: dict[str, tuple[str, int]] = {}
    for left, right in raw.get("both", ()):
        other.setdefault(left.lower(), (right, 0))
        other.setdefault(right.lower(), (left, 1))
    for left, right in raw.get("marked", ()):
        other.setdefault(right.lower(), (left, 1))
    for left, right in raw.get("names", ()):
        names.setdefault(left, (right, 0))
        names.setdefault(right, (left, 1))
    return Dimension(raw["name"], raw["language"], tuple(raw["sides"]), other, names)


@cache
def _pattern(name: str, language: str) -> re.Pattern[str]:
    """All words of a dimension, the longest first, with the article before them where English has one."""
    entry = next(one for one in _tables() if (one.name, one.language) == (name, language))
    words = set(entry.other) | ({"her", "hers", "his", "him"} if (name, language) == ("gender", "en") else set())
    choice = lambda found: "|".join(re.escape(word) for word in sorted(found, key=lambda word: (-len(word), word)))
    names = f"|(?-i:{choice(entry.names)})" if entry.names else ""
    plain = choice(words) or r"(?!)"
    article = r"(?:\b(?P<article>an?)\s+)?" if language == "en" else r"(?P<article>(?!))?"
    return re.compile(rf"(?i){article}(?<![\w'’-])(?P<word>{plain}{names})(?![\w-])(?!['’](?!s\b))")


def dimensions(language: str, *, control: bool = False) -> tuple[Dimension, ...]:
    """The dimensions that are known for a language; `control` is the one of words that stand for no group."""
    return tuple(one for one in _tables() if one.language == language and (one.name == CONTROL) is control)


def languages() -> tuple[str, ...]:
    """The languages that have words to exchange."""
    return tuple(dict.fromkeys(one.language for one in _tables()))


def spoken(texts: Iterable[str]) -> list[str]:
    """The languages of a fair part of some texts that have words to exchange; English, where nothing can be told."""
    counts = shares(texts)
    total = sum(counts.values())
    return [code for code in languages() if counts.get(code, 0) >= PART * total] or ["en"]
