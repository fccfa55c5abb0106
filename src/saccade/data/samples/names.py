"""English sentences whose words say whether they belong to a person, a place, a date or an amount of money.

Sentences are written from the frames below. People have a first and a last name from two lists, which join to some ten
thousand; countries come from Babel in English and now and then in another language, cities from the time zones, dates from
Babel's English patterns and a few looser forms, amounts in the currencies of the world. Some names are a person's in one
sentence and a place in the next (Jordan, Victoria, Paris), and numbers, languages and capitals occur outside names too, so
the words around must be read. Tags are B-, I- and O: PER, LOC, DATE, MONEY.
"""

import re
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache
from random import Random
from typing import Any

from babel import Locale
from babel.core import get_global
from babel.numbers import get_currency_name

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random
from saccade.data.samples.dates import list_date_formats

SENTENCE_TEMPLATES = """
{PER} moved from {LOC} to {LOC} in {DATE} .
{PER} was born in {LOC} , {LOC} , on {DAY} .
On {DAY} , {PER} bought {number} {things} for {MONEY} .
The {things} from {LOC} cost {MONEY} , said {PER} .
{PER} and {PER} met in {LOC} .
In {DATE} the price rose to {MONEY} .
{LOC} paid {MONEY} to {LOC} for {number} {things} .
Has {PER} ever been to {LOC} ?
{PER} speaks {language} and lives near {LOC} .
Nobody in {LOC} speaks {language} any more .
{TITLE} {LAST} signed the contract on {DAY} .
{TITLE} {LAST} owes {TITLE} {LAST} {MONEY} .
The museum of {LOC} lent {number} {things} to {PER} until {DAY} .
A ticket from {LOC} to {LOC} costs {MONEY} .
{FIRST} 's {things} were found in {LOC} .
{FIRST} , who learnt {language} in {LOC} , wrote to {FIRST} on {DAY} .
We may visit {LOC} if {PER} pays {MONEY} .
The storm reached {LOC} on {DAY} and left {number} villages without light .
{number} people from {LOC} signed the letter of {DAY} .
The {language} edition , edited by {PER} , appeared in {DATE} .
{PER} ( {LOC} ) won by {number} points .
Rent in {LOC} : {MONEY} a month .
From {DAY} to {DAY} the bridge stays closed .
The court in {LOC} ordered {PER} to pay {MONEY} .
{PER} will march with {FIRST} in {LOC} .
There were {number} {things} on the table .
The teacher read a {language} poem aloud .
They sold {number} {things} at the market .
{LOC} and {LOC} agreed on {DAY} to share the river .
Call {PER} before {DAY} , or lose {MONEY} .
The {LAST} family left {LOC} with {number} {things} .
""".strip().splitlines()

_split_list = str.split  # a long list reads better as one text

FIRST_NAMES = _split_list(
    "Ada Aiko Alice Amara Anna Anton Astrid Aylin Beatriz Björn Carlos Carmen Chad Chen Chloe Dana Daniel Diego Elena Emeka "
    "Emil Fatima Felix Francesca Georgia Giulia Grace Hana Hassan Hugo Ingrid Ivan Jakub Jamal James Jordan José Julia Kaito "
    "Karim Katarina Kenji Kofi Lars Laura Layla Leila Linh Luca Lucía Magda Mai Malik Marco Maria May Mateo Mehmet Mei Mia "
    "Miguel Mila Milan Mohamed Nadia Naomi Nia Nikos Noor Olga Oliver Omar Oscar Paris Paulo Petra Priya Rahul Rosa Ruth Samir "
    "Santiago Sara Sofia Sven Sydney Tariq Tomás Uma Victoria Viktor Wei Yara Yusuf Zeynep Zoe"
)
LAST_NAMES = _split_list(
    "Abebe Adeyemi Almeida Andersson Baker Barros Becker Berlin Bianchi Boateng Brown Castro Chang Cohen Costa Dahl Diallo "
    "Dimitriou Dubois Ferrari Fischer Fontaine Garcia Georgiou Ghosh Greco Gupta Haddad Hansen Hoffmann Horvat Hussein Ibrahim "
    "Ito Ivanova Jansen Johnson Kamau Kang Kaya Khan Kim Kovács Kowalska Kumar Lang Larsen Lee Lehmann Lima London Lopez Mahmoud "
    "Marino Martin Mbeki Mendes Meyer Moreau Moreno Mori Murphy Nakamura Ndiaye Nguyen Nielsen Novák Nowak O'Brien Okafor Olsen "
    "Osei Park Patel Pereira Petrov Popescu Rahman Ramos Reyes Rossi Roy Ruiz Sahin Sato Schmidt Silva Singh Smirnova Smith "
    "Suzuki Svensson Takahashi Tanaka Teixeira Torres Tran Vargas Virtanen Wagner Wang Weber Wilson Wójcik Wu Yamamoto Yilmaz "
    "Young Zhang"
)
TITLES = ["Dr", "Ms", "Mr", "Professor", "Judge", "Captain"]
THINGS = _split_list(
    "apples bicycles books boxes carpets chairs clocks coins horses lamps letters maps paintings shoes stamps tables tickets "
    "violins"
)
CURRENCIES = _split_list(
    "USD EUR GBP JPY CHF INR CNY KRW BRL MXN ZAR NGN KES EGP TRY PLN CZK HUF SEK DKK NOK RON UAH THB VND IDR"
)
CURRENCY_SIGNS = ["$", "€", "£", "¥"]
FOREIGN_LANGUAGES = ["de", "fr", "es", "it", "pl", "sv", "tr", "pt", "nl", "fi"]


@cache
def list_countries(language: str) -> list[str]:
    """Names of countries and territories that are one plain name."""
    names = Locale.parse(language).territories
    codes = [
        code for code in sorted(names) if code.isalpha() and code not in ("EU", "EZ", "UN", "QO", "XA", "XB", "ZZ")
    ]
    return [names[code] for code in codes if not re.search(r"[(&–,]| - |SAR|\d", names[code])]


@cache
def list_cities() -> list[str]:
    """Cities that give a time zone its name."""
    zones = [zone.split("/") for zone in sorted(get_global("zone_territories"))]
    return [parts[1].replace("_", " ") for parts in zones if len(parts) == 2 and parts[0] not in ("Antarctica", "Etc")]


@cache
def list_languages() -> list[str]:
    names = Locale("en").languages
    return [names[code] for code in sorted(names) if len(code) == 2 and names[code].isalpha()]


@cache
def _list_english_formats() -> list[Callable[[date], str]]:
    return [
        writing.format_date
        for language in ("en", "en_GB")
        for writing in list_date_formats(language)
        if not writing.is_ambiguous
    ]


def _draw_place(random: Random) -> str:
    kind = random.random()
    if kind < 0.45:
        return random.choice(list_cities())
    return random.choice(list_countries("en" if kind < 0.85 else random.choice(FOREIGN_LANGUAGES)))


def _draw_person(random: Random) -> str:
    first, last = random.choice(FIRST_NAMES), random.choice(LAST_NAMES)
    return f"{first[0]}. {last}" if random.random() < 0.15 else f"{first} {last}"


def _draw_day(random: Random) -> str:
    return random.choice(_list_english_formats())(date(1950, 1, 1) + timedelta(days=random.randrange(27_000)))


def _draw_period(random: Random) -> str:
    year, kind = random.randrange(1950, 2024), random.random()
    if kind < 0.5:
        return f"{random.choice(list(Locale('en').months['format']['wide'].values()))} {year}"
    return str(year) if kind < 0.75 else f"the {random.choice(['spring', 'summer', 'autumn', 'winter'])} of {year}"


def _draw_amount(random: Random) -> str:
    digits = random.randrange(1, 6)
    number = random.randrange(10 ** (digits - 1) + 1, 10**digits)
    written = f"{number:,}" if random.random() < 0.7 else f"{number % 90 + 2}.{random.randrange(1, 10)} million"
    if random.random() < 0.4:
        return random.choice(CURRENCY_SIGNS) + written
    code = random.choice(CURRENCIES)
    return (
        f"{code} {written}" if random.random() < 0.3 else f"{written} {get_currency_name(code, count=2, locale='en')}"
    )


# slot -> its tag (none for what only looks like a name) and what may stand there
SLOTS: dict[str, tuple[str, Callable[[Random], str]]] = {
    "PER": ("PER", _draw_person),
    "FIRST": ("PER", lambda random: random.choice(FIRST_NAMES)),
    "LAST": ("PER", lambda random: random.choice(LAST_NAMES)),
    "LOC": ("LOC", _draw_place),
    "DATE": ("DATE", _draw_period),
    "DAY": ("DATE", _draw_day),
    "MONEY": ("MONEY", _draw_amount),
    "TITLE": ("", lambda random: random.choice(TITLES)),
    "language": ("", lambda random: random.choice(list_languages())),
    "number": ("", lambda random: f"{random.randrange(2, 5000):,}"),
    "things": ("", lambda random: random.choice(THINGS)),
}


def split_words(text: str) -> list[str]:
    """Words, with a comma that ends one as a word of its own.

    >>> split_words("May 3, 2019"), split_words("1,250 euros")
    (['May', '3', ',', '2019'], ['1,250', 'euros'])
    """
    return re.sub(r",(?=\s|$)", " ,", text).split()


def make(count: int, seed: int) -> list[Example]:
    """Examples with `words` and `tags`, two lists of equal length."""
    random = make_random("names", seed)

    def draw() -> dict[str, Any]:
        words: list[str] = []
        tags: list[str] = []
        for word in random.choice(SENTENCE_TEMPLATES).split():
            tag, choose = SLOTS.get(word.strip("{}"), ("", None)) if word.startswith("{") else ("", None)
            new = split_words(choose(random)) if choose else [word]
            words += new
            tags += [f"B-{tag}", *[f"I-{tag}"] * (len(new) - 1)] if tag else ["O"] * len(new)
        return {"words": words, "tags": tags}

    return draw_distinct("names", draw, count, key=lambda row: tuple(row["words"]))


SAMPLE = Sample("names", "sentences tagged with people, places, dates and amounts (NER)", ("tag",), make, 6_000)
