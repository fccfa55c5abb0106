"""Batches by number: what step n of a training reads is a function of the seed and of n, so a run can go on anywhere."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.data import Batch, Example
from saccade.data.long import Long
from saccade.data.plan import Blocks, Plan
from saccade.data.sharding import writing
from saccade.data.shards import Shards, fingerprint
from saccade.models.model import Model
from saccade.tasks.language import Language
from saccade.tasks.pretrain import Pretrain
from saccade.tasks.pretrain.objective import Objective
from saccade.tasks.task import Item, Task, need_tokenizer


@dataclass(frozen=True)
class Feed:
    """A plan of numbers, and how numbers become items."""

    task: Task
    plan: Plan | Blocks
    take: Callable[[np.ndarray], list[Item]]
    count: int  # items, or tokens of a running text

    def steps(self, epochs: int) -> int:
        """How many steps so many epochs have."""
        return sum(self.plan.steps(number) for number in range(epochs))

    def epoch(self, step: int) -> int:
        """The epoch in which a step lies."""
        return self.plan.at(step)[0]

    def batches(self, step: int, *, parts: int = 1, rank: int = 0, size: int = 1) -> list[Batch]:
        """One rank's share of a step, in as many parts as asked for; a part that would be empty is left out."""
        _, _, numbers = self.plan.at(step)
        mine = numbers if size == 1 else self.plan.part(numbers, rank, size)
        pieces = [mine] if parts == 1 else [self.plan.part(mine, part, parts) for part in range(parts)]
        return [self.task.batch(self.take(piece)) for piece in pieces if len(piece)]


def feed(
    task: Task,
    examples: Sequence[Example] | Shards,
    model: Model,
    *,
    tokens: int,
    rows: int | None = None,
    seed: int = 0,
) -> Feed:
    """The examples of a task in batches of at most `tokens` tokens, padding counted, and at most `rows` rows."""
    if isinstance(task, Pretrain):
        task = task.doing
    if isinstance(examples, Shards) and isinstance(task, Objective):
        window, make = task.windows(model)
        return running(task, examples, window, tokens=tokens, rows=rows, seed=seed, make=make)
    if isinstance(examples, Shards):
        assert isinstance(task, Language), "only running text is put on a shelf"
        return running(task, examples, task.window(model), tokens=tokens, rows=rows, seed=seed)
    if isinstance(task, Language):
        ids = task.ids(examples, model)
        sizes = {"tokens": tokens, "rows": rows, "seed": seed, "begins": task.begins(ids, model)}
        return running(task, ids, task.window(model), **sizes)
    items = task.items(examples, model)
    plan = Plan(np.array([item.lengths for item in items]), tokens, seed, rows)
    return Feed(task, plan, lambda numbers: [items[i] for i in numbers], len(items))


def next_token(row: np.ndarray) -> Item:
    """A window and the token after it, as an item that is asked at each token for the one that follows."""
    return Item(Example({"ids": row}), row[:-1], gold=row[1:])


def running(
    task: Task,
    ids: np.ndarray | Shards,
    window: int,
    *,
    tokens: int,
    rows: int | None = None,
    seed: int = 0,
    make: Callable[[np.ndarray], Item] = next_token,
    begins: np.ndarray | None = None,
) -> Feed:
    """Windows of one long row of ids, in batches; `make` gets a window and the token after it.

    Where records begin, every other window moves back to the beginning of its record, unless that is out of its reach: who is
    asked to write a record has nothing before it, either. So some tokens are read twice in an epoch, and others in the next.
    """
    window = min(window, max(1, len(ids) - 1))  # a text shorter than a window is one
    plan = Blocks(len(ids), length=window, batch=max(1, min(tokens // window, rows or tokens)), seed=seed)

    def take(starts: np.ndarray) -> list[Item]:
        return [make(ids[start : start + window + 1]) for start in map(begun, starts)]

    def begun(start: int) -> int:
        if begins is None or not len(begins) or (start // window + start % window) % 2:
            return start
        first = int(begins[max(0, np.searchsorted(begins, start, side="right") - 1)])
        return first if 0 <= start - first < window else start

    return Feed(task, plan, take, len(ids))


def shelving(task: Task, texts: Long, model: Model, where: Path, *, key: str) -> Iterator[int | Shards]:
    """Write the tokens of a text that is too large to be held to `where`; gives their number so far, and then the shards.

    What is there already is used again if the text, `key`, is the same and the tokenizer does the same with some of it.
    """
    tokenizer = need_tokenizer(model)

    def encode(lines: list[str]) -> list[list[int]]:
        return [found.ids for found in tokenizer.encode_batch(lines, special=False)]

    tried = encode([example["text"] for example in texts.some[:200]])
    mark = fingerprint(key, repr(tried), str(len(texts)))
    lines = (line for line in task.texts(texts))
    yield from writing(lines, encode, where, vocab=tokenizer.vocab, separator=None, key=mark)
