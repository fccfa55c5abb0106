"""Texts about the other group: pronouns, nouns, names and group terms exchanged for their counterparts, one dimension at a time.

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

MIN_LANGUAGE_FRACTION = 0.1  # of the texts that have to be in a language for its words to be exchanged
CONTROL_DIMENSION = "control"  # the dimension of words that stand for no group
NEXT_WORD = re.compile(r"\s+([\w'’-]+)")
HER_COUNTERPARTS, HIS_COUNTERPARTS = ("him", "his"), ("her", "hers")  # what an object, and what a possession becomes
VOWEL_SOUND, CONSONANT_SOUND = re.compile(r"(?i)[aeiou]|hour|honest|heir"), re.compile(r"(?i)eu|uni|use|one|ubiq")


@dataclass(frozen=True)
class Edit:
    """One exchange: where it stood, what stands there now, and the side that it came from; None for an article."""

    start: int
    end: int
    replacement: str
    side: int | None


@dataclass(frozen=True)
class SwappedText:
    """A text after its exchanges."""

    text: str
    edits: tuple[Edit, ...]

    @property
    def side(self) -> int | None:
        """The side that all exchanged words came from; None where they came from both, or where there are none."""
        sides = {edit.side for edit in self.edits if edit.side is not None}
        return sides.pop() if len(sides) == 1 else None

    def map_offset(self, offset: int) -> int:
        """Where a place of the text before stands now; a place inside an exchanged word goes to its beginning or its end."""
        at = bisect_right([edit.start for edit in self.edits], offset)
        shift = sum(len(edit.replacement) - (edit.end - edit.start) for edit in self.edits[: at - 1]) if at else 0
        if not at:
            return offset
        last = self.edits[at - 1]
        if offset >= last.end:
            return offset + shift + len(last.replacement) - (last.end - last.start)
        return last.start + shift

    def split_by_word(self, original: str) -> "SwappedText":
        """The same with every exchange of several words as exchanges of one word each; both sides have equally many.

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
    """One way in which groups differ: its two sides, and the words that stand for each."""

    name: str
    language: str
    sides: tuple[str, str]
    counterparts: dict[str, tuple[str, int]] = field(
        repr=False
    )  # a word in small letters -> its counterpart and its own side
    name_counterparts: dict[str, tuple[str, int]] = field(repr=False)

    @property
    def display_name(self) -> str:
        """Its name for a person; of other languages than English with the language."""
        return self.name if self.language == "en" else f"{self.name} ({self.language})"

    @property
    def regex(self) -> re.Pattern[str]:
        return _compile_regex(self.name, self.language)

    def swap(self, text: str) -> SwappedText:
        """The text about the other side; words of both sides change places."""
        edits: list[Edit] = []
        for found in self.regex.finditer(text):
            article, word = found["article"], found["word"]
            new, side = self._counterpart(word, text[found.end() :])
            if new is None:
                continue
            if article and _choose_article(word, article) != _choose_article(new, article):
                edits.append(Edit(found.start("article"), found.end("article"), _choose_article(new, article), None))
            made = new.lower() if text.islower() else _match_case(new, word)  # who writes american writes nigerian
            edits.append(Edit(found.start("word"), found.end("word"), made, side))
        return SwappedText(_apply_edits(text, edits), tuple(edits))

    def find_side(self, word: str) -> int | None:
        """The side that a word stands for."""
        found = self.name_counterparts.get(word) or self.counterparts.get(word.lower())
        if found is None and self.name == "gender" and self.language == "en":
            return {"him": 0, "his": 0, "her": 1, "hers": 1}.get(word.lower())
        return None if found is None else found[1]

    def _counterpart(self, word: str, rest: str) -> tuple[str | None, int]:
        low = word.lower()
        if self.name == "gender" and self.language == "en" and low in ("her", "his", "him", "hers"):
            return _swap_pronoun(low, rest), 1 if low in ("her", "hers") else 0
        found = self.name_counterparts.get(word) if word in self.name_counterparts else self.counterparts.get(low)
        return (None, 0) if found is None else found


def _swap_pronoun(word: str, rest: str) -> str:
    """him and his are both her; her is one of them, and his is her or hers, by what follows."""
    if word in ("him", "hers"):
        return {"him": "her", "hers": "his"}[word]
    after = NEXT_WORD.match(rest)
    owns = after is not None and after[1].lower() not in _load_words_after_object()
    return (HER_COUNTERPARTS if word == "her" else HIS_COUNTERPARTS)[owns if word == "her" else not owns]


@cache
def _load_words_after_object() -> frozenset[str]:
    """The words that follow an object, not a possession: "saw her and left", "told her that"."""
    return frozenset(_parse_lexicon()["after_object"].split())


def _choose_article(word: str, like: str) -> str:
    """a or an, as a word needs it, in the letters of another."""
    an = VOWEL_SOUND.match(word) is not None and CONSONANT_SOUND.match(word) is None
    return _match_case("an" if an else "a", like) if len(like) > 1 or not like.isupper() else ("An" if an else "A")


def _match_case(word: str, like: str) -> str:
    """A word in the letters of another: small, with a capital, or all capitals; a name keeps its capital."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[0].upper() + word[1:] if like[:1].isupper() else word


def _apply_edits(text: str, edits: list[Edit]) -> str:
    parts, at = [], 0
    for edit in edits:
        parts += [text[at : edit.start], edit.replacement]
        at = edit.end
    return "".join([*parts, text[at:]])


def _read_lexicon() -> str:
    return (files("saccade.text") / "counterfactual_words.toml").read_text(encoding="utf-8")


@cache
def _parse_lexicon() -> dict[str, Any]:
    return tomllib.loads(_read_lexicon())


def hash_lexicon() -> str:
    """The beginning of the SHA-256 of all words and pairs, so that a changed lexicon is seen."""
    return hashlib.sha256(_read_lexicon().encode()).hexdigest()[:12]


@cache
def _parse_dimensions() -> tuple[Dimension, ...]:
    return tuple(_parse_dimension(entry) for entry in _parse_lexicon()["dimension"])


def _parse_dimension(raw: dict[str, Any]) -> Dimension:
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
def _compile_regex(name: str, language: str) -> re.Pattern[str]:
    """All words of a dimension, the longest first, with the article before them where English has one."""
    entry = next(one for one in _parse_dimensions() if (one.name, one.language) == (name, language))
    words = set(entry.counterparts) | ({"her", "hers", "his", "him"} if (name, language) == ("gender", "en") else set())
    choice = lambda found: "|".join(re.escape(word) for word in sorted(found, key=lambda word: (-len(word), word)))
    names = f"|(?-i:{choice(entry.name_counterparts)})" if entry.name_counterparts else ""
    plain = choice(words) or r"(?!)"
    article = r"(?:\b(?P<article>an?)\s+)?" if language == "en" else r"(?P<article>(?!))?"
    return re.compile(rf"(?i){article}(?<![\w'’-])(?P<word>{plain}{names})(?![\w-])(?!['’](?!s\b))")


def load_dimensions(language: str, *, control: bool = False) -> tuple[Dimension, ...]:
    """The dimensions that are known for a language; `control` is the one of words that stand for no group."""
    return tuple(
        one for one in _parse_dimensions() if one.language == language and (one.name == CONTROL_DIMENSION) is control
    )


def list_lexicon_languages() -> tuple[str, ...]:
    """The languages that have words to exchange."""
    return tuple(dict.fromkeys(one.language for one in _parse_dimensions()))


def detect_languages(texts: Iterable[str]) -> list[str]:
    """The languages of a fair part of some texts that have words to exchange; English, where nothing can be told."""
    counts = count_languages(texts)
    total = sum(counts.values())
    return [code for code in list_lexicon_languages() if counts.get(code, 0) >= MIN_LANGUAGE_FRACTION * total] or ["en"]
