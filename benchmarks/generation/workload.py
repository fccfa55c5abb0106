"""What is written in a race: the work of one rival, its prompts, and what a rival has to offer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.random  # now, so that it does not count as a rival's memory

from benchmarks.generation.weights import END

PLAIN = "plain"
Write = Callable[[int], list[Any]]  # so many new tokens for each row; gives rows of ids, or texts
Made = tuple[str, Write]  # the precision that it has in the end, and how it writes


@dataclass(frozen=True)
class Work:
    """What one rival does in a turn: `who` with a `precision`, on the weights in `where`."""

    kind: str  # a line of WRITERS
    who: str
    precision: str
    where: str
    rows: int = 1
    prompt: int = 64  # tokens of a prompt or, if mixed, their mean
    mixed: bool = False
    new: int = 128  # tokens that are written to each
    beams: int = 1
    vocab: int = 50257
    threads: int = 2
    lines: str = ""  # a file of sentences, for weights that were trained
    shortlist: str = ""

    @property
    def name(self) -> str:
        return f"{self.who}, {self.precision}"

    def prompts(self) -> list[list[int]]:
        """Random ids, the same for everybody; mixed lengths go from a quarter of the mean to seven quarters."""
        chance = np.random.default_rng(self.rows)
        lengths = np.full(self.rows, self.prompt)
        if self.mixed:
            lengths = chance.permutation(np.linspace(self.prompt / 4, 7 * self.prompt / 4, self.rows).astype(int))
        return [chance.integers(END + 2, self.vocab - 1, max(1, length)).tolist() for length in lengths]

    def sentences(self) -> list[str]:
        return Path(self.lines).read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class Writer:
    """One rival: how it is made ready, in which precisions, what has to be written for it before, and what it imports."""

    make: Callable[[Work], Made]
    precisions: tuple[str, ...]
    prepare: Callable[[Path], Path] | None = None
    modules: tuple[str, ...] = ()  # whose memory is not that of a model
