"""Test sets that keep their answers to themselves: -1, a question mark or nothing stands where a label should.

Such rows can be answered and not scored; a label that says so but was learnt is a label like others.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from saccade.data import Example, Records, Role
from saccade.data.splits import Splits
from saccade.errors import DataError
from saccade.tasks.base import Task

MISSING_LABELS = ("-1", "-1.0", "?")


def is_unlabeled(gold: Any, known_labels: Sequence[str]) -> bool:
    """Whether a label, several labels or none say that the right answer is not told.

    >>> is_unlabeled(None, ("0", "1")), is_unlabeled("-1", ("0", "1")), is_unlabeled("-1", ("-1", "1")), is_unlabeled(["?"], ("a",))
    (True, True, False, True)
    """
    if gold is None:
        return True
    said = gold if isinstance(gold, list) else [str(gold)]
    return bool(said) and all(label in MISSING_LABELS and label not in known_labels for label in said)


def make_gold_optional(roles: Sequence[Role]) -> tuple[Role, ...]:
    """The same roles for data to be scored: a row without a label is left for `scored` to leave out."""
    return tuple(replace(role, required=role.name != "label") for role in roles)


def filter_labeled(task: Task, examples: Sequence[Example]) -> tuple[list[Example], int]:
    """The examples whose gold is told, and how many others there are; an error where there is nothing to score."""
    kept = [example for example, hidden in zip(examples, task.unlabeled_mask(examples), strict=True) if not hidden]
    if not kept and examples:
        first = examples[0]
        raise DataError(
            f"the labels of all {len(examples):,} rows are hidden, so there is nothing to score",
            file=first.file,
            line=first.line,
            column="label",
            value=first.values.get("label", first.values.get("labels", "")),
            hint="answer them with saccade predict, or give rows whose labels are told",
        )
    return kept, len(examples) - len(kept)


def format_unlabeled_note(unlabeled: int, count: int) -> str:
    """What is said aloud of rows that are not scored."""
    return f"{unlabeled:,} of {count:,} rows are left out of the score, as their labels are hidden (-1, ? or nothing)."


def drop_unlabeled(task: Task, splits: Splits) -> Splits:
    """The splits of a training without held-out rows that cannot be scored; a test set without any others is left out."""
    if task.is_text_stream:
        return splits
    said = list(splits.notes)

    def told(name: str, table: Records) -> Records | None:
        hidden = task.unlabeled_mask(table.examples)
        if not any(hidden):
            return table
        if all(hidden) and name == "test":
            said.append(
                f"test: all {len(hidden):,} labels are hidden, so nothing is scored there; see saccade predict."
            )
            return None
        kept, count = filter_labeled(task, table.examples)
        said.append(f"{name}: {format_unlabeled_note(count, len(hidden))}")
        return replace(table, examples=kept)

    dev = told("dev", splits.dev)
    assert dev is not None
    return replace(splits, dev=dev, test=splits.test and told("test", splits.test), notes=said)
