"""A model with the task it was trained for: of a run, what its config.toml says; of any other directory, what its head is for."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.models.load import load
from saccade.models.model import Model
from saccade.tasks.run_settings import FILE, is_run, read_run_settings
from saccade.tasks.table import TASKS, task_class
from saccade.tasks.task import Task
from saccade.text.files import guarded

MAX_WINDOW = 2048  # tokens that are read at once, of a model that came from elsewhere and could read more


def open_run(
    where: str | Path, verb: str | None = None, changes: Mapping[str, Any] | None = None
) -> tuple[Task, Model]:
    """The model and its task; `verb` is the task that is asked for, and a model made for another is refused by name.

    `changes` are settings of the task that it shall have instead of those it was trained with. A run reads as many tokens at
    once as it was trained with (`task.length`); a model from elsewhere as many as it can, up to MAX_WINDOW.
    """
    if Path(where).is_dir() and is_run(where) and not (Path(where) / "model").is_dir():
        raise ModelError(f"{where}: this run has no model yet; the command that began it goes on with it.")
    raw = read_run_settings(where)
    model = load(where)
    name = raw.get("run", {}).get("task") or _need_task(model).name
    if verb is not None and name != verb:
        raise ModelError(f"{where} was made to {name}, not to {verb}; say saccade predict {where}, or train another.")
    kind = task_class(name)
    known = {item.name for item in fields(kind.Config)}
    given = {key: value for key, value in raw.get("task", {}).items() if key in known}
    given = kind().stored_settings(model) | given
    if "length" in known - given.keys() and (kind.running or (kind.cuts and kind.needs.head)):
        given["length"] = context_length(model)
    with guarded(str(Path(where) / FILE)) if raw else nullcontext():
        stored = kind.Config(**given)
        task = kind(stored, labels=model.labels)
    check_task(task, model, where)
    if changes:
        task = kind(replace(stored, **changes), labels=model.labels)
    task.named = raw.get("run", {}).get("columns", {})
    task.meet(model)
    return task, model


def context_length(model: Model) -> int:
    """The tokens that a model can read at once, up to MAX_WINDOW; a model without a limit of its own reads that many."""
    own = model.limit or getattr(model.config, "length", None)
    return min(own or MAX_WINDOW, MAX_WINDOW)


def check_task(task: Task, model: Model, where: str | Path) -> None:
    """Refuse a model that cannot do a task: that has another head, or generates something else."""
    if task.suits(model):
        return
    has = f"it {model.capabilities.describe()}"
    if task.needs.head is not None:
        has = f"its head is {model.kind or 'none'}, and {task.needs.head} is needed"
    raise ModelError(
        f"{Path(where) / FILE}: run.task is {task.name}, and the model beside it is a {model.family.name} that does not "
        f"fit it: {has}. Put the config.toml back that belongs to the model, or take it away to use the model alone."
    )


def task_for(model: Model) -> Task | None:
    """The task of a model that came without a run, by its head or by what it generates; a bare encoder has none."""
    return next((task for task in (kind.from_head(model) for kind in TASKS) if task is not None), None)


def _need_task(model: Model) -> Task:
    found = task_for(model)
    if found is None:
        raise ModelError(
            f"This {model.family.name} has no head that answers, so it has no task; "
            "saccade train TASK --model DIR gives it one, and saccade.encode and saccade.embed use it as it is."
        )
    return found
