"""The gender lexicon of a language: articles, adjectives, endings and words for occupations, read from words/*.toml."""

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
# both: the article decides; declined: like an adjective
NounKind = Literal["male", "female", "neutral", "both", "declined"]

LANGUAGES = {"de": "German", "fr": "French", "pt": "Portuguese", "es": "Spanish"}
WORD_PATTERN = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*'?|\d+|[^\w\s]")
# endings of inflected forms, by language and kind of noun
INFLECTION_ENDINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "de": {
        "male": ("", "s", "es", "n", "en", "ens"),
        "female": ("", "nen"),
        "neutral": ("", "s", "n", "en"),
        "both": ("", "s"),
        "declined": ("e", "en", "er", "em", "es"),
    }
}


def split_words_with_offsets(text: str) -> list[tuple[str, int]]:
    """The words and punctuation marks of a text with their offsets; an elided article is a separate word.

    >>> split_words_with_offsets("L'analyste dit-elle.")
    [("L'", 0), ('analyste', 2), ('dit-elle', 11), ('.', 19)]
    """
    return [(match.group(), match.start()) for match in WORD_PATTERN.finditer(text.replace("’", "'"))]


@dataclass(frozen=True)
class NounForm:
    """A noun for a person: its kind, and the occupations that it can translate."""

    kind: NounKind
    occupations: frozenset[str]


@dataclass(frozen=True)
class PersonSpan:
    """The words of a translation that name a person."""

    start: int
    stop: int
    form: NounForm


@dataclass(frozen=True)
class GenderLexicon:
    """The nouns for people in a language, with articles, adjectives and endings."""

    code: str
    articles: Mapping[str, str]  # from word to male, female or both
    adjectives: Mapping[str, str]
    stop_words: frozenset[str]  # words that never name a person
    non_person_endings: tuple[str, ...]  # endings of nouns for things
    gender_endings: tuple[tuple[str, NounKind], ...]  # endings of unknown nouns, the longest first
    forms: Mapping[tuple[str, ...], NounForm]
    max_form_words: int

    def find_people(self, words: Sequence[str]) -> Iterator[PersonSpan]:
        """Find the nouns for people from left to right, the longest form first."""
        lower = [word.lower() for word in words]
        start = 0
        while start < len(lower):
            for length in range(min(self.max_form_words, len(lower) - start), 0, -1):
                form = self.find_form(tuple(lower[start : start + length]))
                if form is not None and (self.can_be_noun(words[start]) or form.kind == "neutral"):
                    yield PersonSpan(start, start + length, form)
                    start += length - 1
                    break
            start += 1

    def find_form(self, words: tuple[str, ...]) -> NounForm | None:
        """The entry of a noun; for an unknown German compound, the entry of its last part.

        >>> load_lexicon("de").find_form(("rechtsberaterin",)) == load_lexicon("de").find_form(("beraterin",))
        True
        """
        form = self.forms.get(words)
        if form is None and self.code == "de" and len(words) == 1:
            suffixes = (words[0][i:] for i in range(3, len(words[0]) - 4))
            form = next((self.forms[(suffix,)] for suffix in suffixes if (suffix,) in self.forms), None)
        return form

    def can_be_noun(self, word: str) -> bool:
        """Whether a word can be a noun for a person, by its form alone."""
        lower = word.lower()
        if not word[0].isalpha() or lower in self.stop_words or lower in self.articles or lower in self.adjectives:
            return False
        if lower.endswith(self.non_person_endings) and (lower,) not in self.forms:
            return False
        return self.code != "de" or word[0].isupper()

    def guess_kind(self, word: str) -> NounKind | None:
        """The kind of an unknown noun by its ending; None if the ending shows none."""
        lower = word.lower()
        for ending, kind in self.gender_endings:
            if lower.endswith(ending) and len(lower) > len(ending) + 1:
                return kind
        return None


@lru_cache
def load_lexicon(code: str) -> GenderLexicon:
    """Load the lexicon of one of LANGUAGES.

    >>> load_lexicon("fr").forms[("boulangère",)].kind, sorted(load_lexicon("fr").forms[("boulangère",)].occupations)
    ('female', ['baker'])
    """
    if code not in LANGUAGES:
        known = ", ".join(f"{short} ({name})" for short, name in LANGUAGES.items())
        raise UsageError(
            f"The gender of nouns is supported in {known}; got {code!r}. {suggest(code, list(LANGUAGES))} "
            "To add a language, write a word file next to those."
        )
    raw = read_word_file(f"{code}.toml")
    articles = dict.fromkeys(raw.get("articles", raw.get("articles_both", "")).split(), "both")
    articles |= {w: kind for kind in ("male", "female") for w in raw.get(f"articles_{kind}", "").split()}
    adjectives = {word: kind for entry in raw["adjectives"].get("forms", []) for word, kind in expand_entry(entry)}
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
    """Read a file of the directory words."""
    return tomllib.loads((resources.files("saccade.audit.suites.gender") / "words" / name).read_text(encoding="utf-8"))


def expand_entry(entry: str) -> list[tuple[str, NounKind]]:
    """The forms of an entry of a word file; its first lines explain the notation.

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
        stem, *endings = entry.split("/")
        rest = ""
        if " " in endings[-1]:
            endings[-1], _, rest = endings[-1].partition(" ")
        male, female = (f"{stem}{end} {rest}".strip() for end in (endings if len(endings) == 2 else ("", *endings)))
    else:
        return [(entry, "both")]
    forms: list[tuple[str, NounKind]] = [(male, "male"), (female, "female")]
    return [(word, kind) for word, kind in forms if word]


def _inflect_forms(
    occupations: Mapping[str, Sequence[str]], endings: Mapping[str, tuple[str, ...]]
) -> dict[Any, NounForm]:
    """All inflected forms; a form of several entries translates the occupations of all of them."""
    forms: dict[tuple[str, ...], NounForm] = {}
    for occupation, entries in occupations.items():
        for word, kind in (form for entry in entries for form in expand_entry(entry)):
            for ending in endings.get(kind, ("",)):
                key = tuple(part.lower() for part, _ in split_words_with_offsets(word + ending))
                known = forms.get(key)
                if known is None:
                    forms[key] = NounForm(kind, frozenset([occupation]))
                    continue
                merged = known.kind if ending or kind == known.kind else _merge_kinds(known.kind, kind)
                forms[key] = NounForm(merged, known.occupations | {occupation})
    return forms


def _merge_kinds(first: NounKind, second: NounKind) -> NounKind:
    """The kind of a word with two entries: if the article decides in one of them, it does in both."""
    return "both" if "both" in (first, second) else second
