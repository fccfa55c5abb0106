"""What rivals in training have in common: the texts, the loop of our own, and the loop that everybody writes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Step = Callable[[], int]  # one step of training; gives its real tokens


@dataclass(frozen=True)
class Case:
    """What is trained: `name` of a line of CASES, by whom, and the dropout on weights and branches."""

    name: str
    who: str
    dropout: float


def lines(vocab: int) -> list[np.ndarray]:
    """Short texts of the lengths that sentences have, mean 16, some of 60 and more."""
    chance = np.random.default_rng(1)
    lengths = np.clip(chance.lognormal(2.6, 0.55, 20_000).astype(int), 3, 120)
    return [chance.integers(6, vocab, length).astype(np.int32) for length in lengths]


def paragraphs(vocab: int) -> list[np.ndarray]:
    """Texts of the lengths that the lines of WikiText-2 have: a third are headings, the median is 88, cut at 256."""
    chance = np.random.default_rng(3)
    headings, prose = chance.integers(4, 13, 8_000), chance.lognormal(4.85, 0.6, 8_000).astype(int)
    lengths = np.where(chance.random(8_000) < 0.35, headings, np.clip(prose, 16, 256))
    return [chance.integers(6, vocab, length).astype(np.int32) for length in lengths]


def learner(model: Any, task: Any, feed: Any) -> Step:
    """Our own loop."""
    from saccade.training.config import Config
    from saccade.training.loop import Learner

    made = Learner(model, task, feed, Config(epochs=100))
    return lambda: made.step().tokens


def by_length(task: Any, items: list[Any], tokens: int) -> Any:
    """Batches of like length."""
    from saccade.data.batching import BatchPlan
    from saccade.tasks.batches import BatchSource

    plan = BatchPlan(np.array([item.lengths for item in items]), tokens)
    return BatchSource(task, plan, lambda numbers: [items[i] for i in numbers], len(items))


def in_any_order(rows: list[Any], collate: Any, size: int) -> Iterator[Any]:
    """Batches of so many rows, whatever their lengths."""
    chance = np.random.default_rng(0)
    while True:
        order = chance.permutation(len(rows))
        for start in range(0, len(rows) - size, size):
            yield collate([rows[i] for i in order[start : start + size]])


def loop(model: Any, batches: Iterator[Any], count: Callable[[Any], int]) -> Step:
    """How everybody trains: forward with labels, backward, clip, step."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> int:
        batch = next(batches)
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return count(batch)

    return step
