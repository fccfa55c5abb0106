"""Numbers up to 999,999 in English, German and French words, and in figures.

The rules are written out here. English says "and" after the hundreds or not, as people do; German writes one word; French
counts as in France (soixante-dix, quatre-vingts) with hyphens only inside numbers below a hundred and an s on a cent or vingt
that ends the number. All lengths from one to six figures are equally likely until the short ones are used up. `numbers`
goes from words to figures; `spelled` goes from figures, with the language in front, to words; `counts` has rows of one to
sixteen small numbers, all lengths equally likely, to show what a model can hold of a long text.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random

_split_list = str.split  # a long list reads better as one text

ENGLISH_UNITS = _split_list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
ENGLISH_TENS = _split_list("- - twenty thirty forty fifty sixty seventy eighty ninety")
GERMAN_UNITS = _split_list(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
)
GERMAN_TENS = _split_list("- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
FRENCH_UNITS = _split_list(
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit dix-neuf"
)
FRENCH_TENS = _split_list("- - vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt")


def spell_english(number: int, join: str = " and ") -> str:
    """A number in English words.

    >>> spell_english(4217), spell_english(21), spell_english(300_005, join=" ")
    ('four thousand two hundred and seventeen', 'twenty-one', 'three hundred thousand five')
    """
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _spell_english_hundreds(number, join)
    start = f"{_spell_english_hundreds(thousands, join)} thousand"
    return start + ((join if rest < 100 else " ") + _spell_english_hundreds(rest, join) if rest else "")


def _spell_english_hundreds(number: int, join: str) -> str:
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return f"{ENGLISH_UNITS[hundreds]} hundred" + (join + _spell_english_hundreds(rest, join) if rest else "")
    tens, ones = divmod(number, 10)
    return ENGLISH_UNITS[number] if number < 20 else ENGLISH_TENS[tens] + (f"-{ENGLISH_UNITS[ones]}" if ones else "")


def spell_german(number: int) -> str:
    """A number as one German word.

    >>> spell_german(4217), spell_german(21), spell_german(1001)
    ('viertausendzweihundertsiebzehn', 'einundzwanzig', 'eintausendeins')
    """
    thousands, rest = divmod(number, 1000)
    if thousands:
        return f"{_spell_german_multiplier(thousands)}tausend" + (spell_german(rest) if rest else "")
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return f"{_spell_german_multiplier(hundreds)}hundert" + (spell_german(rest) if rest else "")
    tens, ones = divmod(number, 10)
    if number < 20:
        return GERMAN_UNITS[number]
    return (f"{_spell_german_multiplier(ones)}und" if ones else "") + GERMAN_TENS[tens]


def _spell_german_multiplier(number: int) -> str:
    """A number with something counted after it: eins loses its s."""
    return spell_german(number).removesuffix("s") if number % 100 == 1 else spell_german(number)


def spell_french(number: int) -> str:
    """A number in French words.

    >>> spell_french(4271), spell_french(80), spell_french(80_000), spell_french(391)
    ('quatre mille deux cent soixante et onze', 'quatre-vingts', 'quatre-vingt mille', 'trois cent quatre-vingt-onze')
    """
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _spell_french_hundreds(number, last=True)
    start = "mille" if thousands == 1 else f"{_spell_french_hundreds(thousands, last=False)} mille"
    return start + (f" {_spell_french_hundreds(rest, last=True)}" if rest else "")


def _spell_french_hundreds(number: int, *, last: bool) -> str:
    """Below a thousand; `last` where nothing follows, so that cents and quatre-vingts keep their s."""
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _spell_french_tens(number, last=last)
    start = "cent" if hundreds == 1 else f"{FRENCH_UNITS[hundreds]} cent"
    if rest:
        return f"{start} {_spell_french_tens(rest, last=last)}"
    return start + ("s" if hundreds > 1 and last else "")


def _spell_french_tens(number: int, *, last: bool) -> str:
    if number < 20:
        return FRENCH_UNITS[number]
    if number == 80:
        return "quatre-vingts" if last else "quatre-vingt"
    tens = number // 10
    ones = number - 10 * (tens - (tens in (7, 9)))  # soixante-dix and quatre-vingt-dix count on to nineteen
    joined = " et " if ones in (1, 11) and tens < 8 else "-"
    return FRENCH_TENS[tens] + (joined + FRENCH_UNITS[ones] if ones else "")


SPELLERS: dict[str, Callable[[int], str]] = {"en": spell_english, "de": spell_german, "fr": spell_french}


def make(count: int, seed: int) -> list[Example]:
    """Examples with words as the `source`, figures as the `target`, and the `language` (which no model is told)."""
    random = make_random("numbers", seed)

    def draw() -> dict[str, Any]:
        number, language = _draw_number(random)
        words = SPELLERS[language](number)
        if language == "en" and random.random() < 0.5:
            words = spell_english(number, join=" ")
        return {"source": words, "target": str(number), "language": language}

    return draw_distinct("numbers", draw, count)


def make_spelled(count: int, seed: int) -> list[Example]:
    """Examples with a language and figures as the `source`, such as "fr 80", and words as the `target`."""
    random = make_random("spelled", seed)

    def draw() -> dict[str, Any]:
        number, language = _draw_number(random)
        return {"source": f"{language} {number}", "target": SPELLERS[language](number), "language": language}

    return draw_distinct("spelled", draw, count)


MAX_NUMBERS_PER_ROW = 16  # numbers in a row of `counts`


def make_counts(count: int, seed: int) -> list[Example]:
    """Examples with one to sixteen English numbers below a hundred as the `source`, and their figures as the `target`."""
    random = make_random("counts", seed)
    return draw_distinct("counts", lambda: make_count_row(random, random.randint(1, MAX_NUMBERS_PER_ROW)), count)


def make_count_row(random: Random, length: int) -> dict[str, Any]:
    """One row of so many numbers.

    >>> make_count_row(Random(2), 3)
    {'source': 'seven eleven ten', 'target': '7 11 10'}
    """
    row = [random.randrange(100) for _ in range(length)]
    return {"source": " ".join(map(spell_english, row)), "target": " ".join(map(str, row))}


def _draw_number(random: Random) -> tuple[int, str]:
    figures = random.randrange(1, 7)
    return random.randrange(10 ** (figures - 1) if figures > 1 else 0, 10**figures), random.choice(list(SPELLERS))


SAMPLES = (
    Sample("numbers", "numbers in English, German and French words, to digits", ("translate",), make, 20_000),
    Sample("spelled", "digits to English, German or French number words", ("translate",), make_spelled, 20_000),
    Sample("counts", "rows of one to sixteen English numbers, to digits", ("translate",), make_counts, 20_000),
)
