"""Test sets that keep their answers to themselves: -1, a question mark or nothing stands where a label should.

Such rows can be answered and not scored; a label that says so but was learnt is a label like others.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from saccade.data import Example, Role, Table
from saccade.data.split import Splits
from saccade.errors import DataError
from saccade.tasks.task import Task

MARKS = ("-1", "-1.0", "?")


def is_hidden(gold: Any, learnt: Sequence[str]) -> bool:
    """Whether a label, several labels or none say that the right answer is not told.

    >>> is_hidden(None, ("0", "1")), is_hidden("-1", ("0", "1")), is_hidden("-1", ("-1", "1")), is_hidden(["?"], ("a",))
    (True, True, False, True)
    """
    if gold is None:
        return True
    said = gold if isinstance(gold, list) else [str(gold)]
    return bool(said) and all(label in MARKS and label not in learnt for label in said)


def forgiving(roles: Sequence[Role]) -> tuple[Role, ...]:
    """The same roles for data to be scored: a row without a label is left for `scored` to leave out."""
    return tuple(replace(role, needed=role.name != "label") for role in roles)


def scored(task: Task, examples: Sequence[Example]) -> tuple[list[Example], int]:
    """The examples whose gold is told, and how many others there are; an error where there is nothing to score."""
    kept = [example for example, hidden in zip(examples, task.hidden(examples), strict=True) if not hidden]
    if not kept and examples:
        first = examples[0]
        raise DataError(
            f"the labels of all {len(examples):,} rows are hidden, so there is nothing to score",
            file=first.file,
            line=first.line,
            column="label",
            value=first.values.get("label", first.values.get("labels", "")),
            cure="answer them with saccade predict, or give rows whose labels are told",
        )
    return kept, len(examples) - len(kept)


def left_out(hidden: int, count: int) -> str:
    """What is said aloud of rows that are not scored."""
    return f"{hidden:,} of {count:,} rows are left out of the score, as their labels are hidden (-1, ? or nothing)."


def revealed(task: Task, splits: Splits) -> Splits:
    """The splits of a training without held-out rows that cannot be scored; a test set without any others is left out."""
    if task.running:
        return splits
    said = list(splits.said)

    def told(name: str, table: Table) -> Table | None:
        hidden = task.hidden(table.examples)
        if not any(hidden):
            return table
        if all(hidden) and name == "test":
            said.append(
                f"test: all {len(hidden):,} labels are hidden, so nothing is scored there; see saccade predict."
            )
            return None
        kept, count = scored(task, table.examples)
        said.append(f"{name}: {left_out(count, len(hidden))}")
        return replace(table, examples=kept)

    dev = told("dev", splits.dev)
    assert dev is not None
    return replace(splits, dev=dev, test=splits.test and told("test", splits.test), said=said)
