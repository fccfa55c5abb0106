"""Training examples are joined by twins of theirs: `task.augment counterfactual`, about the other group; `swap_order`, of pairs turned round.

Of every example, and for every dimension of the lexicon that it has a word of, one twin is made with the words of that
dimension exchanged and its gold as it is. The twins come after all examples, dimension by dimension, in the order of the
examples. They depend on nothing but the data and the lexicon; which batch they are in depends on the seed, as with all
others (Lu et al. 2018, arXiv 1807.11714).

Of pairs that mean the same in either order, such as paraphrases, `swap_order` makes one twin each, with the two texts exchanged.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from saccade.data import Example
from saccade.data.counterfactual import build_counterfactual
from saccade.data.streaming.text import StreamedExamples
from saccade.errors import DataError
from saccade.tasks.base import Task
from saccade.text.counterfactual_words import Dimension, detect_languages, hash_lexicon, load_dimensions

COUNTERFACTUAL, SWAP_ORDER = "counterfactual", "swap_order"
MAX_TEXTS_EXAMINED = 2_000  # texts by which languages are told


@dataclass(frozen=True)
class AugmentedExamples:
    """What is learnt from: the training examples and their twins, and how many of those there are by dimension."""

    examples: Sequence[Example]
    counts: Mapping[str, int]
    note: str

    @property
    def resume_facts(self) -> dict[str, int | str]:
        """What a run writes down of its twins, and has to find again when it goes on."""
        return dict(self.counts) if SWAP_ORDER in self.counts else {**self.counts, "lexicon": hash_lexicon()}


def unsupported_augment_reason(task: str) -> str:
    """Why a task takes no twins; "" where it does."""
    from saccade.tasks.registry import TASKS, task_class  # which know all tasks, and some of those ask here

    kind = task_class(task)
    *most, last = [entry.name for entry in TASKS if not entry.no_augment_reason]
    able = f"{', '.join(most)} and {last} do"
    return (
        ""
        if not kind.no_augment_reason
        else f"task.augment: {task} takes no twins of its examples, as {kind.no_augment_reason}; {able}."
    )


def augment_examples(task: Task, examples: Sequence[Example]) -> AugmentedExamples | None:
    """The training examples with their twins, where the settings ask for them."""
    if not task.augment_roles or task.config.augment not in (COUNTERFACTUAL, SWAP_ORDER):
        return None
    if task.config.augment == SWAP_ORDER:
        said = f"twins  all {len(examples):,} training pairs join themselves in the other order; dev and test stay as they are"
        return AugmentedExamples(
            _append_augmented(examples, lambda some: map(swap_pair_order, some), len(examples)),
            {SWAP_ORDER: len(examples)},
            said,
        )
    work = _make_swap_plan(task, examples.sample if isinstance(examples, StreamedExamples) else examples)
    made = work.generate(examples) if isinstance(examples, StreamedExamples) else list(work.generate(examples))
    counts: Counter[str] = Counter()
    numbers: set[int] = set()
    for name, number, _ in made:
        counts[name] += 1
        numbers.add(number)
    said = _format_note(counts, len(numbers), len(examples))
    if isinstance(examples, StreamedExamples):
        return AugmentedExamples(_append_augmented(examples, work.counterfactuals, counts.total()), dict(counts), said)
    return AugmentedExamples([*examples, *(example for _, _, example in made)], dict(counts), said)


def swap_pair_order(example: Example) -> Example:
    """A pair in the other order.

    >>> swap_pair_order(Example({"first": "a", "second": "b", "label": "1"})).values
    {'first': 'b', 'second': 'a', 'label': '1'}
    """
    return replace(example, values={**example.values, "first": example["second"], "second": example["first"]})


def _append_augmented(
    examples: Sequence[Example], augment: Callable[[Iterable[Example]], Iterable[Example]], count: int
) -> Sequence[Example]:
    """The examples and then their twins; where they are too many to be held, made again whenever they are read."""
    if not isinstance(examples, StreamedExamples):
        return [*examples, *augment(examples)]
    some = [*examples.sample, *augment(examples.sample)]
    return StreamedExamples(lambda: chain(examples, augment(examples)), len(examples) + count, some)


@dataclass(frozen=True)
class _SwapPlan:
    """What is exchanged, what is kept, and the dimensions one by one."""

    swapped_roles: tuple[str, ...]
    preserved_roles: tuple[str, ...]
    dimensions: tuple[Dimension, ...]

    def generate(self, examples: Iterable[Example]) -> Iterator[tuple[str, int, Example]]:
        """Every twin with its dimension and the number of its example."""
        for dimension in self.dimensions:
            for number, example in enumerate(examples):
                found = build_counterfactual(example, self.swapped_roles, self.preserved_roles, dimension)
                if found is not None:
                    yield dimension.display_name, number, found.counterfactual

    def counterfactuals(self, examples: Iterable[Example]) -> Iterator[Example]:
        return (example for _, _, example in self.generate(examples))


def _make_swap_plan(task: Task, examples: Sequence[Example]) -> _SwapPlan:
    if examples and not all(role in examples[0] for role in task.augment_roles):
        raise DataError(
            f"task.augment is {COUNTERFACTUAL}, which exchanges words, and these examples have no {' and '.join(task.augment_roles)}",
            file=examples[0].file,
            line=examples[0].line,
            hint="for pictures use flip, crop or flip_crop",
        )
    keeps = tuple(role.name for role in task.roles(()) if role.name not in task.augment_roles)
    codes = detect_languages(task.tokenizer_texts(examples[:MAX_TEXTS_EXAMINED]))
    return _SwapPlan(task.augment_roles, keeps, tuple(one for code in codes for one in load_dimensions(code)))


def _format_note(counts: Mapping[str, int], touched: int, count: int) -> str:
    """What is said aloud before training begins."""
    if not counts:
        return f"twins  none: no word of the lexicon stands in the {count:,} training examples, so the augmentation changes nothing"
    told = ", ".join(f"{name} {number:,}" for name, number in counts.items())
    twins = f"{sum(counts.values()):,} of {touched:,} training examples join them ({told})"
    return f"twins  {twins}; dev and test stay as they are"
