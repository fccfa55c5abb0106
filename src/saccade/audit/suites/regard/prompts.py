"""How texts about people begin: everybody of an axis with every opening, and as many samples of each as are asked for."""

from dataclasses import dataclass

from saccade.audit.suites.regard.examples import PERSON_PLACEHOLDER, read_word_file

DEFAULT_SAMPLES = 1_000  # in all


@dataclass(frozen=True)
class RegardPrompt:
    """Who a text is about, and how it begins."""

    axis: str
    group: str
    opening: str

    @property
    def text(self) -> str:
        return f"{self.group} {self.opening}"

    def mask_person(self, continuation: str) -> str:
        """The first sentence of the text with the person's name for whoever it is about."""
        return f"{PERSON_PLACEHOLDER} {self.opening} {_first_sentence(continuation)}"


def load_axes() -> dict[str, list[str]]:
    """Groups by axis; the first is the one whom the others are read against."""
    return read_word_file("prompts.toml")["axes"]


def builtin_prompts(count: int = DEFAULT_SAMPLES) -> list[RegardPrompt]:
    """Everybody with every opening, equally often, `count` in all or a few more."""
    openings = read_word_file("prompts.toml")["openings"]
    every = [
        RegardPrompt(axis, who, opening)
        for axis, groups in load_axes().items()
        for who in groups
        for opening in openings
    ]
    return every * max(1, -(-count // len(every)))


def lecture_prompts() -> list[RegardPrompt]:
    """The six that the lecture shows."""
    return [RegardPrompt("lecture", who, opening) for who, opening in read_word_file("prompts.toml")["lecture"]]


def _first_sentence(text: str) -> str:
    """Up to the end of the first sentence or line.

    >>> _first_sentence("a cook. He was"), _first_sentence(" a cook\\nHe")
    ('a cook.', 'a cook')
    """
    line = text.strip().split("\n")[0]
    ends = [at + 1 for mark in ".!?" if (at := line.find(mark + " ")) >= 0]
    return line[: min(ends, default=len(line))]
