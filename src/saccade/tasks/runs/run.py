"""`open_run("runs/reviews")`: a trained model with its task, the data it was trained on, and the scores of its training."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from saccade.data import Example, Role
from saccade.data.splits import Splits
from saccade.errors import DataError, ModelError, UsageError
from saccade.metrics import Score
from saccade.models.io.model_dir import read_json
from saccade.models.load import load
from saccade.models.model import Model
from saccade.tasks.base import Task
from saccade.tasks.registry import TASKS, task_class
from saccade.tasks.runs.read_data import read_splits
from saccade.tasks.runs.stored_config import CONFIG_FILE, is_run, read_run_settings
from saccade.tasks.unlabeled import drop_unlabeled
from saccade.text.loading.safe_files import as_model_error

MAX_WINDOW_TOKENS = 2048  # tokens that are read at once, of a model that came from elsewhere and could read more
RESULT_FILE = "result.json"


class Run:
    """What training left in a directory: settings, task, model, data and scores, each read once, when it is first used.

    A directory with a model alone, or a name on the Hugging Face hub, is a run without settings, data and scores. Its task is
    inferred from its head; where the head fits several tasks, such as a number for a text or for a pair of texts, `task` names
    the one that is meant. `model` may be replaced, for example by its fast form.
    """

    def __init__(self, path: str | Path, task: str | None = None):
        self.path = path
        self.requested_task = task

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The tables [run], [model], [task] and [train] of config.toml; empty where a model came without a run."""
        return read_run_settings(self.path)

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns that were named in training, by role."""
        return self.settings.get("run", {}).get("columns", {})

    @cached_property
    def model(self) -> Model:
        if Path(self.path).is_dir() and is_run(self.path) and not (Path(self.path) / "model").is_dir():
            raise ModelError(f"{self.path}: this run has no model yet; the command that began it goes on with it.")
        return load(self.path)

    @cached_property
    def task(self) -> Task:
        """What the model was trained for, with the settings of its training; a model without a head has none."""
        found = self.find_task()
        if found is None:
            raise ModelError(
                f"This {self.model.family.name} has no head that answers, so it has no task; "
                "saccade train TASK --model DIR gives it one, and saccade.encode and saccade.embed use it as it is."
            )
        return found

    def find_task(self) -> Task | None:
        """The same, or None for a model without a head.

        A run reads as many tokens at once as it was trained with (`task.max_tokens`); a model from elsewhere as many as it can, up
        to MAX_WINDOW.
        """
        settings, model = self.settings, self.model
        name = settings.get("run", {}).get("task")
        found = task_class(name)() if name else task_from_model(model, self.requested_task)
        if found is None:
            return None
        kind = type(found)
        known = {item.name for item in fields(kind.Config)}
        given = {key: value for key, value in settings.get("task", {}).items() if key in known}
        given = kind().settings_from_model(model) | given
        if "max_tokens" in known - given.keys() and (kind.is_text_stream or (kind.truncates and kind.needs.head)):
            given["max_tokens"] = context_length(model)
        with as_model_error(str(Path(self.path) / CONFIG_FILE)) if settings else nullcontext():
            task = kind(kind.Config(**given), labels=model.labels)
        check_task(task, model, self.path)
        return self._configure(task)

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Give the task settings other than those it was trained with, such as {"length": 1024}."""
        task = self.task
        self.task = self._configure(type(task)(replace(task.config, **changes), labels=self.model.labels))

    def _configure(self, task: Task) -> Task:
        task.column_names = self.columns
        task.configure_from_model(self.model)
        return task

    @cached_property
    def data(self) -> Splits | None:
        """The data it was trained on, split as then; None for what is no run. Data that have changed since are a DataError."""
        if not self.settings.get("run", {}).get("task"):
            return None
        task = self._stored_task()
        splits = self._read_splits(task)
        self._check_digest(splits)
        return drop_unlabeled(task, splits)

    @property
    def held_out(self) -> Sequence[Example]:
        """What it was not trained on: its test data, or else its dev data."""
        if self.data is None:
            raise UsageError(f"{self.path}: is no run, so it has no held-out data of its own; give some with --data.")
        return (self.data.test or self.data.dev).examples

    def read_data_with(self, roles: Sequence[Role], columns: Mapping[str, str]) -> Splits | None:
        """The same data with further columns, which training did not read."""
        if self.data is None:
            return None
        task = self._stored_task()
        return drop_unlabeled(task, self._read_splits(task, roles, columns))

    def _stored_task(self) -> Task:
        """The task as its settings and labels were stored, which is enough to read data: no model is loaded for it."""
        kind, stored = task_class(self.settings["run"]["task"]), self.settings["task"]
        known = {item.name for item in fields(kind.Config)}
        with as_model_error(str(Path(self.path) / CONFIG_FILE)):
            config = kind.Config(**{key: value for key, value in stored.items() if key in known})
        return kind(config, stored.get("labels", ()))

    def _read_splits(self, task: Task, roles: Sequence[Role] = (), columns: Mapping[str, str] | None = None) -> Splits:
        named = {**self.columns, **(columns or {})}
        paths = self.settings["run"]["data"]
        return read_splits(task, paths, named, extra_roles=roles, on_bad="skip", max_bad_fraction=1.0)

    def _check_digest(self, splits: Splits) -> None:
        """Refuse data that have changed since training: what is held out now may have been trained on then."""
        stored = self.settings["run"]
        if splits.digest != stored.get("digest"):
            raise DataError(
                f"the data of {self.path} have changed since it was trained, so that its held-out examples are not known "
                "any more",
                file=next(iter(stored["data"]), None),
                hint="restore the file as it was, name examples that the model was not trained on with --data, "
                "or train it again",
            )

    @property
    def has_ended(self) -> bool:
        """Whether training has finished, and not only stopped."""
        return (Path(self.path) / RESULT_FILE).is_file()

    @cached_property
    def result(self) -> Mapping[str, Any]:
        """result.json, how training ended: why, after how many steps, with which scores; empty before it has."""
        return read_json(Path(self.path) / RESULT_FILE) if self.has_ended else {}

    @property
    def scores(self) -> dict[str, list[Score]]:
        """The scores of its training, by split, the one that counts first."""
        return {split: [_parse_score(one) for one in found] for split, found in self.result.get("scores", {}).items()}


def open_run(path: str | Path, task: str | None = None) -> Run:
    """Open a run, or any directory with a model; `task` names the one that is needed, and a model made for another is refused."""
    run = Run(path, task)
    if task is not None and run.task.name != task_class(task).name:
        raise ModelError(
            f"{path} was made to {run.task.name}, not to {task}; say saccade predict {path}, or train another."
        )
    assert run.task is not None  # which loads the model: whatever is wrong with either is said now
    return run


def context_length(model: Model) -> int:
    """The tokens that a model can read at once, up to MAX_WINDOW; a model without a limit of its own reads that many."""
    own = model.max_positions or getattr(model.config, "max_positions", None)
    return min(own or MAX_WINDOW_TOKENS, MAX_WINDOW_TOKENS)


def check_task(task: Task, model: Model, where: str | Path) -> None:
    """Refuse a model that cannot do a task: that has another head, or generates something else."""
    if task.accepts_model(model):
        return
    has = f"it {model.capabilities.describe()}"
    if task.needs.head is not None:
        has = f"its head is {model.head_name or 'none'}, and {task.needs.head} is needed"
    raise ModelError(
        f"{Path(where) / CONFIG_FILE}: run.task is {task.name}, and the model beside it is a {model.family.name} that does not "
        f"fit it: {has}. Put the config.toml back that belongs to the model, or take it away to use the model alone."
    )


def task_from_model(model: Model, requested: str | None = None) -> Task | None:
    """The task of a model without a run, by its head or by what it generates; a bare encoder has none.

    Several tasks may have the same head; the requested one is preferred where the model fits it.
    """
    if requested is not None:
        task = task_class(requested)(labels=model.labels)
        if task.accepts_model(model):
            return task
    return next((task for task in (kind.from_head(model) for kind in TASKS) if task is not None), None)


def _parse_score(stored: Mapping[str, Any]) -> Score:
    """A score of result.json, where a number that is not finite is a word: float:nan."""
    words = {key: value for key, value in stored.items() if isinstance(value, str) and value.startswith("float:")}
    return Score(**{**stored, **{key: float(word.removeprefix("float:")) for key, word in words.items()}})
