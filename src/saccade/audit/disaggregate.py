"""Disaggregated evaluation: the scores of a model for each value of a column of the data, and the gap between groups."""

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

MIN_GROUP_EXAMPLES = 20  # smaller groups are left out of the gap
MAX_GROUPS = 40  # most values of the column
MISSING_VALUE = "not stated"  # the group of a record without a value in the column
MAX_WRONG_SHOWN = 3  # wrong predictions shown for each group
INTERPRETATION = "The score of each group is compared with the score on all examples."
LIMITATIONS = (
    "A column states what somebody recorded about a text, not who is harmed. Small groups have wide intervals, and with many "
    "groups one in twenty differs significantly by chance. A group can score lower because its texts are harder, not because "
    "the model treats it worse. Groups that the column does not name are not covered."
)


class DisaggregatedSuite(Suite):
    """Runs with --group-by for tasks without counterfactuals; the export gate does not require it."""

    name = "disaggregated"
    description = "disaggregated evaluation: scores for each value of a column of the data"
    requires = ("held_out",)

    def not_applicable(self, task: Task) -> str:
        return "it groups records by a column, and plain text has no columns" if task.is_text_stream else ""

    def run(self, subject: AuditSubject) -> SuiteResult:
        groups = _predict_by_group(subject)
        tables, gap, notes = _compare_groups(subject, groups)
        overall = subject.task.score(groups.answers, groups.examples)[0].value
        estimates = [
            Estimate(
                f"{score.name}, {subject.group_by} {group}", score.value, *score_interval(score), score.count, overall
            )
            for group, score in groups.score_groups(subject.task)
        ]
        examples = _wrong_predictions(subject, groups)
        return SuiteResult(self.name, (*estimates, *gap), INTERPRETATION, LIMITATIONS, tables, examples, notes)


@dataclass(frozen=True)
class GroupScores:
    """The predictions for some examples, and the group of each example."""

    answers: Sequence[Any]
    examples: Sequence[Example]
    groups: np.ndarray

    def score_groups(self, task: Task) -> list[tuple[str, Score]]:
        """The first score of the task for each group, the largest group first."""
        names, counts = np.unique(self.groups, return_counts=True)
        scores = []
        for name in names[np.argsort(-counts, kind="stable")]:
            rows = np.flatnonzero(self.groups == name).tolist()
            score = task.score([self.answers[i] for i in rows], [self.examples[i] for i in rows])[0]
            scores.append((str(name), score))
        return scores


def disaggregate(subject: AuditSubject) -> tuple[tuple[AuditTable, ...], tuple[Estimate, ...], tuple[str, ...]]:
    """A table of scores by group, the gap between the best and the worst group, and notes; all empty without `group_by`."""
    return _compare_groups(subject, _predict_by_group(subject)) if subject.group_by else ((), (), ())


def _predict_by_group(subject: AuditSubject) -> GroupScores:
    examples, _ = filter_labeled(subject.task, subject.held_out)
    answers, examples = predict(subject.task, subject.need_model(), examples, on_progress=subject.on_progress)
    groups = np.array([str(example.values.get("group", MISSING_VALUE)) for example in examples])
    count = len(np.unique(groups))
    if count > MAX_GROUPS:
        got = f"--group-by {subject.group_by}: {count:,} distinct values, at most {MAX_GROUPS} are supported"
        raise UsageError(f"{got}; choose a column with fewer groups.")
    return GroupScores(answers, examples, groups)


def _compare_groups(
    subject: AuditSubject, group_scores: GroupScores
) -> tuple[tuple[AuditTable, ...], tuple[Estimate, ...], tuple[str, ...]]:
    task, groups = subject.task, group_scores.groups
    rows = tuple(
        (group, score.name, f"{score.value:.3f}", "{:.3f} to {:.3f}".format(*score_interval(score)), f"{score.count:,}")
        for group, score in group_scores.score_groups(task)
    )
    columns = (subject.group_by, "score", "value", "95 % CI", "examples")
    table = AuditTable(f"Scores by {subject.group_by}", columns, rows)
    names, counts = np.unique(groups, return_counts=True)
    is_large = np.isin(groups, names[counts >= MIN_GROUP_EXAMPLES])
    if not task.has_right_answers or len(np.unique(groups[is_large])) < 2:
        reason = f"fewer than two groups have {MIN_GROUP_EXAMPLES} examples whose predictions are right or wrong"
        return (table,), (), (f"By {subject.group_by}: no gap between groups is given, because {reason}.",)
    predictions = zip(group_scores.answers, group_scores.examples, strict=True)
    is_correct = np.array([task.error_row(*prediction) is None for prediction in predictions], float)
    name = f"correct predictions, best minus worst {subject.group_by}"
    gap, p = estimate_gap(name, is_correct[is_large], groups[is_large])
    return (table,), (gap,), (f"By {subject.group_by}: permutation test of the gap between groups, p = {p:.3f}.",)


def _wrong_predictions(subject: AuditSubject, group_scores: GroupScores) -> AuditTable | None:
    """A few wrong predictions of each group; None for numbers, which are hardly ever exact."""
    if subject.task.predicts_number:
        return None
    rows = [
        (group, subject.task.error_row(answer, example))
        for group, answer, example in zip(group_scores.groups, group_scores.answers, group_scores.examples, strict=True)
    ]
    wrong = [
        (str(group), row.cells) for name in np.unique(group_scores.groups) for group, row in _first_wrong(rows, name)
    ]
    columns = list(dict.fromkeys(column for _, cells in wrong for column in cells))
    table = tuple((group, *(cells.get(column, "") for column in columns)) for group, cells in wrong)
    return AuditTable("Wrong predictions", (subject.group_by, *columns), table) if table else None


def _first_wrong(rows: Sequence[tuple[str, Any]], name: str) -> list[tuple[str, Any]]:
    return [(group, row) for group, row in rows if group == name and row is not None][:MAX_WRONG_SHOWN]
