"""Encoding of examples: the texts that a tokenizer is trained on, items, and batches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.data import Batch, Example
from saccade.models.model import Model


@dataclass(frozen=True)
class Item:
    """One encoded example: source, target, gold and lengths; a long example may become several items."""

    example: Example
    source: np.ndarray  # ids (L,), pixels (channels, rows, columns), or a spectrogram (frames, mels)
    target: np.ndarray | None = None  # ids (T,)
    gold: Any = None
    segment_ids: np.ndarray | None = None
    word_starts: tuple[int, ...] = ()  # index of the first token of each word

    @property
    def lengths(self) -> tuple[int, int]:
        """Number of source and target tokens; an image counts as one token, and so does a frame of a recording."""
        source_tokens = len(self.source) if self.source.ndim < 3 else 1
        return source_tokens, 0 if self.target is None else len(self.target)


class TaskEncoding:
    token_template: str = "none"  # special tokens around a text, for a tokenizer trained for the task
    extra_special_tokens: tuple[str, ...] = ()  # additional special tokens of such a tokenizer
    truncates: bool = True  # texts longer than task.max_tokens are truncated; False: they are split into windows

    @property
    def has_texts(self) -> bool:
        """Whether examples have texts, so that a new model gets a tokenizer."""
        return True

    @property
    def token_limit(self) -> int:
        """The configured maximum number of tokens per example."""
        return self.config.max_tokens  # type: ignore[attr-defined]

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        """The texts on which a tokenizer is trained."""
        raise NotImplementedError

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Encode examples for a model."""
        raise NotImplementedError

    def batch(self, items: Sequence[Item]) -> Batch:
        """Collate items into a padded batch."""
        raise NotImplementedError
