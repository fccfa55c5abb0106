"""Evaluation of a run on labeled data or on its own held-out data: see `saccade.evaluate`."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade.data import Example, Records, read_table
from saccade.data.example import as_list
from saccade.engine import FastModel
from saccade.errors import DataError, UsageError
from saccade.models.model import Model
from saccade.tasks.base import Baseline, Task
from saccade.tasks.predict import check_answers, predict, score_answers
from saccade.tasks.runs.read_data import read_task_examples, resolve_columns
from saccade.tasks.runs.run import Run
from saccade.tasks.unlabeled import filter_labeled, format_unlabeled_note, make_gold_optional
from saccade.training.baseline_check import fit_best_baseline, task_scores
from saccade.training.evaluation import Evaluation

MAX_LABELS_LISTED = 8
ENGINE_OFF = "off"  # the plain PyTorch model, without the optimized engine


@dataclass(frozen=True)
class EvaluationData:
    """Labeled examples to evaluate on, the number of unlabeled ones that were left out, and the baseline for them."""

    examples: Sequence[Example]
    unlabeled: int
    baseline: Baseline | None


def evaluate_run(
    run: Run,
    data: Any = (),
    columns: Mapping[str, str] | None = None,
    *,
    other: Run | None = None,
    prepare: Callable[[Run], Model] = lambda run: run.model,
    log: Callable[[str], None] = lambda line: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Evaluate a run on labeled data: files, a table in memory or, without data, the held-out data of the run.

    `other` is a run to compare with; it is evaluated on the same examples. `prepare` returns the model of a run on the device and
    engine that evaluate it. `log` is called with notes about recognized columns, unlabeled examples and unknown labels.
    """
    if other is not None and other.task.name != run.task.name:
        raise UsageError(
            f"{run.path} is a model for the task {run.task.name} and {other.path} one for {other.task.name}; "
            "only models for the same task can be compared."
        )
    found = read_evaluation_data(run, data, columns, log)
    evaluation = _evaluate_examples(run, prepare(run), found, log, on_progress)
    if other is None:
        return evaluation
    return replace(evaluation, other=_evaluate_examples(other, prepare(other), found, log, on_progress))


def read_evaluation_data(
    run: Run, data: Any, columns: Mapping[str, str] | None, log: Callable[[str], None]
) -> EvaluationData:
    """Read the labeled examples of files or of a table in memory or, without data, the held-out examples of the run."""
    task, baseline = run.task, None
    if _is_empty(data):
        examples, baseline = run.held_out, _make_baseline(run)
        if run.selection_note:
            log(run.selection_note)
    else:
        table = _read_labeled_data(task, data, columns)
        for line in table.notes:
            log(line)
        examples = table.examples
        try:
            baseline = _make_baseline(run)
        except (DataError, UsageError, OSError) as error:
            log(f"no baseline, because the training data cannot be read: {error}")
    examples, hidden = filter_labeled(task, examples)
    if hidden:
        log(format_unlabeled_note(hidden, hidden + len(examples)))
    return EvaluationData(examples, hidden, baseline)


def _evaluate_examples(
    run: Run,
    model: Model,
    data: EvaluationData,
    log: Callable[[str], None],
    on_progress: Callable[[int, int], None],
) -> Evaluation:
    task, examples, baseline = run.task, data.examples, data.baseline
    if unknown_labels := check_labels(task, examples):
        log(unknown_labels)
    engine = model.precision_choice.precision if isinstance(model, FastModel) else ENGINE_OFF
    answers, evaluated = predict(task, model, examples, on_progress=on_progress)
    check_answers(answers)
    scores = [score.with_signature(engine=engine) for score in score_answers(task, model, answers, evaluated)]
    return Evaluation(
        scores,
        len(examples),
        data.unlabeled,
        engine,
        task.scoring_settings(model),
        task,
        answers,
        evaluated,
        baseline=[] if baseline is None else task_scores(task, baseline, examples),
        baseline_description="" if baseline is None else baseline.description,
        name=str(run.path),
    )


def _is_empty(data: Any) -> bool:
    return data is None or (isinstance(data, str | list | tuple) and not data)


def _read_labeled_data(task: Task, data: Any, columns: Mapping[str, str] | None) -> Records:
    """Read labeled examples from files or from a table in memory."""
    if isinstance(data, str | os.PathLike):
        data = [data]
    if isinstance(data, Sequence) and all(isinstance(path, str | os.PathLike) for path in data):
        paths = [os.fspath(path) for path in data]
        return read_task_examples(task, paths, make_gold_optional(task.roles(paths)), columns)
    notes: list[str] = []
    roles = make_gold_optional(task.roles(()))
    resolved = resolve_columns(task, roles, columns)
    examples = list(read_table(data, roles, columns=resolved, notes=notes, keep_fields=True))
    if not examples:
        raise DataError("there are no records", file=type(data).__name__, hint="give a table with at least one row")
    return Records(examples, notes)


def _make_baseline(run: Run) -> Baseline | None:
    """The best baseline of the run, fitted again to its training data; of a short training, the one that needs no fitting."""
    if run.data is None:
        return None
    best = next(iter(run.result.get("baselines", {}).values()), {})
    return fit_best_baseline(run.task, run.data.train.examples, run.data.dev.examples, best.get("method", ""))


def check_labels(task: Task, examples: Sequence[Example]) -> str:
    """A warning about rows with labels that the model was not trained on, which count as wrong; an error if all rows are such."""
    names = [role.name for role in task.roles(()) if role.kind in ("label", "labels")]
    golds = [[label for name in names for label in as_list(example[name])] for example in examples]
    unknown = [[label for label in gold if label not in task.labels] for gold in golds]
    rows = sum(map(bool, unknown))
    if not rows or not task.labels:
        return ""
    counts = Counter(label for gold in unknown for label in gold)
    listed = _shorten_list([f"{label} ({count:,})" for label, count in counts.most_common()])
    known = f"its labels are {_shorten_list(task.labels)}"
    if rows < len(examples) or unknown != golds:
        return (
            f"{rows:,} of {len(examples):,} rows have labels that the model was not trained on, and count as wrong: "
            f"{listed}; {known}."
        )
    raise DataError(
        f"the model was not trained on any of the labels of these {rows:,} rows: {listed}; {known}",
        file=examples[0].file,
        line=examples[0].line,
        column=names[0],
        value=golds[0][0],
        hint=f"name the column with its labels with --columns {names[0]}=COLUMN, or give data that has its labels; "
        f"saccade train {task.name} --data {examples[0].file or 'FILE'} trains a model on these",
    )


def _shorten_list(names: Sequence[str]) -> str:
    more = len(names) - MAX_LABELS_LISTED
    return ", ".join(names[:MAX_LABELS_LISTED]) + (f" and {more:,} more" if more > 0 else "")
