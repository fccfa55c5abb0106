"""Dates as people write them in many languages, and the same dates in ISO form.

The patterns and the names of months and weekdays are CLDR's, as Babel carries them, so a newer Babel may spell some of them
otherwise. A writing is kept only if the date can be read from it without knowing the language: years have four digits;
where only figures are written, the year comes first or dots part them (then it is day, month, year everywhere), or the day
is above 12. Croatian is left out: its October, *listopada*, is Poland's November. Half the years are from 1990 to
2029, the others from 1900 to 2099. Now and then somebody writes all in small letters, or all in capitals.
"""

import calendar
import itertools
import re
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from typing import Any, NamedTuple

from babel import Locale

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random

LANGUAGES = (
    *(
        "en",
        "en_GB",
        "de",
        "fr",
        "es",
        "it",
        "pt",
        "nl",
        "sv",
        "da",
        "nb",
        "fi",
        "pl",
        "cs",
        "hu",
        "ro",
        "tr",
        "id",
        "ca",
    ),
    *("et", "sl", "ru", "uk", "el", "ja", "zh", "ko"),
)
STYLES = ("full", "long", "medium", "short")
SKELETONS = ("yMMMd", "yMMMEd", "yMd", "yMEd")
SINGLE_CASE_LANGUAGES = ("tr", "el")  # capitals follow rules of their own: i to İ, accents dropped
PATTERN_FIELD = re.compile(r"'([^']*)'|(([EcyMLd])\3*)|([^EcyMLd']+)")
YEARS = [str(year) for year in range(2101)]
PLAIN_NUMBERS = [str(number) for number in range(32)]
PADDED_NUMBERS = [f"{number:02}" for number in range(32)]

PatternPiece = tuple[int, list[str]]  # which of (year, month, day, weekday, 0) to look up, and in what list


class DateFormat(NamedTuple):
    """One way to write a date in one language."""

    language: str
    pieces: tuple[PatternPiece, ...]
    is_ambiguous: bool  # only the days above 12 can be told from months

    def format_date(self, day: date) -> str:
        values = (day.year, day.month, day.day, day.weekday(), 0)
        return "".join([table[values[field]] for field, table in self.pieces])

    def find_field_spans(self, day: date) -> tuple[tuple[int, int], ...]:
        """Where the year, the month and the day stand in what `write` writes, each as a start and an end.

        >>> date_format, day = list_date_formats("de")[0], date(2003, 2, 14)
        >>> date_format.format_date(day), date_format.find_field_spans(day)
        ('Freitag, 14. Februar 2003', ((21, 25), (13, 20), (9, 11)))
        """
        values = (day.year, day.month, day.day, day.weekday(), 0)
        found, start = {}, 0
        for field, table in self.pieces:
            end = start + len(table[values[field]])
            found[field], start = (start, end), end
        return found[0], found[1], found[2]


@cache
def list_date_formats(language: str) -> tuple[DateFormat, ...]:
    """All ways in which a date is written in a language.

    >>> [writing.format_date(date(2003, 2, 14)) for writing in list_date_formats("de")][:3]
    ['Freitag, 14. Februar 2003', '14. Februar 2003', '14.02.2003']
    """
    locale = Locale.parse(language)
    patterns = [locale.date_formats[style].pattern for style in STYLES]
    patterns += [locale.datetime_skeletons[name].pattern for name in SKELETONS if name in locale.datetime_skeletons]
    whole = dict.fromkeys(re.sub(r"y+", "y", re.sub(r"[\u00a0\u202f]", " ", pattern)) for pattern in patterns)
    return tuple(DateFormat(language, _compile_pattern(locale, pattern), _is_ambiguous(pattern)) for pattern in whole)


def make_case_variants(language: str, text: str) -> tuple[str, ...]:
    """A date as it should be written, and as hurried people write it."""
    return (text,) if language in SINGLE_CASE_LANGUAGES else (text, text.lower(), text.upper())


def iter_written_forms(day: date) -> Iterator[tuple[str, str]]:
    """Every (language, text) that the sample may use for a day."""
    for language in LANGUAGES:
        for writing in list_date_formats(language):
            if day.day > 12 or not writing.is_ambiguous:
                yield from ((language, text) for text in make_case_variants(language, writing.format_date(day)))


def parse_date(text: str) -> date | None:
    """The date that a text of this sample stands for; None for a text that the sample cannot have.

    >>> parse_date("FEBRUARY 29, 2024"), parse_date("29 février 2023"), parse_date("tomorrow"), parse_date("3/5/2019")
    (datetime.date(2024, 2, 29), None, None, None)
    """
    figures = {int(figure) for figure in re.findall(r"[0-9]+", text)}
    years, days = sorted(figures & set(range(1900, 2100))), sorted(figures & set(range(1, 32)))
    for year, month, day in itertools.product(years, range(1, 13), days):
        if day <= calendar.monthrange(year, month)[1]:
            candidate = date(year, month, day)
            if any(text == written for _, written in iter_written_forms(candidate)):
                return candidate
    return None


def make(count: int, seed: int) -> list[Example]:
    """Examples with a `source`, its ISO date as the `target`, and the `language` (which no model is told)."""
    random = make_random("dates", seed)

    def draw() -> dict[str, Any]:
        day = _make_day(
            random.randrange(1990, 2030) if random.random() < 0.5 else random.randrange(1900, 2100), random.random()
        )
        language = random.choice(LANGUAGES)
        known = list_date_formats(language)
        if day.day <= 12:
            known = [writing for writing in known if not writing.is_ambiguous]
        forms = make_case_variants(language, random.choice(known).format_date(day))
        text = forms[0] if random.random() < 0.8 else random.choice(forms)
        return {"source": text, "target": day.isoformat(), "language": language}

    return draw_distinct("dates", draw, count)


def _make_day(year: int, fraction: float) -> date:
    """The day at which a share of the year has passed."""
    first = date(year, 1, 1)
    return first + timedelta(days=int(fraction * (date(year + 1, 1, 1) - first).days))


def _is_ambiguous(pattern: str) -> bool:
    """Whether a pattern leaves it open which figure is the day: 3/5/2019."""
    fields = re.sub(r"'[^']*'", "", pattern)
    figures = not re.search(r"M{3}|L{3}", fields)
    return figures and not re.search(r"y.*M.*d", fields) and not re.search(r"d\. ?M+\. ?y", fields)


def _compile_pattern(locale: Locale, pattern: str) -> tuple[PatternPiece, ...]:
    """A CLDR pattern as lists to look up in, which is far quicker than Babel's formatter, made for one date at a time."""
    pieces = []
    for quoted, field, _, plain in PATTERN_FIELD.findall(pattern):
        pieces.append(_compile_field(locale, field) if field else (4, [quoted or plain]))
    return tuple(pieces)


def _compile_field(locale: Locale, field: str) -> PatternPiece:
    kind, length = field[0], len(field)
    context = "stand-alone" if kind in "cL" else "format"
    if kind == "y":
        return 0, YEARS
    if kind == "d":
        return 2, PLAIN_NUMBERS if length == 1 else PADDED_NUMBERS
    if kind in "Ec":
        names = locale.days[context]["wide" if length == 4 else "abbreviated"]
        return 3, [names[weekday] for weekday in range(7)]
    if length < 3:
        return 1, PLAIN_NUMBERS if length == 1 else PADDED_NUMBERS
    names = locale.months[context]["wide" if length == 4 else "abbreviated"]
    return 1, ["", *(names[month] for month in range(1, 13))]


SAMPLE = Sample(
    "dates", f"dates as written in {len(LANGUAGES) - 1} languages, to ISO dates", ("translate",), make, 20_000
)
