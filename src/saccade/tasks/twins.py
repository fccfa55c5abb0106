"""Training examples are joined by twins of theirs: `task.augment swap`, about the other group; `order`, of pairs turned round.

Of every example, and for every dimension of the lexicon that it has a word of, one twin is made with the words of that
dimension exchanged and its gold as it is. The twins come after all examples, dimension by dimension, in the order of the
examples. They depend on nothing but the data and the lexicon; which batch they are in depends on the seed, as with all
others (Lu et al. 2018, arXiv 1807.11714).

Of pairs that mean the same in either order, such as paraphrases, `order` makes one twin each, with the two texts exchanged.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from saccade.data import Example
from saccade.data.long import Long
from saccade.data.twins import twin
from saccade.errors import DataError
from saccade.tasks.task import Task
from saccade.text.swap import Dimension, dimensions, lexicon_mark, spoken

SWAP, ORDER = "swap", "order"
LOOK = 2_000  # texts by which languages are told


@dataclass(frozen=True)
class Learnt:
    """What is learnt from: the training examples and their twins, and how many of those there are by dimension."""

    examples: Sequence[Example]
    counts: Mapping[str, int]
    said: str

    @property
    def record(self) -> dict[str, int | str]:
        """What a run writes down of its twins, and has to find again when it goes on."""
        return dict(self.counts) if ORDER in self.counts else {**self.counts, "lexicon": lexicon_mark()}


def refusal(name: str) -> str:
    """Why a task takes no twins; "" where it does."""
    from saccade.tasks.table import TASKS, task_class  # which know all tasks, and some of those ask here

    kind = task_class(name)
    *most, last = [entry.name for entry in TASKS if not entry.no_swap]
    able = f"{', '.join(most)} and {last} do"
    return (
        "" if not kind.no_swap else f"task.augment: {name} takes no twins of its examples, as {kind.no_swap}; {able}."
    )


def with_twins(task: Task, examples: Sequence[Example]) -> Learnt | None:
    """The training examples with their twins, where the settings ask for them."""
    if not task.exchanged or task.config.augment not in (SWAP, ORDER):
        return None
    if task.config.augment == ORDER:
        said = f"twins  all {len(examples):,} training pairs join themselves in the other order; dev and test stay as they are"
        return Learnt(_joined(examples, lambda some: map(turned, some), len(examples)), {ORDER: len(examples)}, said)
    work = _work(task, examples.some if isinstance(examples, Long) else examples)
    made = work.made(examples) if isinstance(examples, Long) else list(work.made(examples))
    counts: Counter[str] = Counter()
    numbers: set[int] = set()
    for name, number, _ in made:
        counts[name] += 1
        numbers.add(number)
    said = _said(counts, len(numbers), len(examples))
    if isinstance(examples, Long):
        return Learnt(_joined(examples, work.twins, counts.total()), dict(counts), said)
    return Learnt([*examples, *(example for _, _, example in made)], dict(counts), said)


def turned(example: Example) -> Example:
    """A pair in the other order.

    >>> turned(Example({"first": "a", "second": "b", "label": "1"})).values
    {'first': 'b', 'second': 'a', 'label': '1'}
    """
    return replace(example, values={**example.values, "first": example["second"], "second": example["first"]})


def _joined(
    examples: Sequence[Example], twins: Callable[[Iterable[Example]], Iterable[Example]], count: int
) -> Sequence[Example]:
    """The examples and then their twins; where they are too many to be held, made again whenever they are read."""
    if not isinstance(examples, Long):
        return [*examples, *twins(examples)]
    some = [*examples.some, *twins(examples.some)]
    return Long(lambda: chain(examples, twins(examples)), len(examples) + count, some)


@dataclass(frozen=True)
class _Work:
    """What is exchanged, what is kept, and the dimensions one by one."""

    reads: tuple[str, ...]
    keeps: tuple[str, ...]
    dimensions: tuple[Dimension, ...]

    def made(self, examples: Iterable[Example]) -> Iterator[tuple[str, int, Example]]:
        """Every twin with its dimension and the number of its example."""
        for dimension in self.dimensions:
            for number, example in enumerate(examples):
                found = twin(example, self.reads, self.keeps, dimension)
                if found is not None:
                    yield dimension.called, number, found.after

    def twins(self, examples: Iterable[Example]) -> Iterator[Example]:
        return (example for _, _, example in self.made(examples))


def _work(task: Task, examples: Sequence[Example]) -> _Work:
    if examples and not all(role in examples[0] for role in task.exchanged):
        raise DataError(
            f"task.augment is {SWAP}, which exchanges words, and these examples have no {' and '.join(task.exchanged)}",
            file=examples[0].file,
            line=examples[0].line,
            cure="for pictures use flip, crop or both",
        )
    keeps = tuple(role.name for role in task.roles(()) if role.name not in task.exchanged)
    codes = spoken(task.texts(examples[:LOOK]))
    return _Work(task.exchanged, keeps, tuple(one for code in codes for one in dimensions(code)))


def _said(counts: Mapping[str, int], touched: int, count: int) -> str:
    """What is said aloud before training begins."""
    if not counts:
        return f"twins  none: no word of the lexicon stands in the {count:,} training examples, so swap changes nothing"
    told = ", ".join(f"{name} {number:,}" for name, number in counts.items())
    twins = f"{sum(counts.values()):,} of {touched:,} training examples join them ({told})"
    return f"twins  {twins}; dev and test stay as they are"
