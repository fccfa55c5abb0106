"""`saccade.train("label", data="reviews.csv")`: train a model on a file or a table, and return the run."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from saccade.api.cross_validation import CrossValidation, make_folds
from saccade.api.run import Run
from saccade.data.tables import is_table, iter_rows
from saccade.errors import DataError, UsageError
from saccade.keywords import check_keywords_with
from saccade.models.published_names import resolve_model_name
from saccade.notebook import get_notebook_display
from saccade.setting_synonyms import SYNONYMS, as_keyword
from saccade.tasks.registry import task_class
from saccade.tasks.runs.setting_tables import find_setting_flags
from saccade.training.config import Config
from saccade.training.notebook import NotebookProgress
from saccade.training.prepare import Job, prepare
from saccade.training.run import Event, RunResult, run_training

TABLE_FILE = "data.jsonl"  # training data that was passed as a table, saved in the directory of the run


def describe_train_argument(name: str) -> str:
    """The end of an error about an unknown keyword of `train`: a setting of that name, or the name in another tool.

    >>> describe_train_argument("lr"), describe_train_argument("hidden_size"), describe_train_argument("datas")
    ('; use train={"lr": ...}.', '; use architecture={"width": ...}.', '')
    """
    flag = name.replace("_", "-")
    settings = find_setting_flags() | {
        item.name.replace("_", "-"): f"--train.{item.name.replace('_', '-')}" for item in fields(Config)
    }
    if flag in settings:
        return f"; use {as_keyword(settings[flag])}."
    equivalent = SYNONYMS.get(flag, "")
    return (
        f"; use {as_keyword(equivalent)}." if equivalent.startswith("--") else f". {equivalent}" if equivalent else ""
    )


@check_keywords_with(describe_train_argument)
def train(
    name: str,
    /,
    data: Any = (),
    *,
    out: str | Path | None = None,
    model: str | Path = "",
    family: str = "",
    columns: Mapping[str, str] | None = None,
    minutes: float | None = None,
    architecture: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    on_bad_record: str = "error",
    on_event: Callable[[Event], None] | None = None,
) -> Run:
    """Train a model and return its run; the same call again resumes, or returns at once if training has finished.

        run = saccade.train("label", data="reviews.csv", minutes=5)
        run = saccade.train("label", data=frame, columns={"text": "review", "label": "stars"}, train={"lr": 2e-4})

    Args:
        name: The task, such as "label", "tag", "translate" or "language"; `saccade train --help` lists them.
        data: A file or directory, a list of them, a pandas or polars DataFrame, an Arrow table or a list of dictionaries.
            Default: the built-in sample of the task.
        out: Directory of the run; default: runs/NAME.
        model: A pretrained model to fine-tune: a run, a model directory, a hub name or a short name such as "minilm". Default:
            a new model.
        family: Family (architecture) of a new model, such as "gpt2" or "rnn". Default: one that suits the task.
        columns: Columns of the data by role, such as {"text": "review", "label": "stars"}; default: recognized by name.
        minutes: Time limit of training in minutes; the learning-rate schedule is fitted to it. Default: no limit.
        architecture: Settings of the model by name, such as {"width": 128}; on the command line, --model.width.
        task: Settings of the task by name, such as {"max_tokens": 512}; on the command line, --task.max-tokens.
        train: Settings of training by name, such as {"lr": 1e-3, "seed": 1}; on the command line, --train.lr.
        on_bad_record: "error" stops at the first bad record, "skip" leaves bad records out.
        on_event: Function that is called with every step, evaluation, message and checkpoint. Default: progress is shown in a
            notebook, and nothing is printed elsewhere.
    """
    directory = Path(out) if out is not None else Path("runs") / task_class(name).name
    job = _make_job(
        Job(name, (), family, columns or {}, on_bad_record, architecture or {}, task or {}, train or {}),
        data,
        directory,
        model,
        minutes,
    )
    _train_job(job, directory, on_event)
    return Run(directory)


def cross_validate(
    name: str,
    /,
    data: Any = (),
    *,
    folds: int = 5,
    group_by: str = "",
    out: str | Path | None = None,
    model: str | Path = "",
    family: str = "",
    columns: Mapping[str, str] | None = None,
    minutes: float | None = None,
    architecture: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    on_bad_record: str = "error",
    on_event: Callable[[Event], None] | None = None,
) -> CrossValidation:
    """k-fold cross-validation: train a run for each fold on the others, and return the scores on all folds.

        scores = saccade.cross_validate("label", data="reviews.csv", folds=5, group_by="author")
        scores.mean("accuracy"), scores.std("accuracy")

    The folds are stratified by label; equal inputs, or equal values of `group_by`, are in one fold. A tenth of the other folds is
    the dev set of a run, which chooses its checkpoint. The same call again resumes.

    Args:
        name: The task, as in `saccade.train`.
        data: The data as in `saccade.train`; without a test file.
        folds: Number of folds, at least 2.
        group_by: Column whose equal values, such as a person, stay in one fold. Default: equal inputs stay together.
        out: Directory of the runs, fold-1, fold-2 and so on, and of their summary, cross_validation.json; default: runs/NAME.
        model: A pretrained model to fine-tune, as in `saccade.train`.
        family: Family (architecture) of a new model.
        columns: Columns of the data by role.
        minutes: Time limit of the training of each fold in minutes. Default: no limit.
        architecture: Settings of the model by name.
        task: Settings of the task by name.
        train: Settings of training by name.
        on_bad_record: "error" stops at the first bad record, "skip" leaves bad records out.
        on_event: Function that is called with every event of every fold, as in `saccade.train`.
    """
    directory = Path(out) if out is not None else Path("runs") / task_class(name).name
    settings = dict(train or {}) | ({"group_by": group_by} if group_by else {})
    job = _make_job(
        Job(name, (), family, columns or {}, on_bad_record, architecture or {}, task or {}, settings),
        data,
        directory,
        model,
        minutes,
    )
    runs = make_folds(job, directory, folds)
    results: list[RunResult] = []
    for fold in runs:
        results.append(_train_job(fold.job, fold.directory, on_event))
        if results[-1].signal is not None:
            raise KeyboardInterrupt(f"fold {fold.number} was interrupted; the same call resumes")
    summary = CrossValidation.from_results(runs, results)
    summary.write(directory)
    return summary


def _make_job(job: Job, data: Any, directory: Path, model: str | Path, minutes: float | None) -> Job:
    """A job with the data as files, the name of the model resolved, and the time limit among its settings."""
    if model and job.family:
        raise UsageError(
            f"model={fspath(model)!r} has a family already; family={job.family!r} is for a new model. Pass one of them."
        )
    limit = {} if minutes is None else {"max_minutes": minutes, "fit_schedule": True}
    return replace(
        job,
        data=_resolve_data(data, directory),
        model=resolve_model_name(fspath(model)) if model else "",
        train_fields=limit | dict(job.train_fields),
    )


def _train_job(job: Job, directory: Path, on_event: Callable[[Event], None] | None) -> RunResult:
    """Train in a directory; without `on_event`, progress is shown in a notebook."""
    if on_event is None:
        display = get_notebook_display()
        on_event = (lambda event: None) if display is None else NotebookProgress(display)
    result: Event | None = None
    with closing(
        run_training(prepare(job), directory)
    ) as events:  # an error in `on_event` releases the directory at once
        for event in events:
            on_event(event)
            result = event
    assert isinstance(result, RunResult), "the last event of a run is its result"
    return result


def _resolve_data(data: Any, directory: Path) -> tuple[str, ...]:
    """The data files; a table is saved as a file in the directory of the run, where a later evaluation finds it."""
    if isinstance(data, str | PathLike):
        return (fspath(cast(str | PathLike[str], data)),)
    if isinstance(data, Sequence) and all(isinstance(path, str | PathLike) for path in cast(Sequence[Any], data)):
        return tuple(fspath(path) for path in cast(Sequence[str | PathLike[str]], data))
    if not is_table(data):
        kind = type(cast(Any, data)).__name__
        raise UsageError(
            f"train takes files, a DataFrame, an Arrow table or a list of dictionaries as data; got {kind}."
        )
    text = "".join(json.dumps(_to_json(row), ensure_ascii=False) + "\n" for row in iter_rows(data))
    path = directory / TABLE_FILE
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        raise DataError(
            "the run in this directory was trained on another table",
            file=path,
            hint="pass another directory with out=..., or delete this one",
        )
    if not path.is_file():
        directory.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return (str(path),)


def _to_json(value: Any) -> Any:
    """Convert a value of a table to JSON: missing values become null, NumPy scalars numbers, dates strings."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(part) for key, part in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_to_json(part) for part in cast(Sequence[Any], value)]
    if hasattr(value, "tolist"):  # a NumPy array or scalar
        return _to_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
