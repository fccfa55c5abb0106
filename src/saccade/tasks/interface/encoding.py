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
    segment_ids: np.ndarray | None = None
    word_starts: tuple[int, ...] = ()  # the token that speaks for each word

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the source and of the target; a picture counts as one."""
        read = len(self.source) if self.source.ndim == 1 else 1
        return read, 0 if self.target is None else len(self.target)


class TaskEncoding:
    token_template: str = "none"  # what a tokenizer trained for it puts around a text
    extra_special_tokens: tuple[str, ...] = ()  # further special tokens of a tokenizer trained for it
    truncates: bool = True  # a text longer than task.max_tokens loses its end; otherwise it is read in pieces

    @property
    def token_limit(self) -> int:
        """Tokens that an example may have at most, as the user set it."""
        return self.config.max_tokens  # type: ignore[attr-defined]

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        """The texts that a tokenizer is trained on."""
        raise NotImplementedError

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Examples as numbers."""
        raise NotImplementedError

    def batch(self, items: Sequence[Item]) -> Batch:
        """Items side by side, padded."""
        raise NotImplementedError
