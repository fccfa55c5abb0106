"""Locate the person of a sentence in its translation, by the lexicon or by word alignment, and read the gender of the noun."""

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

MIN_ALIGNMENT_PROBABILITY = 0.15  # threshold for nouns that the lexicon does not know

NounSource = Literal["lexicon", "alignment", "not_found"]


@dataclass(frozen=True)
class GenderReading:
    """How a translation names the person: the noun, its gender, and how the noun was found."""

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
    """The gender of the person in each translation.

    `links` are word alignments in Pharaoh format, "0-0 1-2", between words separated by spaces, for example by the attention of
    the model; without them the sentences are aligned by IBM model 1.
    """
    if len(sentences) != len(translations):
        raise DataError(
            f"{len(sentences):,} sentences and {len(translations):,} translations",
            hint="give one translation per sentence",
        )
    sources = [[word for word, _ in split_words_with_offsets(sentence.text)] for sentence in sentences]
    targets = [[word for word, _ in split_words_with_offsets(text)] for text in translations]
    if links is None:
        tables = align(list(zip(sources, targets, strict=True)), lexicon_pairs(language))
    else:
        aligned = zip(sentences, translations, links, strict=True)
        tables = [pharaoh_to_table(line, sentence.text, text) for sentence, text, line in aligned]
    rows = zip(sentences, translations, sources, targets, tables, strict=True)
    return [_read_gender(language, *row) for row in rows]


def lexicon_pairs(language: GenderLexicon) -> list[tuple[list[str], list[str]]]:
    """The lexicon as word pairs, to train the alignment on."""
    forms = language.forms.items()
    return [([name], [words[0]]) for words, form in forms for name in form.occupations if " " not in name]


def pharaoh_to_table(line: str, source: str, target: str) -> np.ndarray:
    """Links between words separated by spaces, as a table over the words of `split_words_with_offsets`, (S, T)."""
    source_tokens, target_tokens = (_token_numbers(text) for text in (source, target))
    table = np.zeros((len(source_tokens), len(target_tokens)))
    for i, j in parse_pharaoh(line):
        table[np.ix_([token == i for token in source_tokens], [token == j for token in target_tokens])] = 1.0
    return table


def _token_numbers(text: str) -> list[int]:
    """For each word of `split_words_with_offsets`, the index of the space-separated token that contains it."""
    starts = np.array([match.start() for match in re.finditer(r"\S+", text)])
    return [int(np.searchsorted(starts, start, side="right")) - 1 for _, start in split_words_with_offsets(text)]


def _read_gender(
    language: GenderLexicon,
    sentence: OccupationSentence,
    text: str,
    source: list[str],
    target: list[str],
    table: np.ndarray,
) -> GenderReading:
    end = sentence.position + len(sentence.occupation.split())
    alignment = table[sentence.position : end].max(0) if table.size else np.zeros(len(target))
    spans = list(language.find_people(target))
    match = _find_span(spans, sentence.occupation, source, sentence.position, alignment, table)
    candidates = [language.can_be_noun(word) and has_article(language, target, i) for i, word in enumerate(target)]
    is_candidate = np.array(candidates, bool)
    for span in spans:  # exclude words that name another person
        if sentence.occupation not in span.form.occupations:
            is_candidate[span.start : span.stop] = False
    best = int((alignment * is_candidate).argmax()) if is_candidate.any() else -1
    if match is not None:
        gender = phrase_gender(language, target, match.start, match.form.kind)
        noun = " ".join(target[match.start : match.stop])
        agrees = None if not alignment.any() else match.start <= int(alignment.argmax()) < match.stop
        return GenderReading(sentence, text, noun, gender, "lexicon", agrees)
    if best >= 0 and alignment[best] >= MIN_ALIGNMENT_PROBABILITY:
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
) -> PersonSpan | None:
    """The span of the occupation by the lexicon; if several spans or several people match, the alignment decides."""
    matches = [span for span in spans if occupation in span.form.occupations]
    if len(matches) > 1:
        return max(matches, key=lambda span: alignment[span.start])
    if not matches:
        return None
    (span,) = matches
    for other_position, word in enumerate(source):
        is_rival = other_position != position and word != occupation and word in span.form.occupations
        if is_rival and not any(word in other.form.occupations for other in spans if other is not span):
            return span if alignment[span.start] >= table[other_position, span.start] else None
    return span
