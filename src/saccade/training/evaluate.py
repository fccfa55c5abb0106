"""Evaluation of a run on labeled data, or on the data that it held out: see `saccade.evaluate`."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from saccade.data import Example, Records, read_table
from saccade.data.example import as_list
from saccade.engine import FastModel
from saccade.errors import DataError
from saccade.models.model import Model
from saccade.tasks.base import Baseline, Task
from saccade.tasks.predict import check_answers, predict, score_answers
from saccade.tasks.runs.read_data import read_task_examples, resolve_columns
from saccade.tasks.runs.run import Run
from saccade.tasks.unlabeled import filter_labeled, format_unlabeled_note, make_gold_optional
from saccade.training.evaluation import Evaluation

MAX_LABELS_LISTED = 8
ENGINE_OFF = "off"  # the engine that computes the model as it was trained


def evaluate_run(
    run: Run,
    data: Any = (),
    columns: Mapping[str, str] | None = None,
    *,
    model: Model | None = None,
    log: Callable[[str], None] = lambda line: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Evaluate a run on labeled data: files, a table in memory or, without data, the held-out data of the run.

    `model` is the model of the run in another form, such as its fast one. `log` is called with what was recognized in the data
    and with what was left out.
    """
    task, model = run.task, model or run.model
    baseline = None
    if _is_empty(data):
        examples, baseline = run.held_out, _make_baseline(run)
    else:
        table = _read_labeled_data(task, data, columns)
        for line in table.notes:
            log(line)
        examples = table.examples
    examples, hidden = filter_labeled(task, examples)
    if hidden:
        log(format_unlabeled_note(hidden, hidden + len(examples)))
    if unknown_labels := check_labels(task, examples):
        log(unknown_labels)
    engine = model.precision_choice.precision if isinstance(model, FastModel) else ENGINE_OFF
    answers, evaluated = predict(task, model, examples, on_progress=on_progress)
    check_answers(answers)
    scores = [one.with_signature(engine=engine) for one in score_answers(task, model, answers, evaluated)]
    found = Evaluation(scores, len(examples), hidden, engine, task.scoring_settings(model), task, answers, evaluated)
    if baseline is None:
        return found
    given = [baseline.answer(example) for example in evaluated]
    return replace(found, baseline=task.score(given, evaluated), baseline_description=baseline.description)


def _is_empty(data: Any) -> bool:
    return data is None or (isinstance(data, str | list | tuple) and not data)


def _read_labeled_data(task: Task, data: Any, columns: Mapping[str, str] | None) -> Records:
    """Labeled examples of files or of a table in memory."""
    if isinstance(data, str | os.PathLike):
        data = [data]
    if isinstance(data, Sequence) and all(isinstance(path, str | os.PathLike) for path in data):
        paths = [os.fspath(path) for path in data]
        return read_task_examples(task, paths, make_gold_optional(task.roles(paths)), columns)
    notes: list[str] = []
    roles = make_gold_optional(task.roles(()))
    examples = list(read_table(data, roles, columns=resolve_columns(task, roles, columns), notes=notes))
    if not examples:
        raise DataError("there are no records", file=type(data).__name__, hint="give a table with at least one row")
    return Records(examples, notes)


def _make_baseline(run: Run) -> Baseline | None:
    """A rule that reads no input, from the training data of the run."""
    return None if run.data is None or run.task.is_text_stream else run.task.baseline(run.data.train.examples)


def check_labels(task: Task, examples: Sequence[Example]) -> str:
    """What is said of rows whose labels the model never learnt, which count as wrong; an error where all are of that kind."""
    names = [role.name for role in task.roles(()) if role.kind in ("label", "labels")]
    golds = [[label for name in names for label in as_list(example[name])] for example in examples]
    strange = [[label for label in gold if label not in task.labels] for gold in golds]
    rows = sum(map(bool, strange))
    if not rows or not task.labels:
        return ""
    found = Counter(label for gold in strange for label in gold)
    listed = _shorten_list([f"{label} ({count:,})" for label, count in found.most_common()])
    knows = f"it knows {_shorten_list(task.labels)}"
    if rows < len(examples) or strange != golds:
        return (
            f"{rows:,} of {len(examples):,} rows have labels that the model never learnt, and count as wrong: "
            f"{listed}; {knows}."
        )
    raise DataError(
        f"the model never learnt any of the labels of these {rows:,} rows: {listed}; {knows}",
        file=examples[0].file,
        line=examples[0].line,
        column=names[0],
        value=golds[0][0],
        hint=f"name the column that has its labels with --columns {names[0]}=COLUMN, or give data that have them; "
        f"saccade train {task.name} --data {examples[0].file or 'FILE'} makes a model of these",
    )


def _shorten_list(names: Sequence[str]) -> str:
    more = len(names) - MAX_LABELS_LISTED
    return ", ".join(names[:MAX_LABELS_LISTED]) + (f" and {more:,} more" if more > 0 else "")
