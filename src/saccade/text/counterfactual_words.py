"""Counterfactual texts: swap pronouns, nouns, names and group terms for those of the other group, one dimension at a time.

>>> gender = load_dimensions("en")[0]
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

from saccade.text.language_id import count_languages

MIN_LANGUAGE_FRACTION = 0.1  # of the texts that must be in a language for its words to be swapped
CONTROL_DIMENSION = "control"  # the dimension of words that refer to no group
NEXT_WORD = re.compile(r"\s+([\w'’-]+)")
# "her" becomes (as object, as possessive); "his" becomes (before a noun, alone)
HER_COUNTERPARTS, HIS_COUNTERPARTS = ("him", "his"), ("her", "hers")
VOWEL_SOUND, CONSONANT_SOUND = re.compile(r"(?i)[aeiou]|hour|honest|heir"), re.compile(r"(?i)eu|uni|use|one|ubiq")


@dataclass(frozen=True)
class Edit:
    """One replacement: the span in the original text, the new words, and the side of the old ones (None for an article)."""

    start: int
    end: int
    replacement: str
    side: int | None


@dataclass(frozen=True)
class SwappedText:
    """A text after its replacements."""

    text: str
    edits: tuple[Edit, ...]

    @property
    def side(self) -> int | None:
        """The side of all words that were replaced; None if they are from both sides, or if there are none."""
        sides = {edit.side for edit in self.edits if edit.side is not None}
        return sides.pop() if len(sides) == 1 else None

    def map_offset(self, offset: int) -> int:
        """Map an offset in the original text to the new one; an offset inside a replaced word maps to the word's start."""
        index = bisect_right([edit.start for edit in self.edits], offset)
        shift = sum(len(edit.replacement) - (edit.end - edit.start) for edit in self.edits[: index - 1]) if index else 0
        if not index:
            return offset
        last = self.edits[index - 1]
        if offset >= last.end:
            return offset + shift + len(last.replacement) - (last.end - last.start)
        return last.start + shift

    def split_by_word(self, original: str) -> "SwappedText":
        """Split replacements of several words into replacements of one word; both sides have the same number of words.

        >>> text = "a white man"
        >>> [(edit.start, edit.replacement) for edit in load_dimensions("en")[1].swap(text).split_by_word(text).edits]
        [(2, 'black'), (8, 'man')]
        """
        edits = [
            Edit(edit.start + old.start(), edit.start + old.end(), new, edit.side)
            for edit in self.edits
            for old, new in zip(
                re.finditer(r"\S+", original[edit.start : edit.end]), edit.replacement.split(), strict=True
            )
        ]
        return SwappedText(self.text, tuple(edits))


@dataclass(frozen=True)
class Dimension:
    """A dimension in which groups differ: its two sides, and the words for each."""

    name: str
    language: str
    sides: tuple[str, str]
    counterparts: dict[str, tuple[str, int]] = field(repr=False)  # lowercase word -> its counterpart, and its own side
    name_counterparts: dict[str, tuple[str, int]] = field(repr=False)  # the same for names, which are case-sensitive

    @property
    def display_name(self) -> str:
        """The name for people to read, with the language unless it is English."""
        return self.name if self.language == "en" else f"{self.name} ({self.language})"

    @property
    def regex(self) -> re.Pattern[str]:
        return _compile_regex(self.name, self.language)

    def swap(self, text: str) -> SwappedText:
        """Replace the words of each side with their counterparts of the other side."""
        edits: list[Edit] = []
        for match in self.regex.finditer(text):
            article, word = match["article"], match["word"]
            new, side = self._counterpart(word, text[match.end() :])
            if new is None:
                continue
            if article and _choose_article(word, article) != _choose_article(new, article):
                edits.append(Edit(match.start("article"), match.end("article"), _choose_article(new, article), None))
            # a text all in lowercase stays so: american -> nigerian
            replacement = new.lower() if text.islower() else _match_case(new, word)
            edits.append(Edit(match.start("word"), match.end("word"), replacement, side))
        return SwappedText(_apply_edits(text, edits), tuple(edits))

    def find_side(self, word: str) -> int | None:
        """The side of a word, 0 or 1; None for a word that is on neither side."""
        entry = self.name_counterparts.get(word) or self.counterparts.get(word.lower())
        if entry is None and self.name == "gender" and self.language == "en":
            return {"him": 0, "his": 0, "her": 1, "hers": 1}.get(word.lower())
        return None if entry is None else entry[1]

    def _counterpart(self, word: str, following_text: str) -> tuple[str | None, int]:
        lower = word.lower()
        if self.name == "gender" and self.language == "en" and lower in ("her", "his", "him", "hers"):
            return _swap_pronoun(lower, following_text), 1 if lower in ("her", "hers") else 0
        entry = self.name_counterparts.get(word) if word in self.name_counterparts else self.counterparts.get(lower)
        return (None, 0) if entry is None else entry


def _swap_pronoun(word: str, following_text: str) -> str:
    """The other pronoun: the next word decides whether "her" becomes "him" or "his", and "his" becomes "her" or "hers"."""
    if word in ("him", "hers"):
        return {"him": "her", "hers": "his"}[word]
    next_word = NEXT_WORD.match(following_text)
    before_noun = next_word is not None and next_word[1].lower() not in _load_words_after_object()
    return (HER_COUNTERPARTS if word == "her" else HIS_COUNTERPARTS)[before_noun if word == "her" else not before_noun]


@cache
def _load_words_after_object() -> frozenset[str]:
    """The words that follow an object, not a possessive: "saw her and left", "told her that"."""
    return frozenset(_parse_lexicon()["after_object"].split())


def _choose_article(word: str, like: str) -> str:
    """The article "a" or "an" of a word, in the case of `like`."""
    an = VOWEL_SOUND.match(word) is not None and CONSONANT_SOUND.match(word) is None
    return _match_case("an" if an else "a", like) if len(like) > 1 or not like.isupper() else ("An" if an else "A")


def _match_case(word: str, like: str) -> str:
    """A word in the case of another: lowercase, capitalized or uppercase; a name keeps its capital."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[0].upper() + word[1:] if like[:1].isupper() else word


def _apply_edits(text: str, edits: list[Edit]) -> str:
    parts, end = [], 0
    for edit in edits:
        parts += [text[end : edit.start], edit.replacement]
        end = edit.end
    return "".join([*parts, text[end:]])


def _read_lexicon() -> str:
    return (files("saccade.text") / "counterfactual_words.toml").read_text(encoding="utf-8")


@cache
def _parse_lexicon() -> dict[str, Any]:
    return tomllib.loads(_read_lexicon())


def hash_lexicon() -> str:
    """The first 12 hex digits of the SHA-256 of the lexicon, which identify its version."""
    return hashlib.sha256(_read_lexicon().encode()).hexdigest()[:12]


@cache
def _parse_dimensions() -> tuple[Dimension, ...]:
    return tuple(_parse_dimension(entry) for entry in _parse_lexicon()["dimension"])


def _parse_dimension(raw: dict[str, Any]) -> Dimension:
    """The word pairs as a mapping from each word to its counterpart; the first pair with a word counts."""
    counterparts: dict[str, tuple[str, int]] = {}
    names: dict[str, tuple[str, int]] = {}
    for left, right in raw.get("both", ()):
        counterparts.setdefault(left.lower(), (right, 0))
        counterparts.setdefault(right.lower(), (left, 1))
    for left, right in raw.get("marked", ()):
        counterparts.setdefault(right.lower(), (left, 1))
    for left, right in raw.get("names", ()):
        names.setdefault(left, (right, 0))
        names.setdefault(right, (left, 1))
    return Dimension(raw["name"], raw["language"], tuple(raw["sides"]), counterparts, names)


@cache
def _compile_regex(name: str, language: str) -> re.Pattern[str]:
    """A regex for all words of a dimension, longest first, with the article before them in English."""
    dimension = next(d for d in _parse_dimensions() if (d.name, d.language) == (name, language))
    pronouns = {"her", "hers", "his", "him"} if (name, language) == ("gender", "en") else set()
    join = lambda words: "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))
    names = f"|(?-i:{join(dimension.name_counterparts)})" if dimension.name_counterparts else ""
    words = join(set(dimension.counterparts) | pronouns) or r"(?!)"
    article = r"(?:\b(?P<article>an?)\s+)?" if language == "en" else r"(?P<article>(?!))?"
    return re.compile(rf"(?i){article}(?<![\w'’-])(?P<word>{words}{names})(?![\w-])(?!['’](?!s\b))")


def load_dimensions(language: str, *, control: bool = False) -> tuple[Dimension, ...]:
    """The dimensions of a language; with `control`, only the control dimension, whose words refer to no group."""
    return tuple(
        dimension
        for dimension in _parse_dimensions()
        if dimension.language == language and (dimension.name == CONTROL_DIMENSION) is control
    )


def list_lexicon_languages() -> tuple[str, ...]:
    """The languages of the lexicon."""
    return tuple(dict.fromkeys(dimension.language for dimension in _parse_dimensions()))


def detect_languages(texts: Iterable[str]) -> list[str]:
    """The lexicon languages of at least `MIN_LANGUAGE_FRACTION` of the texts; English if there are none."""
    counts = count_languages(texts)
    total = sum(counts.values())
    return [code for code in list_lexicon_languages() if counts.get(code, 0) >= MIN_LANGUAGE_FRACTION * total] or ["en"]
