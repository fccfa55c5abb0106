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

from saccade.data.item import Example
from saccade.data.samples.seeded import Sample, distinct, source

_listed = str.split  # a long list reads better as one text

ENGLISH = _listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
ENGLISH_TENS = _listed("- - twenty thirty forty fifty sixty seventy eighty ninety")
GERMAN = _listed(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
)
GERMAN_TENS = _listed("- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
FRENCH = _listed(
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit dix-neuf"
)
FRENCH_TENS = _listed("- - vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt")


def english(number: int, join: str = " and ") -> str:
    """A number in English words.

    >>> english(4217), english(21), english(300_005, join=" ")
    ('four thousand two hundred and seventeen', 'twenty-one', 'three hundred thousand five')
    """
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _english_hundreds(number, join)
    start = f"{_english_hundreds(thousands, join)} thousand"
    return start + ((join if rest < 100 else " ") + _english_hundreds(rest, join) if rest else "")


def _english_hundreds(number: int, join: str) -> str:
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return f"{ENGLISH[hundreds]} hundred" + (join + _english_hundreds(rest, join) if rest else "")
    tens, ones = divmod(number, 10)
    return ENGLISH[number] if number < 20 else ENGLISH_TENS[tens] + (f"-{ENGLISH[ones]}" if ones else "")


def german(number: int) -> str:
    """A number as one German word.

    >>> german(4217), german(21), german(1001)
    ('viertausendzweihundertsiebzehn', 'einundzwanzig', 'eintausendeins')
    """
    thousands, rest = divmod(number, 1000)
    if thousands:
        return f"{_german_before(thousands)}tausend" + (german(rest) if rest else "")
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return f"{_german_before(hundreds)}hundert" + (german(rest) if rest else "")
    tens, ones = divmod(number, 10)
    if number < 20:
        return GERMAN[number]
    return (f"{_german_before(ones)}und" if ones else "") + GERMAN_TENS[tens]


def _german_before(number: int) -> str:
    """A number with something counted after it: eins loses its s."""
    return german(number).removesuffix("s") if number % 100 == 1 else german(number)


def french(number: int) -> str:
    """A number in French words.

    >>> french(4271), french(80), french(80_000), french(391)
    ('quatre mille deux cent soixante et onze', 'quatre-vingts', 'quatre-vingt mille', 'trois cent quatre-vingt-onze')
    """
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _french_hundreds(number, last=True)
    start = "mille" if thousands == 1 else f"{_french_hundreds(thousands, last=False)} mille"
    return start + (f" {_french_hundreds(rest, last=True)}" if rest else "")


def _french_hundreds(number: int, *, last: bool) -> str:
    """Below a thousand; `last` where nothing follows, so that cents and quatre-vingts keep their s."""
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _french_tens(number, last=last)
    start = "cent" if hundreds == 1 else f"{FRENCH[hundreds]} cent"
    if rest:
        return f"{start} {_french_tens(rest, last=last)}"
    return start + ("s" if hundreds > 1 and last else "")


def _french_tens(number: int, *, last: bool) -> str:
    if number < 20:
        return FRENCH[number]
    if number == 80:
        return "quatre-vingts" if last else "quatre-vingt"
    tens = number // 10
    ones = number - 10 * (tens - (tens in (7, 9)))  # soixante-dix and quatre-vingt-dix count on to nineteen
    joined = " et " if ones in (1, 11) and tens < 8 else "-"
    return FRENCH_TENS[tens] + (joined + FRENCH[ones] if ones else "")


SPEAKERS: dict[str, Callable[[int], str]] = {"en": english, "de": german, "fr": french}


def make(count: int, seed: int) -> list[Example]:
    """Examples with words as the `source`, figures as the `target`, and the `language` (which no model is told)."""
    random = source("numbers", seed)

    def draw() -> dict[str, Any]:
        number, language = _draw(random)
        words = SPEAKERS[language](number)
        if language == "en" and random.random() < 0.5:
            words = english(number, join=" ")
        return {"source": words, "target": str(number), "language": language}

    return distinct("numbers", draw, count)


def make_spelled(count: int, seed: int) -> list[Example]:
    """Examples with a language and figures as the `source`, such as "fr 80", and words as the `target`."""
    random = source("spelled", seed)

    def draw() -> dict[str, Any]:
        number, language = _draw(random)
        return {"source": f"{language} {number}", "target": SPEAKERS[language](number), "language": language}

    return distinct("spelled", draw, count)


LONGEST = 16  # numbers in a row of `counts`


def make_counts(count: int, seed: int) -> list[Example]:
    """Examples with one to sixteen English numbers below a hundred as the `source`, and their figures as the `target`."""
    random = source("counts", seed)
    return distinct("counts", lambda: counted(random, random.randint(1, LONGEST)), count)


def counted(random: Random, length: int) -> dict[str, Any]:
    """One row of so many numbers.

    >>> counted(Random(2), 3)
    {'source': 'seven eleven ten', 'target': '7 11 10'}
    """
    row = [random.randrange(100) for _ in range(length)]
    return {"source": " ".join(map(english, row)), "target": " ".join(map(str, row))}


def _draw(random: Random) -> tuple[int, str]:
    figures = random.randrange(1, 7)
    return random.randrange(10 ** (figures - 1) if figures > 1 else 0, 10**figures), random.choice(list(SPEAKERS))


SAMPLES = (
    Sample("numbers", "numbers in English, German and French words, to figures", ("translate",), make, 20_000),
    Sample("spelled", "figures to English, German or French words", ("translate",), make_spelled, 20_000),
    Sample("counts", "rows of one to sixteen English numbers, to figures", ("translate",), make_counts, 20_000),
)
