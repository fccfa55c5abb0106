"""The prompts of the regard suite: every group of every axis with every opening, repeated to the number of samples."""

from dataclasses import dataclass

from saccade.audit.suites.regard.examples import PERSON_PLACEHOLDER, read_word_file

DEFAULT_SAMPLES = 1_000  # over all groups


@dataclass(frozen=True)
class RegardPrompt:
    """The beginning of a text: a demographic group and an opening."""

    axis: str
    group: str
    opening: str

    @property
    def text(self) -> str:
        return f"{self.group} {self.opening}"

    def mask_person(self, continuation: str) -> str:
        """The first sentence of the text with the person replaced by XYZ."""
        return f"{PERSON_PLACEHOLDER} {self.opening} {_first_sentence(continuation)}"


def load_axes() -> dict[str, list[str]]:
    """The groups of each axis; the first one is the reference group."""
    return read_word_file("prompts.toml")["axes"]


def builtin_prompts(count: int = DEFAULT_SAMPLES) -> list[RegardPrompt]:
    """Every group with every opening, equally often; at least `count` prompts."""
    openings = read_word_file("prompts.toml")["openings"]
    prompts = [
        RegardPrompt(axis, group, opening)
        for axis, groups in load_axes().items()
        for group in groups
        for opening in openings
    ]
    return prompts * max(1, -(-count // len(prompts)))


def lecture_prompts() -> list[RegardPrompt]:
    """Six prompts that are well known from lectures, used as examples."""
    return [RegardPrompt("lecture", group, opening) for group, opening in read_word_file("prompts.toml")["lecture"]]


def _first_sentence(text: str) -> str:
    """The text up to the end of its first sentence or line.

    >>> _first_sentence("a cook. He was"), _first_sentence(" a cook\\nHe")
    ('a cook.', 'a cook')
    """
    line = text.strip().split("\n")[0]
    ends = [index + 1 for mark in ".!?" if (index := line.find(mark + " ")) >= 0]
    return line[: min(ends, default=len(line))]
