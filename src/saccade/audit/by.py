"""Scores told apart by a column of the data: the same model, good for some and less good for others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.audit.stats import bounds, gap
from saccade.audit.suite import Figure, Finding, Grid, Subject, Suite
from saccade.data import Example
from saccade.errors import UsageError
from saccade.tasks.answering import answers
from saccade.tasks.hidden import scored
from saccade.tasks.metrics import Score
from saccade.tasks.task import Task

LEAST = 20  # examples of a value below which its score says little
VALUES = 40  # of a column that are told apart
BLANK = "not stated"  # of a record that has nothing in the column
SHOWN = 3  # wrong answers of each value
BASELINE = "The score for each value of the column is read against the score for all examples."
LIMITS = (
    "A column says of a text what somebody wrote there, not who is harmed. Values with few examples have wide intervals, and "
    "with many values one in twenty lies apart by chance. A value can score lower because its texts are harder, not because "
    "the model treats them worse; and people whom no column names are not seen."
)


class By(Suite):
    """Run when a column is asked for, for tasks that have no other suite to tell it; the gate does not ask for it."""

    name = "by"
    said = "scores for each value of a column of the data"
    reads = ("held",)

    def unfit(self, task: Task) -> str:
        return "it tells records apart by a column, and a running text has none" if task.running else ""

    def run(self, subject: Subject) -> Finding:
        told = _told(subject)
        (grid,), figures, notes = _compared(subject, told)
        whole = subject.task.score(told.found, told.examples)[0]
        each = [
            Figure(f"{one.name}, {subject.by} {value}", one.value, *bounds(one), one.count, whole.value)
            for value, one in told.scores(subject.task)
        ]
        return Finding(self.name, (*each, *figures), BASELINE, LIMITS, (grid,), _wrong(subject, told), notes)


@dataclass(frozen=True)
class Told:
    """The answers to examples, and the value of each in the column."""

    found: Sequence[Any]
    examples: Sequence[Example]
    values: np.ndarray

    def scores(self, task: Task) -> list[tuple[str, Score]]:
        """The first score for each value, the most frequent first."""
        names, counts = np.unique(self.values, return_counts=True)
        out = []
        for name in names[np.argsort(-counts, kind="stable")]:
            some = np.flatnonzero(self.values == name).tolist()
            out.append((str(name), task.score([self.found[i] for i in some], [self.examples[i] for i in some])[0]))
        return out


def disaggregated(subject: Subject) -> tuple[tuple[Grid, ...], tuple[Figure, ...], tuple[str, ...]]:
    """A table of scores, the gap between the best and the worst group, and what there is to say of both."""
    return _compared(subject, _told(subject)) if subject.by else ((), (), ())


def _told(subject: Subject) -> Told:
    examples, _ = scored(subject.task, subject.held)
    given = answers(subject.task, subject.need_model(), examples, told=lambda done, of: subject.told(done, of))
    found, examples = given
    values = np.array([str(example.values.get("by", BLANK)) for example in examples])
    count = len(np.unique(values))
    if count > VALUES:
        raise UsageError(
            f"--by {subject.by} has {count:,} values, and at most {VALUES} are told apart; choose a column of groups."
        )
    return Told(found, examples, values)


def _compared(subject: Subject, told: Told) -> tuple[tuple[Grid, ...], tuple[Figure, ...], tuple[str, ...]]:
    task, values = subject.task, told.values
    rows = [
        (value, one.name, f"{one.value:.3f}", "{:.3f} to {:.3f}".format(*bounds(one)), f"{one.count:,}")
        for value, one in told.scores(task)
    ]
    grid = Grid(f"Scores by {subject.by}", (subject.by, "score", "value", "95 % interval", "examples"), tuple(rows))
    names, counts = np.unique(values, return_counts=True)
    enough = np.isin(values, names[counts >= LEAST])
    if not task.has_right_answers or len(np.unique(values[enough])) < 2:
        note = f"by {subject.by}: fewer than two of its values have {LEAST} examples that are right or wrong; no gap is given."
        return (grid,), (), (note,)
    right = np.array([task.wrong(*pair) is None for pair in zip(told.found, told.examples, strict=True)], float)
    figure, p = gap(f"right answers, best minus worst {subject.by}", right[enough], values[enough])
    note = f"by {subject.by}: shuffled groups lie as far apart in {p:.1%} of the draws."
    return (grid,), (figure,), (note,)


def _wrong(subject: Subject, told: Told) -> Grid | None:
    """A few wrong answers of each value."""
    found = [
        (value, subject.task.wrong(answer, example))
        for value, answer, example in zip(told.values, told.found, told.examples, strict=True)
    ]
    kept = [(str(v), one.row) for name in np.unique(told.values) for v, one in _first(found, name)]
    heads = list(dict.fromkeys(head for _, row in kept for head in row))
    rows = tuple((value, *(row.get(head, "") for head in heads)) for value, row in kept)
    return Grid("Answers that are wrong", (subject.by, *heads), rows) if rows else None


def _first(found: Sequence[tuple[str, Any]], name: str) -> list[tuple[str, Any]]:
    return [(value, one) for value, one in found if value == name and one is not None][:SHOWN]
