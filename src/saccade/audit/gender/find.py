"""Where a translation names the person of a sentence: by the lexicon, by word alignment where that is silent, or nowhere."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from saccade.audit.gender.analyse import gender_of, is_led
from saccade.audit.gender.ibm import align
from saccade.audit.gender.lexicon import Gender, Language, Span, words_of
from saccade.audit.gender.sentences import Sentence
from saccade.errors import DataError
from saccade.explain.align import read_pharaoh

SURE = 0.15  # how much two words have to choose each other, where the lexicon knows neither

How = Literal["lexicon", "alignment", "nowhere"]


@dataclass(frozen=True)
class Reading:
    """What a translation makes of a person: the noun, its gender, and how the noun was found."""

    sentence: Sentence
    translation: str
    noun: str
    gender: Gender | None  # None: not found
    how: How
    agreed: bool | None = None  # whether the alignment points to the noun that the lexicon found

    @property
    def right(self) -> bool:
        return self.gender == self.sentence.gender


def read_genders(
    sentences: Sequence[Sentence], translations: Sequence[str], language: Language, links: Sequence[str] | None = None
) -> list[Reading]:
    """The gender that each translation gives to its person.

    `links` are word alignments in Pharaoh's format, "0-0 1-2", between words as spaces part them, such as a model's attention
    gives; without them the sentences are aligned by what they themselves teach.
    """
    if len(sentences) != len(translations):
        raise DataError(
            f"{len(sentences):,} sentences and {len(translations):,} translations", cure="give one translation for each"
        )
    sources = [[word for word, _ in words_of(sentence.text)] for sentence in sentences]
    targets = [[word for word, _ in words_of(text)] for text in translations]
    if links is None:
        tables = align(list(zip(sources, targets, strict=True)), hints_of(language))
    else:
        given = zip(sentences, translations, links, strict=True)
        tables = [from_pharaoh(line, sentence.text, text) for sentence, text, line in given]
    rows = zip(sentences, translations, sources, targets, tables, strict=True)
    return [_read(language, *row) for row in rows]


def hints_of(language: Language) -> list[tuple[list[str], list[str]]]:
    """The lexicon as pairs to learn an alignment from."""
    return [
        ([name], [form[0]]) for form, said in language.forms.items() for name in said.occupations if " " not in name
    ]


def from_pharaoh(line: str, source: str, target: str) -> np.ndarray:
    """Links between words as spaces part them, as a table over `words_of` both texts."""
    homes = [_homes(text) for text in (source, target)]
    table = np.zeros([len(home) for home in homes])
    for one, other in read_pharaoh(line):
        table[np.ix_([home == one for home in homes[0]], [home == other for home in homes[1]])] = 1.0
    return table


def _homes(text: str) -> list[int]:
    """Of each word of `words_of`, the number of the stretch between spaces in which it stands."""
    starts = np.array([found.start() for found in re.finditer(r"\S+", text)])
    return [int(np.searchsorted(starts, at, side="right")) - 1 for _, at in words_of(text)]


def _read(
    language: Language, sentence: Sentence, text: str, source: list[str], target: list[str], table: np.ndarray
) -> Reading:
    last = sentence.place + len(sentence.occupation.split())
    mine = table[sentence.place : last].max(0) if table.size else np.zeros(len(target))
    spans = list(language.spans(target))
    named = _named(spans, sentence.occupation, source, sentence.place, mine, table, language)
    free = np.array([language.names(word) and is_led(language, target, at) for at, word in enumerate(target)], bool)
    for span in spans:  # words that name somebody else
        if sentence.occupation not in span.form.occupations:
            free[span.start : span.stop] = False
    best = int((mine * free).argmax()) if free.any() else -1
    if named is not None:
        gender = gender_of(language, target, named.start, named.form.kind)
        noun = " ".join(target[named.start : named.stop])
        agreed = None if not mine.any() else named.start <= int(mine.argmax()) < named.stop
        return Reading(sentence, text, noun, gender, "lexicon", agreed)
    if best >= 0 and mine[best] >= SURE:
        form = language.form((target[best].lower(),))
        gender = gender_of(language, target, best, form.kind if form else None)
        return Reading(sentence, text, target[best], gender, "alignment")
    return Reading(sentence, text, "", None, "nowhere")


def _named(
    spans: Sequence[Span],
    occupation: str,
    source: Sequence[str],
    place: int,
    mine: np.ndarray,
    table: np.ndarray,
    language: Language,
) -> Span | None:
    """The span that the lexicon gives to the occupation; of several, and of one that others may claim, the aligned one."""
    fitting = [span for span in spans if occupation in span.form.occupations]
    if len(fitting) > 1:
        return max(fitting, key=lambda span: mine[span.start])
    if not fitting:
        return None
    (span,) = fitting
    for rival, word in enumerate(source):
        known = rival != place and word != occupation and word in span.form.occupations
        if known and not any(word in other.form.occupations for other in spans if other is not span):
            return span if mine[span.start] >= table[rival, span.start] else None
    return span
