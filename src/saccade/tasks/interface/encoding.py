"""Examples as numbers: what a tokenizer is trained on, items, and batches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.data import Batch, Example
from saccade.models.model import Model


@dataclass(frozen=True)
class Item:
    """One example as numbers: what is read, what should be written, what should be said, and what that costs in tokens."""

    example: Example
    source: np.ndarray  # ids (L,), or pixels (channels, rows, columns)
    target: np.ndarray | None = None  # ids (T,)
    gold: Any = None
    segments: np.ndarray | None = None
    words: tuple[int, ...] = ()  # the token that speaks for each word

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the source and of the target; a picture counts as one."""
        read = len(self.source) if self.source.ndim == 1 else 1
        return read, 0 if self.target is None else len(self.target)


class TaskEncoding:
    frame: str = "none"  # what a tokenizer trained for it puts around a text
    extra: tuple[str, ...] = ()  # further special tokens of a tokenizer trained for it
    cuts: bool = True  # a text longer than task.length loses its end; otherwise it is read in pieces

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        """The texts that a tokenizer is trained on."""
        raise NotImplementedError

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Examples as numbers."""
        raise NotImplementedError

    def batch(self, items: Sequence[Item]) -> Batch:
        """Items side by side, padded."""
        raise NotImplementedError
