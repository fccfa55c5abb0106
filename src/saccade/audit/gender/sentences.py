"""Sentences with a person, an occupation and a pronoun: our own from templates, or a file in WinoMT's format."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Literal, get_args

from saccade.audit.gender.lexicon import Gender, read_words, words_of
from saccade.errors import DataError

Side = Literal["pro", "anti", ""]

PRONOUNS = {  # of a template, and what becomes of them
    "they": ("he", "she"),
    "them": ("him", "her"),
    "their": ("his", "her"),
    "themself": ("himself", "herself"),
}
PAIRS = 8  # of occupations for each template
CURE = "write male, female or neutral, the number of the occupation's word from 0, the sentence and the occupation, with tabs"


@dataclass(frozen=True)
class Sentence:
    """A sentence, the occupation that is asked about, its first word in `words_of` the text, and the gender its pronoun gives."""

    text: str
    occupation: str
    place: int
    gender: Gender
    alone: bool = False  # nobody else is named

    @property
    def side(self) -> Side:
        """Whether the gender is the one that the stereotype expects, or the other; nothing where it expects none."""
        share = shares().get(self.occupation)
        if share is None or share == 50 or self.gender == "neutral":
            return ""
        return "pro" if (share > 50) == (self.gender == "female") else "anti"


Pair = tuple[Sentence, Sentence]  # of him and of her


@lru_cache
def shares() -> dict[str, int]:
    """The share of women in each occupation, in per cent."""
    return read_words("occupations.toml")["shares"]


@lru_cache
def templates() -> tuple[str, ...]:
    """Sentences with {a} and {b} for two people and {a:they} for a pronoun of one of them."""
    text = (resources.files("saccade.audit.gender") / "words" / "templates.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def own_sentences(count: int | None = None) -> list[Sentence]:
    """Our sentences, the same ones always, each with him and with her.

    Fewer are such pairs, evenly drawn: half of them of occupations where women are many, half where they are few.
    """
    found = [sentence for number, template in enumerate(templates()) for sentence in _filled(number, template)]
    if count is None or count >= len(found):
        return found
    pairs = list(zip(found[::2], found[1::2], strict=True))
    groups = [[two for two in pairs if two[1].side == side] for side in ("pro", "anti")]
    drawn = [_evenly(group, (count // 2 + more) // 2) for more, group in enumerate(groups)]
    return [sentence for pair in sorted((x for some in drawn for x in some), key=pairs.index) for sentence in pair]


def _evenly(some: Sequence[Pair], count: int) -> list[Pair]:
    return [some[number * len(some) // count] for number in range(count)]


def _filled(number: int, template: str) -> Iterator[Sentence]:
    """A template with different people in it, a man's occupation and a woman's in turn, and both pronouns."""
    men = [name for name, share in shares().items() if share < 50]
    women = [name for name, share in shares().items() if share > 50]
    for turn in range(PAIRS):
        step = number * PAIRS + turn
        man, woman = men[step % len(men)], women[(step + step // len(women) + number) % len(women)]
        people = {"a": man, "b": woman} if (turn + number) % 2 else {"a": woman, "b": man}
        for female in (False, True):
            yield _sentence(template, people, female)


def _sentence(template: str, people: dict[str, str], female: bool) -> Sentence:
    asked = re.findall(r"{(\w):\w+}", template)
    who = asked[0]
    text, place = "", -1
    for part in re.split(r"({.*?})", template):
        name, _, pronoun = part.strip("{}").partition(":") if part.startswith("{") else ("", "", "")
        if pronoun:
            part = PRONOUNS[pronoun][female]
        elif name:
            if name == who:
                place = len(text)
            part = people[name]
            text = re.sub(r"\b([Aa])$", r"\1n", text.rstrip()) + " " if part[0] in "aeiouAEIO" else text
            place = len(text) if name == who else place
        text += part
    alone = "{b}" not in template
    return Sentence(text, people[who], _word_at(text, place), "female" if female else "male", alone)


def _word_at(text: str, place: int) -> int:
    """The number of the word that begins at a place of the text, or that covers it."""
    return max(number for number, (_, start) in enumerate(words_of(text)) if start <= place)


def read_winomt(path: str | Path) -> list[Sentence]:
    """WinoMT's format: in each line gender, number of the word, sentence and occupation, with tabs between.

    Stanovsky et al. 2019 (arXiv 1906.00591).
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=path, cure=CURE) from error
    found = [_line(line.split("\t"), path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise DataError("there are no sentences", file=path, cure=CURE)
    return found


def _line(cells: Sequence[str], path: str | Path, line: int) -> Sentence:
    if len(cells) != 4:
        raise DataError(f"{len(cells)} columns where four are needed", file=path, line=line, cure=CURE)
    gender, place, text, occupation = cells
    if gender not in get_args(Gender):
        raise DataError("no gender", file=path, line=line, column="1", value=gender, cure=CURE)
    pieces = [found.start() for found in re.finditer(r"\S+", text)]
    if not place.isdecimal() or int(place) >= len(pieces):
        what = f"no word of a sentence of {len(pieces)}"
        raise DataError(what, file=path, line=line, column="2", value=place, cure=CURE)
    return Sentence(text, occupation, _word_at(text, pieces[int(place)]), gender)  # type: ignore[arg-type]
