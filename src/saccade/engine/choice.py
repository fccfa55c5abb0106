"""Which precision a model is made fast in, and why: by a table of what real models lost, not by a guess when it is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from saccade.engine import native
from saccade.errors import UsageError
from saccade.models.model import Model

PRECISIONS = ("int8", "float16", "float32")  # from the quickest to the finest
AUTO, COMPILED = "auto", "compiled"
NARROW = 128  # the width below which products are too small for their weights to be a burden
LOSS = 0.01  # how much larger a perplexity may become
UNEQUAL = 0.001  # of a reader's answers, the share that may come out otherwise


@dataclass(frozen=True)
class Measured:
    """One line of evidence, by `saccade.engine.quality` on texts of the model's own kind."""

    model: str
    family: str
    precision: str
    equal: float  # share of greedy tokens
    change: float  # of the perplexity, as a share of it


MEASURED = (
    Measured("stories260K, on 24 stories of its own", "llama", "int8", 0.974, 0.0039),
    Measured("stories260K, on 24 stories of its own", "llama", "float16", 0.9992, 0.0),
    Measured("the English-Portuguese student, on 150 sentences of Tatoeba", "marian_student", "int8", 0.993, 0.0021),
    Measured("the English-Portuguese student, on 150 sentences of Tatoeba", "marian_student", "float16", 1.0, 0.0),
)


@dataclass(frozen=True)
class Kept:
    """One line of evidence about a reader, by `saccade predict --engine` beside `--engine plain`."""

    model: str
    precision: str
    equal: float  # share of answers: labels of texts, or tags of words


READERS = (
    Kept("MiniLM that has learnt SST-2, on 872 sentences", "int8", 0.9989),
    Kept("MiniLM that has learnt SST-2, on 872 sentences", "float16", 1.0),
    Kept("MiniLM that has learnt WNUT-17, on the 9,354 words of 600 texts", "int8", 0.9994),
    Kept("MiniLM that has learnt WNUT-17, on the 9,354 words of 600 texts", "float16", 1.0),
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
        raise UsageError(f"Unknown precision {precision!r}; known are {', '.join((AUTO, *PRECISIONS))}.")
    device = next((p.device.type for p in model.parameters()), "cpu")
    if device != "cpu":
        return Choice(COMPILED, f"on {device} it is the plain model, compiled")
    if precision != AUTO:
        return Choice(precision, "asked for")
    width = int(model.body.width)  # type: ignore[arg-type]
    if width < NARROW:
        return Choice("float32", f"a width of {width} is too narrow to gain from fewer bits")
    # int8 was measured with our own operators
    able = PRECISIONS if native.ready() else PRECISIONS[1:]
    if model.capabilities.autoregressive:
        return _for_writer(able)
    if not _is_tame(model):
        return Choice("float32", "some of its weights are larger than float16 has numbers for")
    return _for_reader(able)


def _for_writer(precisions: Sequence[str]) -> Choice:
    """The quickest that has cost little perplexity wherever it was measured."""
    for quickest in precisions:
        lines = [line for line in MEASURED if line.precision == quickest]
        worst = max(lines, key=lambda line: line.change, default=None)
        if worst is not None and worst.change < LOSS:
            return Choice(quickest, f"it has cost {worst.change:.2%} of perplexity at most, in {worst.model}")
    return Choice("float32", f"every other precision has cost {LOSS:.0%} of perplexity or more")


def _is_tame(model: Model) -> bool:
    """Whether float16 has a number for every weight."""
    most = torch.finfo(torch.float16).max
    return all(float(p.detach().abs().amax()) <= most for p in model.parameters() if p.numel())


def _for_reader(precisions: Sequence[str]) -> Choice:
    """The quickest that has changed hardly an answer wherever it was measured."""
    for quickest in precisions:
        lines = [line for line in READERS if line.precision == quickest]
        worst = min(lines, key=lambda line: line.equal, default=None)
        if worst is not None and 1 - worst.equal < UNEQUAL:
            changed = f"it has changed {1 - worst.equal:.2%} of a reader's answers at most"
            return Choice(quickest, f"{changed}, in {worst.model}")
    return Choice("float32", f"every other precision has changed {UNEQUAL:.1%} of a reader's answers or more")
