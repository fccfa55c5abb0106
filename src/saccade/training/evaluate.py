"""`saccade.evaluate("runs/reviews", "test.tsv")`: how good a model is on data with answers, with intervals."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.data import Example
from saccade.data.example import as_list
from saccade.engine import FastModel, fast
from saccade.errors import DataError
from saccade.metrics import Score
from saccade.metrics.score import SCORE_COLUMNS
from saccade.notebook import html_table
from saccade.tasks.base import Task
from saccade.tasks.predict import evaluate as score
from saccade.tasks.runs.read_data import read_task_examples
from saccade.tasks.runs.run import Run, open_run
from saccade.tasks.unlabeled import filter_labeled, format_unlabeled_note, make_gold_optional

MAX_LABELS_LISTED = 8
ENGINE_OFF = "off"  # the engine that computes the model as it was trained


@dataclass(frozen=True)
class EvalResult:
    """Scores on some examples, the one that counts first, and what they depend on."""

    scores: list[Score]
    examples: int
    unlabeled: int  # examples that were left out, as their labels are hidden
    engine: str  # off, or the precision of the fast form
    settings: dict[str, int]  # of a language model: window and context, in tokens

    def __str__(self) -> str:
        return "\n".join(map(str, self.scores))

    def _repr_html_(self) -> str:
        return html_table(SCORE_COLUMNS, [score.cells() for score in self.scores])

    def as_dict(self) -> dict[str, Any]:
        counts = {"examples": self.examples, "unlabeled": self.unlabeled, "engine": self.engine}
        return {**counts, **self.settings, "scores": [vars(score) for score in self.scores]}


def evaluate(
    run: str | Path,
    data: str | Sequence[str] = (),
    *,
    columns: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    engine: str = ENGINE_OFF,
    log: Callable[[str], None] = lambda line: None,
) -> EvalResult:
    """Evaluate a run, or any directory with a model, on files with questions and answers.

    Without `data` it is the held-out part of what the run was trained on. Columns that training named need not be named again.
    `settings` are settings of the task that scoring shall have other than training had, such as {"length": 1024}; `engine` is
    "off", the model as it was trained, or the precision of its fast form ("auto", "int8", "float16", "float32").
    """
    opened = open_run(run)
    if settings:
        opened.change_settings(settings)
    opened.model.eval()
    if engine != ENGINE_OFF:
        opened.model = fast(opened.model, engine)
    return evaluate_run(opened, (data,) if isinstance(data, str) else data, columns, log=log)


def evaluate_run(
    run: Run,
    data: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    *,
    log: Callable[[str], None] = lambda line: None,
) -> EvalResult:
    """The same with the task and the model as they are; `log` hears what was recognised in the files, and what was left out."""
    task, model = run.task, run.model
    if data:
        table = read_task_examples(task, data, make_gold_optional(task.roles(data)), columns)
        for line in table.notes:
            log(line)
        examples = table.examples
    else:
        examples = run.held_out
    examples, hidden = filter_labeled(task, examples)
    if hidden:
        log(format_unlabeled_note(hidden, hidden + len(examples)))
    if strange := check_labels(task, examples):
        log(strange)
    engine = model.precision_choice.precision if isinstance(model, FastModel) else ENGINE_OFF
    scores = [one.with_signature(engine=engine) for one in score(task, model, examples)]
    return EvalResult(scores, len(examples), hidden, engine, task.scoring_settings(model))


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
