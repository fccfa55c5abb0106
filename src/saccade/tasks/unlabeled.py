"""Unlabeled rows, as in public test sets with hidden labels: the label is -1, a question mark or missing.

Such rows can be predicted but not scored. A value such as -1 that is a label of the training data is an ordinary label.
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
    """Whether a gold label, or a list of labels, marks a row as unlabeled.

    >>> is_unlabeled(None, ("0", "1")), is_unlabeled("-1", ("0", "1")), is_unlabeled("-1", ("-1", "1"))
    (True, True, False)
    >>> is_unlabeled(["?"], ("a",))
    True
    """
    if gold is None:
        return True
    labels = gold if isinstance(gold, list) else [str(gold)]
    return bool(labels) and all(label in MISSING_LABELS and label not in known_labels for label in labels)


def make_gold_optional(roles: Sequence[Role]) -> tuple[Role, ...]:
    """The roles for evaluation data, in which rows may have no label; `filter_labeled` drops those rows."""
    return tuple(replace(role, required=role.name != "label") for role in roles)


def filter_labeled(task: Task, examples: Sequence[Example]) -> tuple[list[Example], int]:
    """The labeled examples and the number of unlabeled ones; an error if all are unlabeled."""
    kept = [example for example, hidden in zip(examples, task.unlabeled_mask(examples), strict=True) if not hidden]
    if not kept and examples:
        first = examples[0]
        raise DataError(
            f"the labels of all {len(examples):,} rows are hidden, so there is nothing to score",
            file=first.file,
            line=first.line,
            column="label",
            value=first.values.get("label", first.values.get("labels", "")),
            hint="predict them with saccade predict, or give labeled rows",
        )
    return kept, len(examples) - len(kept)


def format_unlabeled_note(unlabeled: int, count: int) -> str:
    """The message about rows that are not scored."""
    return f"{unlabeled:,} of {count:,} rows are not scored because their labels are hidden (-1, ? or empty)."


def drop_unlabeled(task: Task, splits: Splits) -> Splits:
    """The splits without unlabeled dev and test rows; a test set in which all rows are unlabeled is dropped."""
    if task.is_text_stream:
        return splits
    notes = list(splits.notes)

    def drop_rows(name: str, table: Records) -> Records | None:
        hidden = task.unlabeled_mask(table.examples)
        if not any(hidden):
            return table
        if all(hidden) and name == "test":
            notes.append(
                f"test: all {len(hidden):,} labels are hidden, so it is not scored; use saccade predict to predict it."
            )
            return None
        kept, count = filter_labeled(task, table.examples)
        notes.append(f"{name}: {format_unlabeled_note(count, len(hidden))}")
        return replace(table, examples=kept)

    dev = drop_rows("dev", splits.dev)
    assert dev is not None
    return replace(splits, dev=dev, test=splits.test and drop_rows("test", splits.test), notes=notes)
