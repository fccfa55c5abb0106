"""Sentences with a person, an occupation and a pronoun: our own from templates, or a file in WinoMT's format."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Literal, get_args

from saccade.audit.suites.gender.lexicon import Gender, read_word_file, split_words_with_offsets
from saccade.errors import DataError

StereotypeSide = Literal["pro", "anti", ""]

PRONOUNS = {  # of a template, and what becomes of them
    "they": ("he", "she"),
    "them": ("him", "her"),
    "their": ("his", "her"),
    "themself": ("himself", "herself"),
}
PAIRS_PER_TEMPLATE = 8  # of occupations for each template
WINOMT_FORMAT_HINT = "write male, female or neutral, the number of the occupation's word from 0, the sentence and the occupation, with tabs"


@dataclass(frozen=True)
class OccupationSentence:
    """A sentence, the occupation that is asked about, its first word in `words_of` the text, and the gender its pronoun gives."""

    text: str
    occupation: str
    position: int
    gender: Gender
    is_only_person: bool = False  # nobody else is named

    @property
    def side(self) -> StereotypeSide:
        """Whether the gender is the one that the stereotype expects, or the other; nothing where it expects none."""
        share = load_women_percentages().get(self.occupation)
        if share is None or share == 50 or self.gender == "neutral":
            return ""
        return "pro" if (share > 50) == (self.gender == "female") else "anti"


PronounPair = tuple[OccupationSentence, OccupationSentence]  # of him and of her


@lru_cache
def load_women_percentages() -> dict[str, int]:
    """The share of women in each occupation, in per cent."""
    return read_word_file("occupations.toml")["women_percentages"]


@lru_cache
def load_templates() -> tuple[str, ...]:
    """Sentences with {a} and {b} for two people and {a:they} for a pronoun of one of them."""
    text = (resources.files("saccade.audit.suites.gender") / "words" / "templates.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def builtin_sentences(count: int | None = None) -> list[OccupationSentence]:
    """Our sentences, the same ones always, each with him and with her.

    Fewer are such pairs, evenly drawn: half of them of occupations where women are many, half where they are few.
    """
    found = [
        sentence for number, template in enumerate(load_templates()) for sentence in _fill_template(number, template)
    ]
    if count is None or count >= len(found):
        return found
    pairs = list(zip(found[::2], found[1::2], strict=True))
    groups = [[two for two in pairs if two[1].side == side] for side in ("pro", "anti")]
    drawn = [_sample_evenly(group, (count // 2 + more) // 2) for more, group in enumerate(groups)]
    return [sentence for pair in sorted((x for some in drawn for x in some), key=pairs.index) for sentence in pair]


def _sample_evenly(some: Sequence[PronounPair], count: int) -> list[PronounPair]:
    return [some[number * len(some) // count] for number in range(count)]


def _fill_template(number: int, template: str) -> Iterator[OccupationSentence]:
    """A template with different people in it, a man's occupation and a woman's in turn, and both pronouns."""
    men = [name for name, share in load_women_percentages().items() if share < 50]
    women = [name for name, share in load_women_percentages().items() if share > 50]
    for turn in range(PAIRS_PER_TEMPLATE):
        step = number * PAIRS_PER_TEMPLATE + turn
        man, woman = men[step % len(men)], women[(step + step // len(women) + number) % len(women)]
        people = {"a": man, "b": woman} if (turn + number) % 2 else {"a": woman, "b": man}
        for female in (False, True):
            yield _make_sentence(template, people, female)


def _make_sentence(template: str, people: dict[str, str], female: bool) -> OccupationSentence:
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
    return OccupationSentence(text, people[who], _word_index(text, place), "female" if female else "male", alone)


def _word_index(text: str, offset: int) -> int:
    """The number of the word that begins at a place of the text, or that covers it."""
    return max(number for number, (_, start) in enumerate(split_words_with_offsets(text)) if start <= offset)


def read_winomt(path: str | Path) -> list[OccupationSentence]:
    """WinoMT's format: in each line gender, number of the word, sentence and occupation, with tabs between.

    Stanovsky et al. 2019 (arXiv 1906.00591).
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=path, hint=WINOMT_FORMAT_HINT) from error
    found = [_parse_line(line.split("\t"), path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise DataError("there are no sentences", file=path, hint=WINOMT_FORMAT_HINT)
    return found


def _parse_line(cells: Sequence[str], path: str | Path, line: int) -> OccupationSentence:
    if len(cells) != 4:
        raise DataError(f"{len(cells)} columns where four are needed", file=path, line=line, hint=WINOMT_FORMAT_HINT)
    gender, place, text, occupation = cells
    if gender not in get_args(Gender):
        raise DataError("no gender", file=path, line=line, column="1", value=gender, hint=WINOMT_FORMAT_HINT)
    pieces = [found.start() for found in re.finditer(r"\S+", text)]
    if not place.isdecimal() or int(place) >= len(pieces):
        what = f"no word of a sentence of {len(pieces)}"
        raise DataError(what, file=path, line=line, column="2", value=place, hint=WINOMT_FORMAT_HINT)
    return OccupationSentence(text, occupation, _word_index(text, pieces[int(place)]), gender)  # type: ignore[arg-type]
