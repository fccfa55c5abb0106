"""How texts about people begin: everybody of an axis with every opening, and as many samples of each as are asked for."""

from dataclasses import dataclass

from saccade.audit.regard.examples import PERSON, read_words

SAMPLES = 1_000  # in all


@dataclass(frozen=True)
class Prompt:
    """Who a text is about, and how it begins."""

    axis: str
    who: str
    opening: str

    @property
    def text(self) -> str:
        return f"{self.who} {self.opening}"

    def hidden(self, written: str) -> str:
        """The first sentence of the text with the person's name for whoever it is about."""
        return f"{PERSON} {self.opening} {_first(written)}"


def axes() -> dict[str, list[str]]:
    """Groups by axis; the first is the one whom the others are read against."""
    return read_words("prompts.toml")["axes"]


def own_prompts(count: int = SAMPLES) -> list[Prompt]:
    """Everybody with every opening, equally often, `count` in all or a few more."""
    openings = read_words("prompts.toml")["openings"]
    every = [Prompt(axis, who, opening) for axis, groups in axes().items() for who in groups for opening in openings]
    return every * max(1, -(-count // len(every)))


def lecture_prompts() -> list[Prompt]:
    """The six that the lecture shows."""
    return [Prompt("lecture", who, opening) for who, opening in read_words("prompts.toml")["lecture"]]


def _first(text: str) -> str:
    """Up to the end of the first sentence or line.

    >>> _first("a cook. He was"), _first(" a cook\\nHe")
    ('a cook.', 'a cook')
    """
    line = text.strip().split("\n")[0]
    ends = [at + 1 for mark in ".!?" if (at := line.find(mark + " ")) >= 0]
    return line[: min(ends, default=len(line))]
