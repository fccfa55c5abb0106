"""Batches by number: what step n of a training reads is a function of the seed and of n, so a run can go on anywhere."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.data import Batch, Example
from saccade.data.batching import BatchPlan, WindowPlan
from saccade.data.streaming.text import StreamedExamples
from saccade.data.streaming.token_shards import TokenShards, fingerprint
from saccade.data.streaming.token_writer import tokenize_to_shards
from saccade.models.model import Model
from saccade.tasks.base import Item, Task, require_tokenizer
from saccade.tasks.language import Language
from saccade.tasks.pretrain import Pretrain
from saccade.tasks.pretrain.objective import Objective


@dataclass(frozen=True)
class BatchSource:
    """A plan of numbers, and how numbers become items."""

    task: Task
    plan: BatchPlan | WindowPlan
    get_items: Callable[[np.ndarray], list[Item]]
    size: int  # items, or tokens of a running text

    def count_steps(self, epochs: int) -> int:
        """How many steps so many epochs have."""
        return sum(self.plan.count_steps(number) for number in range(epochs))

    def epoch_at(self, step: int) -> int:
        """The epoch in which a step lies."""
        return self.plan.find_batch(step)[0]

    def batches(self, step: int, *, micro_batches: int = 1, rank: int = 0, world_size: int = 1) -> list[Batch]:
        """One rank's share of a step, in as many parts as asked for; a part that would be empty is left out."""
        _, _, numbers = self.plan.find_batch(step)
        mine = numbers if world_size == 1 else self.plan.shard_batch(numbers, rank, world_size)
        pieces = (
            [mine]
            if micro_batches == 1
            else [self.plan.shard_batch(mine, part, micro_batches) for part in range(micro_batches)]
        )
        return [self.task.batch(self.get_items(piece)) for piece in pieces if len(piece)]


def make_batches(
    task: Task,
    examples: Sequence[Example] | TokenShards,
    model: Model,
    *,
    batch_tokens: int,
    batch_size: int | None = None,
    seed: int = 0,
) -> BatchSource:
    """The examples of a task in batches of at most `tokens` tokens, padding counted, and at most `rows` rows."""
    if isinstance(task, Pretrain):
        task = task.objective
    if isinstance(examples, TokenShards) and isinstance(task, Objective):
        window, make = task.make_window_encoder(model)
        return window_batches(
            task, examples, window, batch_tokens=batch_tokens, batch_size=batch_size, seed=seed, make_item=make
        )
    if isinstance(examples, TokenShards):
        assert isinstance(task, Language), "only running text is put on a shelf"
        return window_batches(
            task, examples, task.window_size(model), batch_tokens=batch_tokens, batch_size=batch_size, seed=seed
        )
    if isinstance(task, Language):
        ids = task.encode_stream(examples, model)
        sizes = {
            "batch_tokens": batch_tokens,
            "batch_size": batch_size,
            "seed": seed,
            "record_starts": task.find_record_starts(ids, model),
        }
        return window_batches(task, ids, task.window_size(model), **sizes)
    items = task.encode(examples, model)
    plan = BatchPlan(np.array([item.lengths for item in items]), batch_tokens, seed, batch_size)
    return BatchSource(task, plan, lambda numbers: [items[i] for i in numbers], len(items))


def next_token_item(row: np.ndarray) -> Item:
    """A window and the token after it, as an item that is asked at each token for the one that follows."""
    return Item(Example({"ids": row}), row[:-1], gold=row[1:])


def window_batches(
    task: Task,
    ids: np.ndarray | TokenShards,
    window: int,
    *,
    batch_tokens: int,
    batch_size: int | None = None,
    seed: int = 0,
    make_item: Callable[[np.ndarray], Item] = next_token_item,
    record_starts: np.ndarray | None = None,
) -> BatchSource:
    """Windows of one long row of ids, in batches; `make` gets a window and the token after it.

    Where records begin, every other window moves back to the beginning of its record, unless that is out of its reach: who is
    asked to write a record has nothing before it, either. So some tokens are read twice in an epoch, and others in the next.
    """
    window = min(window, max(1, len(ids) - 1))  # a text shorter than a window is one
    plan = WindowPlan(
        len(ids),
        window_tokens=window,
        batch_size=max(1, min(batch_tokens // window, batch_size or batch_tokens)),
        seed=seed,
    )

    def take(starts: np.ndarray) -> list[Item]:
        return [make_item(ids[start : start + window + 1]) for start in map(begun, starts)]

    def begun(start: int) -> int:
        if record_starts is None or not len(record_starts) or (start // window + start % window) % 2:
            return start
        first = int(record_starts[max(0, np.searchsorted(record_starts, start, side="right") - 1)])
        return first if 0 <= start - first < window else start

    return BatchSource(task, plan, take, len(ids))


def write_token_shards(
    task: Task, texts: StreamedExamples, model: Model, where: Path, *, digest: str
) -> Iterator[int | TokenShards]:
    """Write the tokens of a text that is too large to be held to `where`; gives their number so far, and then the shards.

    What is there already is used again if the text, `key`, is the same and the tokenizer does the same with some of it.
    """
    tokenizer = require_tokenizer(model)

    def encode(lines: list[str]) -> list[list[int]]:
        return [found.ids for found in tokenizer.encode_batch(lines, add_special_tokens=False)]

    tried = encode([example["text"] for example in texts.sample[:200]])
    mark = fingerprint(digest, repr(tried), str(len(texts)))
    lines = (line for line in task.tokenizer_texts(texts))
    yield from tokenize_to_shards(lines, encode, where, vocab=tokenizer.vocab, separator=None, key=mark)
