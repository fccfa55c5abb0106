"""Training batches: the batch of step n is a function of the seed and of n, so that a run can be resumed at any step."""

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
    """A batch plan of item indices, and the function that turns indices into items."""

    task: Task
    plan: BatchPlan | WindowPlan
    get_items: Callable[[np.ndarray], list[Item]]
    size: int  # number of items, or of tokens of a running text

    def count_steps(self, epochs: int) -> int:
        """The number of steps of this many epochs."""
        return sum(self.plan.count_steps(epoch) for epoch in range(epochs))

    def epoch_at(self, step: int) -> int:
        """The epoch of a step."""
        return self.plan.find_batch(step)[0]

    def batches(self, step: int, *, micro_batches: int = 1, rank: int = 0, world_size: int = 1) -> list[Batch]:
        """The micro-batches of a step for one rank; empty micro-batches are left out."""
        _, _, indices = self.plan.find_batch(step)
        rank_indices = indices if world_size == 1 else self.plan.shard_batch(indices, rank, world_size)
        shards = (
            [rank_indices]
            if micro_batches == 1
            else [self.plan.shard_batch(rank_indices, part, micro_batches) for part in range(micro_batches)]
        )
        return [self.task.batch(self.get_items(shard)) for shard in shards if len(shard)]


def make_batches(
    task: Task,
    examples: Sequence[Example] | TokenShards,
    model: Model,
    *,
    batch_tokens: int,
    batch_size: int | None = None,
    seed: int = 0,
) -> BatchSource:
    """The training batches of a task: at most `batch_tokens` tokens, padding included, and at most `batch_size` rows."""
    if isinstance(task, Pretrain):
        task = task.objective
    if isinstance(examples, TokenShards) and isinstance(task, Objective):
        window, make_item = task.make_window_encoder(model)
        return window_batches(
            task, examples, window, batch_tokens=batch_tokens, batch_size=batch_size, seed=seed, make_item=make_item
        )
    if isinstance(examples, TokenShards):
        assert isinstance(task, Language), "only running text is streamed from token shards"
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
    """A language-modeling item from a window and the token after it: each target is the next token."""
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
    """Batches of windows of one long sequence of ids; `make_item` gets a window with the token after it.

    With `record_starts`, every other window moves back to the beginning of its record, unless that is farther than a window:
    generation of a record also starts without context. So some tokens are read twice in an epoch, and others in the next epoch.
    """
    window = min(window, max(1, len(ids) - 1))  # a shorter text is one window
    plan = WindowPlan(
        len(ids),
        window_tokens=window,
        batch_size=max(1, min(batch_tokens // window, batch_size or batch_tokens)),
        seed=seed,
    )

    def make_items(starts: np.ndarray) -> list[Item]:
        return [make_item(ids[start : start + window + 1]) for start in map(align_to_record, starts)]

    def align_to_record(start: int) -> int:
        if record_starts is None or not len(record_starts) or (start // window + start % window) % 2:
            return start
        record_start = int(record_starts[max(0, np.searchsorted(record_starts, start, side="right") - 1)])
        return record_start if 0 <= start - record_start < window else start

    return BatchSource(task, plan, make_items, len(ids))


def write_token_shards(
    task: Task, texts: StreamedExamples, model: Model, where: Path, *, digest: str
) -> Iterator[int | TokenShards]:
    """Tokenize a text that is too large for memory to shards at `where`; yields the token count so far, then the shards.

    Existing shards are reused if the digest of the text is the same and the tokenizer encodes a sample of it in the same way.
    """
    tokenizer = require_tokenizer(model)

    def encode(lines: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]

    sample_ids = encode([example["text"] for example in texts.sample[:200]])
    key = fingerprint(digest, repr(sample_ids), str(len(texts)))
    lines = (line for line in task.tokenizer_texts(texts))
    yield from tokenize_to_shards(lines, encode, where, vocab=tokenizer.vocab, separator=None, key=key)
