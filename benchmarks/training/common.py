"""What the training benchmarks share: synthetic texts, saccade's training step, and a plain PyTorch training step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Step = Callable[[], int]  # runs one training step; returns its number of tokens without padding


@dataclass(frozen=True)
class Case:
    """What to train (a key of CASES), with which library, and the dropout of attention weights and sublayers."""

    name: str
    library: str
    dropout: float


def make_sentences(vocab: int) -> list[np.ndarray]:
    """Random tokens with lengths distributed like those of sentences: the mean is 16, and some have 60 or more."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(2.6, 0.55, 20_000).astype(int), 3, 120)
    return [rng.integers(6, vocab, length).astype(np.int32) for length in lengths]


def make_paragraphs(vocab: int) -> list[np.ndarray]:
    """Random tokens with lengths like those of lines of WikiText-2: a third are headings, the median is 88, the maximum 256."""
    rng = np.random.default_rng(3)
    headings, prose = rng.integers(4, 13, 8_000), rng.lognormal(4.85, 0.6, 8_000).astype(int)
    lengths = np.where(rng.random(8_000) < 0.35, headings, np.clip(prose, 16, 256))
    return [rng.integers(6, vocab, length).astype(np.int32) for length in lengths]


def make_saccade_step(model: Any, task: Any, batches: Any) -> Step:
    """The training step of saccade."""
    from saccade.training.config import Config
    from saccade.training.loop import Learner

    learner = Learner(model, task, batches, Config(epochs=100))
    return lambda: learner.step().tokens


def batch_by_length(task: Any, items: list[Any], tokens: int) -> Any:
    """Batches of texts of similar length, with about this number of tokens."""
    from saccade.data.batching import BatchPlan
    from saccade.tasks.batches import BatchSource

    plan = BatchPlan(np.array([item.lengths for item in items]), tokens)
    return BatchSource(task, plan, lambda indices: [items[i] for i in indices], len(items))


def shuffled_batches(rows: list[Any], collate: Any, size: int) -> Iterator[Any]:
    """Batches of this number of rows in random order, whatever their lengths."""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(rows))
        for start in range(0, len(rows) - size, size):
            yield collate([rows[i] for i in order[start : start + size]])


def make_plain_step(model: Any, batches: Iterator[Any], count_tokens: Callable[[Any], int]) -> Step:
    """The usual training step: forward pass with labels, backward pass, gradient clipping, optimizer step."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> int:
        batch = next(batches)
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return count_tokens(batch)

    return step
