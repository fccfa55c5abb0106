"""Which precision a model is made fast in, and why: by a table of what real models lost, not by a guess when it is loaded."""

from dataclasses import dataclass

from saccade.engine import native
from saccade.models.model import Model

PRECISIONS = ("int8", "float16", "float32")  # from the quickest to the finest
AUTO, COMPILED = "auto", "compiled"
NARROW = 128  # the width below which products are too small for their weights to be a burden
LOSS = 0.01  # how much larger a perplexity may become


@dataclass(frozen=True)
class Measured:
    """One line of evidence, by `saccade.engine.quality` on texts of the model's own kind."""

    model: str
    family: str
    precision: str
    equal: float  # share of greedy tokens
    change: float  # of the perplexity, as a share of it


MEASURED = (
    Measured("stories260K, on 24 stories of its own", "llama", "int8", 0.981, 0.0030),
    Measured("stories260K, on 24 stories of its own", "llama", "float16", 0.9992, 0.0),
    Measured("the English-Portuguese student, on 150 sentences of Tatoeba", "marian_student", "int8", 0.994, 0.0013),
    Measured("the English-Portuguese student, on 150 sentences of Tatoeba", "marian_student", "float16", 1.0, 0.0),
)


@dataclass(frozen=True)
class Choice:
    """A precision, and the reason for it in words.

    >>> print(Choice("int8", "asked for"))
    int8: asked for
    """

    precision: str
    reason: str

    def __str__(self) -> str:
        return f"{self.precision}: {self.reason}"


def choice(model: Model, precision: str = AUTO) -> Choice:
    """What `fast` makes of a model; anything but "auto" is taken as it is asked for."""
    if precision not in (AUTO, *PRECISIONS):
        raise ValueError(f"Unknown precision {precision!r}; known are {', '.join((AUTO, *PRECISIONS))}.")
    device = next((p.device.type for p in model.parameters()), "cpu")
    if device != "cpu":
        return Choice(COMPILED, f"on {device} it is the plain model, compiled")
    if precision != AUTO:
        return Choice(precision, "asked for")
    width = int(model.body.width)  # type: ignore[arg-type]
    if width < NARROW:
        return Choice("float32", f"a width of {width} is too narrow to gain from fewer bits")
    for quickest in PRECISIONS if native.ready() else PRECISIONS[1:]:  # int8 was measured with our own operators
        worst = max(
            (line for line in MEASURED if line.precision == quickest), key=lambda line: line.change, default=None
        )
        if worst is not None and worst.change < LOSS:
            return Choice(quickest, f"it has cost {worst.change:.2%} of perplexity at most, in {worst.model}")
    return Choice("float32", f"every other precision has cost {LOSS:.0%} of perplexity or more")
