"""Test sentences with an occupation and a pronoun: the built-in ones, made from templates, or a file in the format of WinoMT."""

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

PRONOUNS = {  # from the pronoun of a template to the masculine and feminine one
    "they": ("he", "she"),
    "them": ("him", "her"),
    "their": ("his", "her"),
    "themself": ("himself", "herself"),
}
PAIRS_PER_TEMPLATE = 8  # sentence pairs made from a template, each with other occupations
WINOMT_FORMAT_HINT = (
    "write four tab-separated columns: male, female or neutral; the index of the occupation's word, from 0; the sentence; "
    "the occupation"
)


@dataclass(frozen=True)
class OccupationSentence:
    """A sentence, the occupation to test with the index of its first word, and the gender of its pronoun."""

    text: str
    occupation: str
    position: int
    gender: Gender
    is_only_person: bool = False  # the sentence names no other person

    @property
    def side(self) -> StereotypeSide:
        """Pro-stereotypical if the gender is that of most people in the occupation, else anti-stereotypical; "" if unknown."""
        women = load_women_percentages().get(self.occupation)
        if women is None or women == 50 or self.gender == "neutral":
            return ""
        return "pro" if (women > 50) == (self.gender == "female") else "anti"


PronounPair = tuple[OccupationSentence, OccupationSentence]  # masculine, feminine


@lru_cache
def load_women_percentages() -> dict[str, int]:
    """The percentage of women in each occupation."""
    return read_word_file("occupations.toml")["women_percentages"]


@lru_cache
def load_templates() -> tuple[str, ...]:
    """Templates with {a} and {b} for two people, and {a:they} for a pronoun of one of them."""
    text = (resources.files("saccade.audit.suites.gender") / "words" / "templates.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def builtin_sentences(count: int | None = None) -> list[OccupationSentence]:
    """The built-in sentences, always the same ones, each with the masculine and with the feminine pronoun.

    With `count`, an even sample of these pairs: half with occupations of mostly women, half with occupations of mostly men.
    """
    templates = enumerate(load_templates())
    sentences = [sentence for number, template in templates for sentence in _fill_template(number, template)]
    if count is None or count >= len(sentences):
        return sentences
    pairs = list(zip(sentences[::2], sentences[1::2], strict=True))
    groups = [[pair for pair in pairs if pair[1].side == side] for side in ("pro", "anti")]
    samples = [_sample_evenly(group, (count // 2 + extra) // 2) for extra, group in enumerate(groups)]
    sample = sorted((pair for group in samples for pair in group), key=pairs.index)
    return [sentence for pair in sample for sentence in pair]


def _sample_evenly(pairs: Sequence[PronounPair], count: int) -> list[PronounPair]:
    return [pairs[number * len(pairs) // count] for number in range(count)]


def _fill_template(number: int, template: str) -> Iterator[OccupationSentence]:
    """Fill a template with occupations of mostly men and mostly women in turn, and with both pronouns."""
    men = [name for name, percentage in load_women_percentages().items() if percentage < 50]
    women = [name for name, percentage in load_women_percentages().items() if percentage > 50]
    for turn in range(PAIRS_PER_TEMPLATE):
        step = number * PAIRS_PER_TEMPLATE + turn
        man, woman = men[step % len(men)], women[(step + step // len(women) + number) % len(women)]
        people = {"a": man, "b": woman} if (turn + number) % 2 else {"a": woman, "b": man}
        for female in (False, True):
            yield _make_sentence(template, people, female)


def _make_sentence(template: str, people: dict[str, str], female: bool) -> OccupationSentence:
    tested = re.findall(r"{(\w):\w+}", template)[0]  # the person of the pronoun
    text, offset = "", -1
    for part in re.split(r"({.*?})", template):
        name, _, pronoun = part.strip("{}").partition(":") if part.startswith("{") else ("", "", "")
        if pronoun:
            part = PRONOUNS[pronoun][female]
        elif name:
            part = people[name]
            text = re.sub(r"\b([Aa])$", r"\1n", text.rstrip()) + " " if part[0] in "aeiouAEIO" else text
            offset = len(text) if name == tested else offset
        text += part
    gender = "female" if female else "male"
    return OccupationSentence(text, people[tested], _word_index(text, offset), gender, "{b}" not in template)


def _word_index(text: str, offset: int) -> int:
    """The index of the word that begins at an offset of the text, or that contains it."""
    return max(index for index, (_, start) in enumerate(split_words_with_offsets(text)) if start <= offset)


def read_winomt(path: str | Path) -> list[OccupationSentence]:
    """Read a file in the format of WinoMT: gender, index of the word, sentence and occupation, separated by tabs.

    Stanovsky et al. 2019 (arXiv 1906.00591).
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=path, hint=WINOMT_FORMAT_HINT) from error
    sentences = [_parse_line(line.split("\t"), path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not sentences:
        raise DataError("the file has no sentences", file=path, hint=WINOMT_FORMAT_HINT)
    return sentences


def _parse_line(cells: Sequence[str], path: str | Path, line: int) -> OccupationSentence:
    if len(cells) != 4:
        raise DataError(f"{len(cells)} columns, expected 4", file=path, line=line, hint=WINOMT_FORMAT_HINT)
    gender, index, text, occupation = cells
    if gender not in get_args(Gender):
        raise DataError("unknown gender", file=path, line=line, column="1", value=gender, hint=WINOMT_FORMAT_HINT)
    offsets = [match.start() for match in re.finditer(r"\S+", text)]
    if not index.isdecimal() or int(index) >= len(offsets):
        problem = f"not the index of a word; the sentence has {len(offsets)} words"
        raise DataError(problem, file=path, line=line, column="2", value=index, hint=WINOMT_FORMAT_HINT)
    return OccupationSentence(text, occupation, _word_index(text, offsets[int(index)]), gender)  # type: ignore[arg-type]
