"""What a language says of gender: its articles, adjectives and endings, and how it calls occupations; read from words/*.toml."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

from saccade.errors import UsageError
from saccade.suggest import suggest

Gender = Literal["male", "female", "neutral"]
NounKind = Literal[
    "male", "female", "neutral", "both", "declined"
]  # both: the article decides; declined: like an adjective

LANGUAGES = {"de": "German", "fr": "French", "pt": "Portuguese", "es": "Spanish"}
WORD_PATTERN = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*'?|\d+|[^\w\s]")
INFLECTION_ENDINGS: Mapping[
    str, Mapping[str, tuple[str, ...]]
] = {  # endings that a form may have without another meaning
    "de": {
        "male": ("", "s", "es", "n", "en", "ens"),
        "female": ("", "nen"),
        "neutral": ("", "s", "n", "en"),
        "both": ("", "s"),
        "declined": ("e", "en", "er", "em", "es"),
    }
}


def split_words_with_offsets(text: str) -> list[tuple[str, int]]:
    """The words and signs of a text with their places; what an apostrophe cuts off is a word.

    >>> split_words_with_offsets("L'analyste dit-elle.")
    [("L'", 0), ('analyste', 2), ('dit-elle', 11), ('.', 19)]
    """
    return [(found.group(), found.start()) for found in WORD_PATTERN.finditer(text.replace("’", "'"))]


@dataclass(frozen=True)
class NounForm:
    """One way to call somebody: of which kind it is and which occupations it may stand for."""

    kind: NounKind
    occupations: frozenset[str]


@dataclass(frozen=True)
class PersonSpan:
    """Words of a translation that call somebody."""

    start: int
    stop: int
    form: NounForm


@dataclass(frozen=True)
class GenderLexicon:
    """A language's words for people, and the small words around them."""

    code: str
    articles: Mapping[str, str]  # word to male, female or both
    adjectives: Mapping[str, str]
    stop_words: frozenset[str]  # no noun, or none of a person
    non_person_endings: tuple[str, ...]  # endings of nouns that name no person
    gender_endings: tuple[tuple[str, NounKind], ...]  # of nouns that the lexicon does not know, the longest first
    forms: Mapping[tuple[str, ...], NounForm]
    max_form_words: int

    def find_people(self, words: Sequence[str]) -> Iterator[PersonSpan]:
        """Where people are named: from the left, the longest form first."""
        low = [word.lower() for word in words]
        at = 0
        while at < len(low):
            for length in range(min(self.max_form_words, len(low) - at), 0, -1):
                form = self.find_form(tuple(low[at : at + length]))
                if form is not None and (self.can_be_noun(words[at]) or form.kind == "neutral"):
                    yield PersonSpan(at, at + length, form)
                    at += length - 1
                    break
            at += 1

    def find_form(self, words: tuple[str, ...]) -> NounForm | None:
        """What the lexicon says of some words; of a German compound that it does not know, what it says of its end.

        >>> load_lexicon("de").find_form(("rechtsberaterin",)) == load_lexicon("de").find_form(("beraterin",))
        True
        """
        found = self.forms.get(words)
        if found is None and self.code == "de" and len(words) == 1:
            ends = (words[0][at:] for at in range(3, len(words[0]) - 4))
            found = next((self.forms[(end,)] for end in ends if (end,) in self.forms), None)
        return found

    def can_be_noun(self, word: str) -> bool:
        """Whether a word can be a noun by its looks."""
        low = word.lower()
        if not word[0].isalpha() or low in self.stop_words or low in self.articles or low in self.adjectives:
            return False
        if low.endswith(self.non_person_endings) and (low,) not in self.forms:
            return False
        return self.code != "de" or word[0].isupper()

    def guess_kind(self, word: str) -> NounKind | None:
        """What the ending of an unknown noun says."""
        low = word.lower()
        return next(
            (kind for ending, kind in self.gender_endings if low.endswith(ending) and len(low) > len(ending) + 1), None
        )


@lru_cache
def load_lexicon(code: str) -> GenderLexicon:
    """One of LANGUAGES, read from its file.

    >>> load_lexicon("fr").forms[("boulangère",)].kind, sorted(load_lexicon("fr").forms[("boulangère",)].occupations)
    ('female', ['baker'])
    """
    if code not in LANGUAGES:
        known = ", ".join(f"{short} ({name})" for short, name in LANGUAGES.items())
        raise UsageError(
            f"The gender of nouns can be read in {known}; got {code!r}. {suggest(code, list(LANGUAGES))} "
            "A further language is one file of words beside these."
        )
    raw = read_word_file(f"{code}.toml")
    articles = dict.fromkeys(raw.get("articles", raw.get("articles_both", "")).split(), "both")
    articles |= {w: kind for kind in ("male", "female") for w in raw.get(f"articles_{kind}", "").split()}
    adjectives = {word: kind for said in raw["adjectives"].get("forms", []) for word, kind in expand_entry(said)}
    keys: list[tuple[str, NounKind]] = [
        ("male_endings", "male"),
        ("female_endings", "female"),
        ("common_endings", "both"),
    ]
    endings: list[tuple[str, NounKind]] = [(ending, kind) for key, kind in keys for ending in raw[key].split()]
    forms = _inflect_forms(raw["occupations"], INFLECTION_ENDINGS.get(code, {}))
    return GenderLexicon(
        code,
        articles,
        adjectives,
        frozenset(raw["stop_words"].split()),
        tuple(raw["non_person_endings"].split()),
        tuple(sorted(endings, key=lambda pair: -len(pair[0]))),
        forms,
        max(map(len, forms)),
    )


def read_word_file(name: str) -> dict[str, Any]:
    """A file of words, as it lies beside this one."""
    return tomllib.loads((resources.files("saccade.audit.suites.gender") / "words" / name).read_text(encoding="utf-8"))


def expand_entry(entry: str) -> list[tuple[str, NounKind]]:
    """The forms that one entry of a file stands for; its first lines explain the notation.

    >>> expand_entry("Koch|Köchin"), expand_entry("vend/eur/euse")
    ([('Koch', 'male'), ('Köchin', 'female')], [('vendeur', 'male'), ('vendeuse', 'female')])
    >>> expand_entry("Bäcker/in")
    [('Bäcker', 'male'), ('Bäckerin', 'female')]
    >>> expand_entry("|Putzfrau"), expand_entry("CEO"), expand_entry("=Wache"), expand_entry("~Angestellt")
    ([('Putzfrau', 'female')], [('CEO', 'both')], [('Wache', 'neutral')], [('Angestellt', 'declined')])
    """
    if entry[0] in "=~":
        return [(entry[1:], "neutral" if entry[0] == "=" else "declined")]
    if "|" in entry:
        male, female = entry.split("|")
    elif "/" in entry:
        stem, *ends = entry.split("/")
        tail = ""
        if " " in ends[-1]:
            ends[-1], _, tail = ends[-1].partition(" ")
        male, female = (f"{stem}{end} {tail}".strip() for end in (ends if len(ends) == 2 else ("", *ends)))
    else:
        return [(entry, "both")]
    both: list[tuple[str, NounKind]] = [(male, "male"), (female, "female")]
    return [(word, kind) for word, kind in both if word]


def _inflect_forms(
    occupations: Mapping[str, Sequence[str]], inflected: Mapping[str, tuple[str, ...]]
) -> dict[Any, NounForm]:
    """Every inflected form; a form that several entries have stands for the occupations of all of them."""
    forms: dict[tuple[str, ...], NounForm] = {}
    for occupation, entries in occupations.items():
        for word, kind in (part for said in entries for part in expand_entry(said)):
            for ending in inflected.get(kind, ("",)):
                key = tuple(found.lower() for found, _ in split_words_with_offsets(word + ending))
                before = forms.get(key)
                if before is not None:
                    named = before.occupations | {occupation}
                    forms[key] = NounForm(
                        before.kind if ending or kind == before.kind else _merge_kinds(before.kind, kind), named
                    )
                else:
                    forms[key] = NounForm(kind, frozenset([occupation]))
    return forms


def _merge_kinds(one: NounKind, other: NounKind) -> NounKind:
    """Two entries with the same word: what one leaves to the article, both do."""
    return "both" if "both" in (one, other) else other
