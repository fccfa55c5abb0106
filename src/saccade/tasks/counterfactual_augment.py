"""Data augmentation: `task.augment counterfactual` swaps words of groups of people, `swap_order` swaps the texts of a pair.

Counterfactual data augmentation (Lu et al. 2018, arXiv 1807.11714) adds a copy of each example for every dimension of the lexicon
that it has a word of, such as gender, with the words of that dimension swapped and the gold unchanged. The copies follow all
examples, dimension by dimension, in the order of the examples. They depend only on the data and the lexicon; their order in
training depends on the seed.

For pairs that mean the same in either order, such as paraphrases, `swap_order` adds a copy of each with the two texts swapped.
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
MAX_TEXTS_EXAMINED = 2_000  # texts from which the languages are detected


@dataclass(frozen=True)
class AugmentedExamples:
    """The training examples with their augmented copies, and the number of copies per dimension."""

    examples: Sequence[Example]
    counts: Mapping[str, int]
    note: str

    @property
    def resume_facts(self) -> dict[str, int | str]:
        """What a run records about the augmentation, and checks when it is resumed."""
        return dict(self.counts) if SWAP_ORDER in self.counts else {**self.counts, "lexicon": hash_lexicon()}


def unsupported_augment_reason(task: str) -> str:
    """Why a task does not support `task.augment`; "" if it does."""
    from saccade.tasks.registry import TASKS, task_class  # imports the tasks, some of which import this module

    task_type = task_class(task)
    *most, last = [entry.name for entry in TASKS if not entry.no_augment_reason]
    if not task_type.no_augment_reason:
        return ""
    supported = f"supported by {', '.join(most)} and {last}"
    return (
        f"task.augment: {task} has no counterfactual augmentation, as {task_type.no_augment_reason}; it is {supported}."
    )


def augment_examples(task: Task, examples: Sequence[Example]) -> AugmentedExamples | None:
    """The training examples with their augmented copies; None if the settings request none."""
    if not task.augment_roles or task.config.augment not in (COUNTERFACTUAL, SWAP_ORDER):
        return None
    if task.config.augment == SWAP_ORDER:
        note = f"augmentation  {len(examples):,} copies of training pairs in reverse order; dev and test are unchanged"
        return AugmentedExamples(
            _append_augmented(examples, lambda batch: map(swap_pair_order, batch), len(examples)),
            {SWAP_ORDER: len(examples)},
            note,
        )
    plan = _make_swap_plan(task, examples.sample if isinstance(examples, StreamedExamples) else examples)
    copies = plan.generate(examples) if isinstance(examples, StreamedExamples) else list(plan.generate(examples))
    counts: Counter[str] = Counter()
    indices: set[int] = set()
    for name, index, _ in copies:
        counts[name] += 1
        indices.add(index)
    note = _format_note(counts, len(indices), len(examples))
    if isinstance(examples, StreamedExamples):
        return AugmentedExamples(_append_augmented(examples, plan.counterfactuals, counts.total()), dict(counts), note)
    return AugmentedExamples([*examples, *(example for _, _, example in copies)], dict(counts), note)


def swap_pair_order(example: Example) -> Example:
    """A pair with its two texts swapped.

    >>> swap_pair_order(Example({"first": "a", "second": "b", "label": "1"})).values
    {'first': 'b', 'second': 'a', 'label': '1'}
    """
    return replace(example, values={**example.values, "first": example["second"], "second": example["first"]})


def _append_augmented(
    examples: Sequence[Example], augment: Callable[[Iterable[Example]], Iterable[Example]], count: int
) -> Sequence[Example]:
    """The examples followed by their copies; for streamed data the copies are generated on every pass."""
    if not isinstance(examples, StreamedExamples):
        return [*examples, *augment(examples)]
    sample = [*examples.sample, *augment(examples.sample)]
    return StreamedExamples(lambda: chain(examples, augment(examples)), len(examples) + count, sample)


@dataclass(frozen=True)
class _SwapPlan:
    """The roles whose words are swapped, the roles that are preserved, and the dimensions."""

    swapped_roles: tuple[str, ...]
    preserved_roles: tuple[str, ...]
    dimensions: tuple[Dimension, ...]

    def generate(self, examples: Iterable[Example]) -> Iterator[tuple[str, int, Example]]:
        """Each copy with the name of its dimension and the index of its example."""
        for dimension in self.dimensions:
            for index, example in enumerate(examples):
                pair = build_counterfactual(example, self.swapped_roles, self.preserved_roles, dimension)
                if pair is not None:
                    yield dimension.display_name, index, pair.counterfactual

    def counterfactuals(self, examples: Iterable[Example]) -> Iterator[Example]:
        return (example for _, _, example in self.generate(examples))


def _make_swap_plan(task: Task, examples: Sequence[Example]) -> _SwapPlan:
    if examples and not all(role in examples[0] for role in task.augment_roles):
        raise DataError(
            f"task.augment {COUNTERFACTUAL} swaps words, and these examples have no {' and '.join(task.augment_roles)}",
            file=examples[0].file,
            line=examples[0].line,
            hint="for images use flip, crop or flip_crop",
        )
    preserved_roles = tuple(role.name for role in task.roles(()) if role.name not in task.augment_roles)
    codes = detect_languages(task.tokenizer_texts(examples[:MAX_TEXTS_EXAMINED]))
    return _SwapPlan(
        task.augment_roles, preserved_roles, tuple(dimension for code in codes for dimension in load_dimensions(code))
    )


def _format_note(counts: Mapping[str, int], example_count: int, count: int) -> str:
    """The message about the augmentation, shown before training."""
    if not counts:
        return f"augmentation  none: no word of the lexicon is in the {count:,} training examples"
    by_dimension = ", ".join(f"{name} {number:,}" for name, number in counts.items())
    copies = f"{sum(counts.values()):,} copies of {example_count:,} training examples ({by_dimension})"
    return f"augmentation  {copies}; dev and test are unchanged"
