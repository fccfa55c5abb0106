"""Scores told apart by a column of the data: the same model, good for some and less good for others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.audit.stats import estimate_gap, score_interval
from saccade.audit.suite import AuditSubject, AuditTable, Estimate, Suite, SuiteResult
from saccade.data import Example
from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.tasks.base import Task
from saccade.tasks.predict import predict
from saccade.tasks.unlabeled import filter_labeled

MIN_GROUP_EXAMPLES = 20  # examples of a value below which its score says little
MAX_GROUPS = 40  # of a column that are told apart
MISSING_VALUE = "not stated"  # of a record that has nothing in the column
MAX_WRONG_SHOWN = 3  # wrong answers of each value
INTERPRETATION = "The score for each value of the column is read against the score for all examples."
LIMITATIONS = (
    "A column says of a text what somebody wrote there, not who is harmed. Values with few examples have wide intervals, and "
    "with many values one in twenty lies apart by chance. A value can score lower because its texts are harder, not because "
    "the model treats them worse; and people whom no column names are not seen."
)


class DisaggregatedSuite(Suite):
    """Run when a column is asked for, for tasks that have no other suite to tell it; the gate does not ask for it."""

    name = "disaggregated"
    description = "disaggregated evaluation: scores for each value of a column of the data"
    requires = ("held_out",)

    def not_applicable(self, task: Task) -> str:
        return "it tells records apart by a column, and a running text has none" if task.is_text_stream else ""

    def run(self, subject: AuditSubject) -> SuiteResult:
        told = _answer_by_group(subject)
        (grid,), figures, notes = _compare_groups(subject, told)
        whole = subject.task.score(told.answers, told.examples)[0]
        each = [
            Estimate(f"{one.name}, {subject.group_by} {value}", one.value, *score_interval(one), one.count, whole.value)
            for value, one in told.score_groups(subject.task)
        ]
        return SuiteResult(
            self.name, (*each, *figures), INTERPRETATION, LIMITATIONS, (grid,), _wrong_answers(subject, told), notes
        )


@dataclass(frozen=True)
class GroupScores:
    """The answers to examples, and the value of each in the column."""

    answers: Sequence[Any]
    examples: Sequence[Example]
    groups: np.ndarray

    def score_groups(self, task: Task) -> list[tuple[str, Score]]:
        """The first score for each value, the most frequent first."""
        names, counts = np.unique(self.groups, return_counts=True)
        out = []
        for name in names[np.argsort(-counts, kind="stable")]:
            some = np.flatnonzero(self.groups == name).tolist()
            out.append((str(name), task.score([self.answers[i] for i in some], [self.examples[i] for i in some])[0]))
        return out


def disaggregate(subject: AuditSubject) -> tuple[tuple[AuditTable, ...], tuple[Estimate, ...], tuple[str, ...]]:
    """A table of scores, the gap between the best and the worst group, and what there is to say of both."""
    return _compare_groups(subject, _answer_by_group(subject)) if subject.group_by else ((), (), ())


def _answer_by_group(subject: AuditSubject) -> GroupScores:
    examples, _ = filter_labeled(subject.task, subject.held_out)
    given = predict(
        subject.task, subject.need_model(), examples, on_progress=lambda done, of: subject.on_progress(done, of)
    )
    found, examples = given
    values = np.array([str(example.values.get("group", MISSING_VALUE)) for example in examples])
    count = len(np.unique(values))
    if count > MAX_GROUPS:
        raise UsageError(
            f"--group-by {subject.group_by} has {count:,} values, and at most {MAX_GROUPS} are told apart; choose a column of groups."
        )
    return GroupScores(found, examples, values)


def _compare_groups(
    subject: AuditSubject, group_scores: GroupScores
) -> tuple[tuple[AuditTable, ...], tuple[Estimate, ...], tuple[str, ...]]:
    task, values = subject.task, group_scores.groups
    rows = [
        (value, one.name, f"{one.value:.3f}", "{:.3f} to {:.3f}".format(*score_interval(one)), f"{one.count:,}")
        for value, one in group_scores.score_groups(task)
    ]
    grid = AuditTable(
        f"Scores by {subject.group_by}", (subject.group_by, "score", "value", "95 % interval", "examples"), tuple(rows)
    )
    names, counts = np.unique(values, return_counts=True)
    enough = np.isin(values, names[counts >= MIN_GROUP_EXAMPLES])
    if not task.has_right_answers or len(np.unique(values[enough])) < 2:
        note = f"by {subject.group_by}: fewer than two of its values have {MIN_GROUP_EXAMPLES} examples that are right or wrong; no gap is given."
        return (grid,), (), (note,)
    right = np.array(
        [task.error_row(*pair) is None for pair in zip(group_scores.answers, group_scores.examples, strict=True)], float
    )
    figure, p = estimate_gap(f"right answers, best minus worst {subject.group_by}", right[enough], values[enough])
    note = f"by {subject.group_by}: shuffled groups lie as far apart in {p:.1%} of the draws."
    return (grid,), (figure,), (note,)


def _wrong_answers(subject: AuditSubject, group_scores: GroupScores) -> AuditTable | None:
    """A few wrong answers of each value."""
    found = [
        (value, subject.task.error_row(answer, example))
        for value, answer, example in zip(group_scores.groups, group_scores.answers, group_scores.examples, strict=True)
    ]
    kept = [(str(v), one.cells) for name in np.unique(group_scores.groups) for v, one in _first_wrong(found, name)]
    heads = list(dict.fromkeys(head for _, row in kept for head in row))
    rows = tuple((value, *(row.get(head, "") for head in heads)) for value, row in kept)
    return AuditTable("Answers that are wrong", (subject.group_by, *heads), rows) if rows else None


def _first_wrong(found: Sequence[tuple[str, Any]], name: str) -> list[tuple[str, Any]]:
    return [(value, one) for value, one in found if value == name and one is not None][:MAX_WRONG_SHOWN]
