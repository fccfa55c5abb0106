"""`saccade.evaluate("runs/reviews", "test.tsv")`: how good a model is on data with answers, with intervals."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.data import Example
from saccade.data.item import several
from saccade.engine import Fast, fast
from saccade.errors import DataError
from saccade.models.model import Model
from saccade.notebook import html_table
from saccade.tasks.answering import evaluate as score
from saccade.tasks.hidden import forgiving, left_out, scored
from saccade.tasks.metrics import Score
from saccade.tasks.metrics.score import CELLS_OF_A_SCORE
from saccade.tasks.opening import open_run
from saccade.tasks.reading import read_for
from saccade.tasks.task import Task
from saccade.training.job import held_out

MAX_LABELS_LISTED = 8
PLAIN = "plain"  # the engine that computes the model as it was trained


@dataclass(frozen=True)
class EvalResult:
    """Scores on some examples, the one that counts first, and what they depend on."""

    scores: list[Score]
    examples: int
    hidden: int  # examples that were left out, as their labels are hidden
    engine: str  # plain, or the precision of the fast form
    settings: dict[str, int]  # of a language model: window and context, in tokens

    def __str__(self) -> str:
        return "\n".join(map(str, self.scores))

    def _repr_html_(self) -> str:
        return html_table(CELLS_OF_A_SCORE, [score.cells() for score in self.scores])

    def as_dict(self) -> dict[str, Any]:
        counts = {"examples": self.examples, "hidden": self.hidden, "engine": self.engine}
        return {**counts, **self.settings, "scores": [vars(score) for score in self.scores]}


def evaluate(
    run: str | Path,
    data: str | Sequence[str] = (),
    *,
    columns: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    engine: str = PLAIN,
    log: Callable[[str], None] = lambda line: None,
) -> EvalResult:
    """Evaluate a run, or any directory with a model, on files with questions and answers.

    Without `data` it is the held-out part of what the run was trained on. Columns that training named need not be named again.
    `settings` are settings of the task that scoring shall have other than training had, such as {"length": 1024}; `engine` is
    "plain", the model as it was trained, or the precision of its fast form ("auto", "int8", "float16", "float32").
    """
    task, model = open_run(run, changes=settings)
    model.eval()
    ready = model if engine == PLAIN else fast(model, engine)
    return evaluate_model(task, ready, (data,) if isinstance(data, str) else data, columns, run=run, log=log)


def evaluate_model(
    task: Task,
    model: Model,
    data: Sequence[str],
    columns: Mapping[str, str] | None = None,
    *,
    run: str | Path,
    log: Callable[[str], None] = lambda line: None,
) -> EvalResult:
    """The same for a model that is open already; `log` hears what was recognised in the files, and what was left out."""
    if data:
        table = read_for(task, data, forgiving(task.roles(data)), columns)
        for line in table.said:
            log(line)
        examples = table.examples
    else:
        examples = held_out(run)
    examples, hidden = scored(task, examples)
    if hidden:
        log(left_out(hidden, hidden + len(examples)))
    if strange := unlearnt(task, examples):
        log(strange)
    engine = model.choice.precision if isinstance(model, Fast) else PLAIN
    scores = [one.signed(engine=engine) for one in score(task, model, examples)]
    return EvalResult(scores, len(examples), hidden, engine, task.scoring_settings(model))


def unlearnt(task: Task, examples: Sequence[Example]) -> str:
    """What is said of rows whose labels the model never learnt, which count as wrong; an error where all are of that kind."""
    names = [role.name for role in task.roles(()) if role.kind in ("label", "labels")]
    golds = [[label for name in names for label in several(example[name])] for example in examples]
    strange = [[label for label in gold if label not in task.labels] for gold in golds]
    rows = sum(map(bool, strange))
    if not rows or not task.labels:
        return ""
    found = Counter(label for gold in strange for label in gold)
    listed = _some([f"{label} ({count:,})" for label, count in found.most_common()])
    knows = f"it knows {_some(task.labels)}"
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
        cure=f"name the column that has its labels with --columns {names[0]}=COLUMN, or give data that have them; "
        f"saccade train {task.name} --data {examples[0].file or 'FILE'} makes a model of these",
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - MAX_LABELS_LISTED
    return ", ".join(names[:MAX_LABELS_LISTED]) + (f" and {more:,} more" if more > 0 else "")
