"""The workload of a generation benchmark: the prompts and settings of one measurement, and the description of an engine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.random  # imported here, so that it does not count as the memory of a model

from benchmarks.generation.weights import EOS_ID

PLAIN = "plain"
Generate = Callable[[int], list[Any]]  # number of new tokens per row -> rows of token ids, or texts
LoadedEngine = tuple[str, Generate]  # the precision that was chosen, and the function that generates


@dataclass(frozen=True)
class Workload:
    """What one engine generates in each round, in one precision, with the weights in `directory`."""

    kind: str  # a key of ENGINES
    engine: str
    precision: str
    directory: str
    batch_size: int = 1
    prompt_tokens: int = 64  # tokens of each prompt or, for mixed lengths, their mean
    mixed_lengths: bool = False
    new_tokens: int = 128  # tokens to generate for each prompt
    beams: int = 1
    vocab: int = 50257
    threads: int = 2
    sentences_file: str = ""  # a file of sentences, for trained weights
    shortlist: str = ""

    @property
    def name(self) -> str:
        return f"{self.engine}, {self.precision}"

    def prompts(self) -> list[list[int]]:
        """Random token ids, the same for all engines; mixed lengths range from a quarter of the mean to seven quarters."""
        rng = np.random.default_rng(self.batch_size)
        lengths = np.full(self.batch_size, self.prompt_tokens)
        if self.mixed_lengths:
            low, high = self.prompt_tokens / 4, 7 * self.prompt_tokens / 4
            lengths = rng.permutation(np.linspace(low, high, self.batch_size).astype(int))
        return [rng.integers(EOS_ID + 2, self.vocab - 1, max(1, length)).tolist() for length in lengths]

    def sentences(self) -> list[str]:
        return Path(self.sentences_file).read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class Engine:
    """How to load an engine, its precisions, how to convert weights for it, and the modules that it imports."""

    load: Callable[[Workload], LoadedEngine]
    precisions: tuple[str, ...]
    convert_weights: Callable[[Path], Path] | None = None
    modules: tuple[str, ...] = ()  # imported before loading, so that their memory does not count as the model's
