"""`open_run("runs/reviews")`: a trained model with its task, the data it was trained on, and the scores of its training."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from saccade.data import Example, Role
from saccade.data.held_out import HeldOut
from saccade.data.splits import Splits
from saccade.errors import DataError, ModelError, UsageError
from saccade.metrics import Score
from saccade.models.io.model_dir import read_json
from saccade.models.load import load
from saccade.models.model import Model
from saccade.plugins import is_from_plugin
from saccade.tasks.base import Task
from saccade.tasks.registry import TASKS, task_class
from saccade.tasks.runs.read_data import read_splits
from saccade.tasks.runs.stored_config import CONFIG_FILE, is_run, read_run_settings
from saccade.tasks.unlabeled import drop_unlabeled
from saccade.text.loading.safe_files import as_model_error

MAX_WINDOW_TOKENS = 2048  # default window for a model loaded without a run
RESULT_FILE = "result.json"


class Run:
    """A trained run in a directory: settings, task, model, data and scores, each loaded lazily on first use.

    A directory with only a model, or a name on the Hugging Face hub, is a run without settings, data and scores. Its task is
    inferred from its head; if the head fits several tasks, such as a number for a text or for a pair of texts, `task` names the
    one to use. `model` may be replaced, for example by its optimized form.
    """

    def __init__(self, path: str | Path, task: str | None = None):
        self.path = path
        self.requested_task = task

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The tables [run], [model], [task] and [train] of config.toml; empty for a model without a run."""
        return read_run_settings(self.path)

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns named in training: role -> column."""
        return self.settings.get("run", {}).get("columns", {})

    @cached_property
    def model(self) -> Model:
        if Path(self.path).is_dir() and is_run(self.path) and not (Path(self.path) / "model").is_dir():
            cure = "because training has not finished; run the same `saccade train` command to resume"
            raise ModelError(f"{self.path}: this run has no model yet {cure}.")
        return load(self.path)

    @cached_property
    def task(self) -> Task:
        """The task of the model with the settings of its training; a model without a head raises an error."""
        inferred = self.find_task()
        if inferred is None:
            raise ModelError(
                f"This {self.model.family.name} has no head for a task. Fine-tune it with saccade train TASK --model DIR, "
                "or use it without a head in saccade.encode and saccade.embed."
            )
        return inferred

    def find_task(self) -> Task | None:
        """The task of the model, or None for a model without a head.

        The maximum number of tokens is that of training (`task.max_tokens`); for a model without a run it is the model's maximum,
        up to MAX_WINDOW_TOKENS.
        """
        settings, model = self.settings, self.model
        name = settings.get("run", {}).get("task")
        inferred = task_class(name)() if name else task_from_model(model, self.requested_task)
        if inferred is None:
            return None
        task_type = type(inferred)
        known = {item.name for item in fields(task_type.Config)}
        values = {key: value for key, value in settings.get("task", {}).items() if key in known}
        values = task_type().settings_from_model(model) | values
        if "max_tokens" in known - values.keys() and (
            task_type.is_text_stream or (task_type.truncates and task_type.needs.head)
        ):
            values["max_tokens"] = context_length(model)
        with as_model_error(str(Path(self.path) / CONFIG_FILE)) if settings else nullcontext():
            task = task_type(task_type.Config(**values), labels=model.labels)
        check_task(task, model, self.path)
        return self._configure(task)

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Override settings of the task, such as {"max_tokens": 1024}."""
        task = self.task
        self.task = self._configure(type(task)(replace(task.config, **changes), labels=self.model.labels))

    def _configure(self, task: Task) -> Task:
        task.column_names = self.columns
        task.configure_from_model(self.model)
        return task

    @cached_property
    def data(self) -> Splits | None:
        """The training data in the same splits; None without a run. Data that have changed since training raise a DataError."""
        if not self.settings.get("run", {}).get("task"):
            return None
        task = self._stored_task()
        splits = self._read_splits(task)
        self._check_digest(splits)
        return drop_unlabeled(task, splits)

    @property
    def held_out(self) -> Sequence[Example]:
        """The held-out data: the test split, or else the dev split."""
        if self.data is None:
            raise UsageError(f"{self.path} is not a run, so it has no held-out data; give some with --data.")
        return (self.data.test or self.data.dev).examples

    def read_data_with(self, roles: Sequence[Role], columns: Mapping[str, str]) -> Splits | None:
        """The splits with additional roles, which training did not read."""
        if self.data is None:
            return None
        task = self._stored_task()
        return drop_unlabeled(task, self._read_splits(task, roles, columns))

    def _stored_task(self) -> Task:
        """The task from the stored settings and labels, which suffices to read data without loading the model."""
        task_type, stored = task_class(self.settings["run"]["task"]), self.settings["task"]
        known = {item.name for item in fields(task_type.Config)}
        with as_model_error(str(Path(self.path) / CONFIG_FILE)):
            config = task_type.Config(**{key: value for key, value in stored.items() if key in known})
        return task_type(config, stored.get("labels", ()))

    def _read_splits(self, task: Task, roles: Sequence[Role] = (), columns: Mapping[str, str] | None = None) -> Splits:
        all_columns = {**self.columns, **(columns or {})}
        paths = self.settings["run"]["data"]
        with as_model_error(str(Path(self.path) / CONFIG_FILE)):
            held_out = HeldOut.from_settings(self.settings["train"])
        return read_splits(
            task, paths, all_columns, extra_roles=roles, on_bad="skip", max_bad_fraction=1.0, held_out=held_out
        )

    def _check_digest(self, splits: Splits) -> None:
        """Raise an error if the data have changed since training, as held-out examples may have been training examples."""
        stored = self.settings["run"]
        if splits.digest != stored.get("digest"):
            raise DataError(
                f"the data of {self.path} have changed since training, so its held-out examples are unknown",
                file=next(iter(stored["data"]), None),
                hint="restore the file, pass examples that the model was not trained on with --data, or train it again",
            )

    @property
    def has_ended(self) -> bool:
        """Whether training has finished, not only been interrupted."""
        return (Path(self.path) / RESULT_FILE).is_file()

    @cached_property
    def result(self) -> Mapping[str, Any]:
        """The content of result.json: why training ended, the number of steps, and the scores; empty before that."""
        return read_json(Path(self.path) / RESULT_FILE) if self.has_ended else {}

    @property
    def scores(self) -> dict[str, list[Score]]:
        """The scores at the end of training, by split, the metric of the task first."""
        return {
            split: [_parse_score(score) for score in scores] for split, scores in self.result.get("scores", {}).items()
        }

    @property
    def selection_note(self) -> str:
        """What the choice of the checkpoint means for the scores of a finished run; "" if nothing was chosen."""
        return describe_selection(self.scores, self.result.get("evaluations", 0))


def describe_selection(splits: Collection[str], evaluations: int) -> str:
    """Of which held-out records the checkpoint was the best, and what that means for the scores; "" if it was the only one.

    >>> describe_selection(["dev", "test"], 10)
    'The checkpoint is the best of 10 on dev, so only test is new to it: report the score on test.'
    >>> describe_selection(["dev"], 1)
    ''
    """
    if evaluations < 2 or "dev" not in splits:
        return ""
    best = f"The checkpoint is the best of {evaluations:,} on dev"
    if "test" in splits:
        return f"{best}, so only test is new to it: report the score on test."
    return f"{best}, and its score is of the same records: expect a lower one on new data. A test set would tell."


def open_run(path: str | Path, task: str | None = None) -> Run:
    """Open a run or a directory with a model; a model for another task than `task` raises an error."""
    run = Run(path, task)
    if task is not None and run.task.name != task_class(task).name:
        raise ModelError(
            f"{path} was trained for {run.task.name}, not for {task}; use saccade predict {path}, or train another model."
        )
    assert run.task is not None  # loads the model, so that errors are raised here
    return run


def context_length(model: Model) -> int:
    """The context length of a model in tokens, at most MAX_WINDOW_TOKENS; this is also the value for an unlimited model."""
    limit = model.max_positions or getattr(model.config, "max_positions", None)
    return min(limit or MAX_WINDOW_TOKENS, MAX_WINDOW_TOKENS)


def check_task(task: Task, model: Model, where: str | Path) -> None:
    """Raise an error for a model that does not fit a task because of its head or its output."""
    if task.accepts_model(model):
        return
    mismatch = f"it {model.capabilities.describe()}"
    if task.needs.head is not None:
        mismatch = f"its head is {model.head_name or 'none'}, and {task.needs.head} is needed"
    raise ModelError(
        f"{Path(where) / CONFIG_FILE}: run.task is {task.name}, but the {model.family.name} model of the run does not fit: "
        f"{mismatch}. Restore the config.toml of the model, or remove it to use the model alone."
    )


def task_from_model(model: Model, requested: str | None = None) -> Task | None:
    """The task of a model without a run, inferred from its head or its output; an encoder without a head has none.

    Several tasks may have the same head; the requested one is preferred if the model fits it.
    """
    if requested is not None:
        task = task_class(requested)(labels=model.labels)
        if task.accepts_model(model):
            return task
    own_first = sorted(TASKS, key=lambda task_type: is_from_plugin("task", task_type.name))
    return next((task for task in (task_type.from_head(model) for task_type in own_first) if task is not None), None)


def _parse_score(stored: Mapping[str, Any]) -> Score:
    """A score from result.json, where numbers that are not finite are strings such as float:nan."""
    encoded = {key: value for key, value in stored.items() if isinstance(value, str) and value.startswith("float:")}
    return Score(**{**stored, **{key: float(text.removeprefix("float:")) for key, text in encoded.items()}})
