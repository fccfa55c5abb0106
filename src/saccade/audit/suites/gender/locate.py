"""Where a translation names the person of a sentence: by the lexicon, by word alignment where that is silent, or nowhere."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from saccade.audit.suites.gender.ibm_model1 import align
from saccade.audit.suites.gender.lexicon import Gender, GenderLexicon, PersonSpan, split_words_with_offsets
from saccade.audit.suites.gender.morphology import has_article, phrase_gender
from saccade.audit.suites.gender.sentences import OccupationSentence
from saccade.errors import DataError
from saccade.explain.word_alignment import parse_pharaoh

MIN_ALIGNMENT_PROBABILITY = 0.15  # how much two words have to choose each other, where the lexicon knows neither

NounSource = Literal["lexicon", "alignment", "not_found"]


@dataclass(frozen=True)
class GenderReading:
    """What a translation makes of a person: the noun, its gender, and how the noun was found."""

    sentence: OccupationSentence
    translation: str
    noun: str
    gender: Gender | None  # None: not found
    noun_source: NounSource
    alignment_agrees: bool | None = None  # whether the alignment points to the noun that the lexicon found

    @property
    def is_right(self) -> bool:
        return self.gender == self.sentence.gender


def read_genders(
    sentences: Sequence[OccupationSentence],
    translations: Sequence[str],
    language: GenderLexicon,
    links: Sequence[str] | None = None,
) -> list[GenderReading]:
    """The gender that each translation gives to its person.

    `links` are word alignments in Pharaoh's format, "0-0 1-2", between words as spaces part them, such as a model's attention
    gives; without them the sentences are aligned by what they themselves teach.
    """
    if len(sentences) != len(translations):
        raise DataError(
            f"{len(sentences):,} sentences and {len(translations):,} translations", hint="give one translation for each"
        )
    sources = [[word for word, _ in split_words_with_offsets(sentence.text)] for sentence in sentences]
    targets = [[word for word, _ in split_words_with_offsets(text)] for text in translations]
    if links is None:
        tables = align(list(zip(sources, targets, strict=True)), lexicon_pairs(language))
    else:
        given = zip(sentences, translations, links, strict=True)
        tables = [pharaoh_to_table(line, sentence.text, text) for sentence, text, line in given]
    rows = zip(sentences, translations, sources, targets, tables, strict=True)
    return [_read_gender(language, *row) for row in rows]


def lexicon_pairs(language: GenderLexicon) -> list[tuple[list[str], list[str]]]:
    """The lexicon as pairs to learn an alignment from."""
    return [
        ([name], [form[0]]) for form, said in language.forms.items() for name in said.occupations if " " not in name
    ]


def pharaoh_to_table(line: str, source: str, target: str) -> np.ndarray:
    """Links between words as spaces part them, as a table over `words_of` both texts."""
    homes = [_token_numbers(text) for text in (source, target)]
    table = np.zeros([len(home) for home in homes])
    for one, other in parse_pharaoh(line):
        table[np.ix_([home == one for home in homes[0]], [home == other for home in homes[1]])] = 1.0
    return table


def _token_numbers(text: str) -> list[int]:
    """Of each word of `words_of`, the number of the stretch between spaces in which it stands."""
    starts = np.array([found.start() for found in re.finditer(r"\S+", text)])
    return [int(np.searchsorted(starts, at, side="right")) - 1 for _, at in split_words_with_offsets(text)]


def _read_gender(
    language: GenderLexicon,
    sentence: OccupationSentence,
    text: str,
    source: list[str],
    target: list[str],
    table: np.ndarray,
) -> GenderReading:
    last = sentence.position + len(sentence.occupation.split())
    mine = table[sentence.position : last].max(0) if table.size else np.zeros(len(target))
    spans = list(language.find_people(target))
    named = _find_span(spans, sentence.occupation, source, sentence.position, mine, table, language)
    free = np.array(
        [language.can_be_noun(word) and has_article(language, target, at) for at, word in enumerate(target)], bool
    )
    for span in spans:  # words that name somebody else
        if sentence.occupation not in span.form.occupations:
            free[span.start : span.stop] = False
    best = int((mine * free).argmax()) if free.any() else -1
    if named is not None:
        gender = phrase_gender(language, target, named.start, named.form.kind)
        noun = " ".join(target[named.start : named.stop])
        agreed = None if not mine.any() else named.start <= int(mine.argmax()) < named.stop
        return GenderReading(sentence, text, noun, gender, "lexicon", agreed)
    if best >= 0 and mine[best] >= MIN_ALIGNMENT_PROBABILITY:
        form = language.find_form((target[best].lower(),))
        gender = phrase_gender(language, target, best, form.kind if form else None)
        return GenderReading(sentence, text, target[best], gender, "alignment")
    return GenderReading(sentence, text, "", None, "not_found")


def _find_span(
    spans: Sequence[PersonSpan],
    occupation: str,
    source: Sequence[str],
    position: int,
    alignment: np.ndarray,
    table: np.ndarray,
    language: GenderLexicon,
) -> PersonSpan | None:
    """The span that the lexicon gives to the occupation; of several, and of one that others may claim, the aligned one."""
    fitting = [span for span in spans if occupation in span.form.occupations]
    if len(fitting) > 1:
        return max(fitting, key=lambda span: alignment[span.start])
    if not fitting:
        return None
    (span,) = fitting
    for rival, word in enumerate(source):
        known = rival != position and word != occupation and word in span.form.occupations
        if known and not any(word in other.form.occupations for other in spans if other is not span):
            return span if alignment[span.start] >= table[rival, span.start] else None
    return span
