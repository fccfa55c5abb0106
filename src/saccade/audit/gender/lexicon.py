"""What a language says of gender: its articles, adjectives and endings, and how it calls occupations; read from words/*.toml."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

from saccade.attention.table import nearest
from saccade.errors import UsageError

Gender = Literal["male", "female", "neutral"]
Kind = Literal[
    "male", "female", "neutral", "both", "declined"
]  # both: the article decides; declined: like an adjective

LANGUAGES = {"de": "German", "fr": "French", "pt": "Portuguese", "es": "Spanish"}
WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*'?|\d+|[^\w\s]")
INFLECTED: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # endings that a form may have without another meaning
    "de": {
        "male": ("", "s", "es", "n", "en", "ens"),
        "female": ("", "nen"),
        "neutral": ("", "s", "n", "en"),
        "both": ("", "s"),
        "declined": ("e", "en", "er", "em", "es"),
    }
}


def words_of(text: str) -> list[tuple[str, int]]:
    """The words and signs of a text with their places; what an apostrophe cuts off is a word.

    >>> words_of("L'analyste dit-elle.")
    [("L'", 0), ('analyste', 2), ('dit-elle', 11), ('.', 19)]
    """
    return [(found.group(), found.start()) for found in WORD.finditer(text.replace("’", "'"))]


@dataclass(frozen=True)
class Form:
    """One way to call somebody: of which kind it is and which occupations it may stand for."""

    kind: Kind
    occupations: frozenset[str]


@dataclass(frozen=True)
class Span:
    """Words of a translation that call somebody."""

    start: int
    stop: int
    form: Form


@dataclass(frozen=True)
class Language:
    """A language's words for people, and the small words around them."""

    code: str
    articles: Mapping[str, str]  # word to male, female or both
    adjectives: Mapping[str, str]
    stops: frozenset[str]  # no noun, or none of a person
    things: tuple[str, ...]  # endings of nouns that name no person
    endings: tuple[tuple[str, Kind], ...]  # of nouns that the lexicon does not know, the longest first
    forms: Mapping[tuple[str, ...], Form]
    longest: int

    def spans(self, words: Sequence[str]) -> Iterator[Span]:
        """Where people are named: from the left, the longest form first."""
        low = [word.lower() for word in words]
        at = 0
        while at < len(low):
            for length in range(min(self.longest, len(low) - at), 0, -1):
                form = self.form(tuple(low[at : at + length]))
                if form is not None and (self.names(words[at]) or form.kind == "neutral"):
                    yield Span(at, at + length, form)
                    at += length - 1
                    break
            at += 1

    def form(self, words: tuple[str, ...]) -> Form | None:
        """What the lexicon says of some words; of a German compound that it does not know, what it says of its end.

        >>> language("de").form(("rechtsberaterin",)) == language("de").form(("beraterin",))
        True
        """
        found = self.forms.get(words)
        if found is None and self.code == "de" and len(words) == 1:
            ends = (words[0][at:] for at in range(3, len(words[0]) - 4))
            found = next((self.forms[(end,)] for end in ends if (end,) in self.forms), None)
        return found

    def names(self, word: str) -> bool:
        """Whether a word can be a noun by its looks."""
        low = word.lower()
        if not word[0].isalpha() or low in self.stops or low in self.articles or low in self.adjectives:
            return False
        if low.endswith(self.things) and (low,) not in self.forms:
            return False
        return self.code != "de" or word[0].isupper()

    def guess(self, word: str) -> Kind | None:
        """What the ending of an unknown noun says."""
        low = word.lower()
        return next(
            (kind for ending, kind in self.endings if low.endswith(ending) and len(low) > len(ending) + 1), None
        )


@lru_cache
def language(code: str) -> Language:
    """One of LANGUAGES, read from its file.

    >>> language("fr").forms[("boulangère",)].kind, sorted(language("fr").forms[("boulangère",)].occupations)
    ('female', ['baker'])
    """
    if code not in LANGUAGES:
        known = ", ".join(f"{short} ({name})" for short, name in LANGUAGES.items())
        raise UsageError(
            f"The gender of nouns can be read in {known}; got {code!r}. {nearest(code, list(LANGUAGES))} "
            "A further language is one file of words beside these."
        )
    raw = read_words(f"{code}.toml")
    articles = dict.fromkeys(raw.get("articles", raw.get("articles_both", "")).split(), "both")
    articles |= {w: kind for kind in ("male", "female") for w in raw.get(f"articles_{kind}", "").split()}
    adjectives = {word: kind for said in raw["adjectives"].get("forms", []) for word, kind in parts_of(said)}
    keys: list[tuple[str, Kind]] = [("male_endings", "male"), ("female_endings", "female"), ("common_endings", "both")]
    endings: list[tuple[str, Kind]] = [(ending, kind) for key, kind in keys for ending in raw[key].split()]
    forms = _forms(raw["occupations"], INFLECTED.get(code, {}))
    return Language(
        code,
        articles,
        adjectives,
        frozenset(raw["stops"].split()),
        tuple(raw["thing_endings"].split()),
        tuple(sorted(endings, key=lambda pair: -len(pair[0]))),
        forms,
        max(map(len, forms)),
    )


def read_words(name: str) -> dict[str, Any]:
    """A file of words, as it lies beside this one."""
    return tomllib.loads((resources.files("saccade.audit.gender") / "words" / name).read_text(encoding="utf-8"))


def parts_of(said: str) -> list[tuple[str, Kind]]:
    """The forms that one entry of a file stands for; its first lines explain the notation.

    >>> parts_of("Koch|Köchin"), parts_of("vend/eur/euse")
    ([('Koch', 'male'), ('Köchin', 'female')], [('vendeur', 'male'), ('vendeuse', 'female')])
    >>> parts_of("Bäcker/in")
    [('Bäcker', 'male'), ('Bäckerin', 'female')]
    >>> parts_of("|Putzfrau"), parts_of("CEO"), parts_of("=Wache"), parts_of("~Angestellt")
    ([('Putzfrau', 'female')], [('CEO', 'both')], [('Wache', 'neutral')], [('Angestellt', 'declined')])
    """
    if said[0] in "=~":
        return [(said[1:], "neutral" if said[0] == "=" else "declined")]
    if "|" in said:
        male, female = said.split("|")
    elif "/" in said:
        stem, *ends = said.split("/")
        tail = ""
        if " " in ends[-1]:
            ends[-1], _, tail = ends[-1].partition(" ")
        male, female = (f"{stem}{end} {tail}".strip() for end in (ends if len(ends) == 2 else ("", *ends)))
    else:
        return [(said, "both")]
    both: list[tuple[str, Kind]] = [(male, "male"), (female, "female")]
    return [(word, kind) for word, kind in both if word]


def _forms(occupations: Mapping[str, Sequence[str]], inflected: Mapping[str, tuple[str, ...]]) -> dict[Any, Form]:
    """Every inflected form; a form that several entries have stands for the occupations of all of them."""
    forms: dict[tuple[str, ...], Form] = {}
    for occupation, entries in occupations.items():
        for word, kind in (part for said in entries for part in parts_of(said)):
            for ending in inflected.get(kind, ("",)):
                key = tuple(found.lower() for found, _ in words_of(word + ending))
                before = forms.get(key)
                if before is not None:
                    named = before.occupations | {occupation}
                    forms[key] = Form(
                        before.kind if ending or kind == before.kind else _joined(before.kind, kind), named
                    )
                else:
                    forms[key] = Form(kind, frozenset([occupation]))
    return forms


def _joined(one: Kind, other: Kind) -> Kind:
    """Two entries with the same word: what one leaves to the article, both do."""
    return "both" if "both" in (one, other) else other
