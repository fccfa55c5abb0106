"""Recipes: TOML files with the requirements, the training settings and the promised score of a run."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from saccade.errors import UsageError

SETTING_TABLES = ("model", "task", "train")


@dataclass(frozen=True)
class Requirements:
    """The required data and weights: a dataset of `saccade data get`, how it is split, and a pretrained model."""

    dataset: str = ""
    files: tuple[str, ...] = ()  # glob patterns in the dataset's directory; empty: the whole directory
    split_flags: Mapping[str, Any] = field(default_factory=dict)  # flags of `saccade data split`
    weights: str = ""

    def __str__(self) -> str:
        data = f"--data FILE... of {self.dataset} (saccade data get {self.dataset})" if self.dataset else ""
        if self.split_flags:
            data = f"--data DIRECTORY of {self.dataset}, made by: {self.split_command('FILE...')}"
        model = f"--model DIRECTORY of {self.weights}" if self.weights else ""
        return " and ".join(filter(None, (data, model)))

    def select_files(self, data: tuple[str, ...]) -> tuple[str, ...]:
        """The data paths; a directory is replaced by the files that the recipe names, if it has all of them.

        This leaves out other files in the directory, such as another language.
        """
        if len(data) != 1 or not self.files or self.split_flags or not Path(data[0]).is_dir():
            return data
        matches = [sorted(map(str, Path(data[0]).glob(pattern))) for pattern in self.files]
        return tuple(path for paths in matches for path in paths) if all(matches) else data

    def split_command(self, names: str) -> str:
        """The command that splits the dataset."""
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.split_flags.items())
        return f"saccade data split {names} {flags} --out DIRECTORY"


@dataclass(frozen=True)
class Promise:
    """The promised score of a recipe, the minutes on two cores, and notes on the recipe."""

    score: str
    minutes: float
    at_least: float | None = None
    at_most: float | None = None
    split: str = "test"
    rationale: str = ""  # why the recipe has these settings
    alternatives: str = ""  # what was tried and not adopted
    sample_review: str = ""  # a critical review of the predictions for `inputs`

    def __post_init__(self) -> None:
        if self.at_least is not None and self.at_most is not None:
            raise UsageError("a promise has at_least or at_most, not both; remove one.")

    @property
    def bound(self) -> str:
        """The promised score as text; a score without a bound is only reported."""
        if self.at_least is None and self.at_most is None:
            return f"{self.score}, reported"
        word, value = ("at least", self.at_least) if self.at_least is not None else ("at most", self.at_most)
        return f"{self.score} {word} {value:g}"

    def holds_for(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Recipe:
    """A training run as a file: task, model, data, and the settings that differ from the defaults."""

    task: str
    name: str = ""
    description: str = ""
    requirements: Requirements = field(default_factory=Requirements)
    data: tuple[str, ...] = ()
    model: str = ""  # a run, a model directory or a hub name to fine-tune
    family: str = ""  # of a new model
    columns: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {name: {} for name in SETTING_TABLES})
    promise: Promise | None = None
    inputs: tuple[str, ...] = ()  # examples whose predictions are shown; tabs separate the texts of one example


def read_recipe_text(name: str) -> str:
    """The TOML text of a built-in recipe."""
    return (files("saccade") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")


def load_recipes() -> dict[str, Recipe]:
    """All built-in recipes, by name."""
    file_names = [path.name for path in (files("saccade") / "recipes").iterdir() if path.name.endswith(".toml")]
    names = sorted(name.removesuffix(".toml") for name in file_names)
    return {name: _parse_recipe(name, tomllib.loads(read_recipe_text(name)), f"{name}.toml") for name in names}


def load_recipe(name: str) -> Recipe:
    """A built-in recipe by name, a recipe from a file, or an empty recipe for the name of a task."""
    from saccade.models.io.model_dir import read_toml
    from saccade.suggest import suggest
    from saccade.tasks.registry import TASKS, task_class

    if any(name in (task.name, *task.aliases) for task in TASKS):
        return Recipe(task_class(name).name)
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise UsageError(f"{name}: there is no such file.")
        try:
            return _parse_recipe("", read_toml(Path(name).resolve()), name)
        except ValueError as error:
            raise UsageError(str(error)) from None
    known = load_recipes()
    if name in known:
        return known[name]
    raise UsageError(
        f"There is no task or recipe {name!r}; {suggest(name, [task.name for task in TASKS] + list(known))}"
    )


RUN_KEYS = (
    "task",
    "data",
    "model",
    "columns",
    "description",
    "family",
    "digest",
    "dataset",
    "files",
    "split_flags",
    "weights",
    "inputs",
    "augmentation",
)


def _parse_recipe(name: str, raw: Mapping[str, Any], file: str) -> Recipe:
    for table in (key for key in ("run", "promise", *SETTING_TABLES) if not isinstance(raw.get(key, {}), dict)):
        raise UsageError(f"{file}: {table!r} must be a table, [{table}].")
    run = raw.get("run", {})
    _check_types(run, file)
    unknown = [key for key in raw if key not in ("run", "promise", *SETTING_TABLES)]
    unknown += [key for key in run if key not in RUN_KEYS]
    if unknown or "task" not in run:
        problem = f"unknown key {unknown[0]!r}" if unknown else "it names no task"
        expected = f"expected [run] with task, data and model or family, and {', '.join(SETTING_TABLES)}"
        raise UsageError(f"{file}: {problem}; {expected}.")
    tables = {table: dict(raw.get(table, {})) for table in SETTING_TABLES}
    tables["task"].pop("labels", None)  # in the config.toml of a run; a recipe takes them from the data
    return Recipe(
        run["task"],
        name,
        run.get("description", ""),
        Requirements(
            run.get("dataset", ""), tuple(run.get("files", ())), run.get("split_flags", {}), run.get("weights", "")
        ),
        tuple(run.get("data", ())),
        run.get("model", ""),
        "" if run.get("model") else run.get("family", ""),
        run.get("columns", {}),
        tables,
        _parse_promise(raw["promise"], file) if "promise" in raw else None,
        tuple(run.get("inputs", ())),
    )


def _check_types(run: Mapping[str, Any], file: str) -> None:
    """Raise an error for a setting of [run] of the wrong type: a text, a list of texts, or a table."""
    lists, tables = ("data", "files", "inputs"), ("columns", "split_flags", "augmentation")
    for key, value in run.items():
        kind, expected = str, "a text"
        if key in lists:
            kind, expected = list, "a list of texts"
        elif key in tables:
            kind, expected = dict, "a table"
        if not isinstance(value, kind) or (kind is list and not all(isinstance(text, str) for text in value)):
            raise UsageError(f"{file}: run.{key} must be {expected}.")


def _parse_promise(raw: Mapping[str, Any], file: str) -> Promise:
    from saccade.suggest import suggest

    known = [item.name for item in fields(Promise)]
    for key in raw:
        if key not in known:
            raise UsageError(f"{file}: [promise] has no {key!r}; {suggest(key, known)}")
    for key in ("score", "minutes"):
        if key not in raw:
            raise UsageError(f"{file}: [promise] has no {key}; add {key} = ...")
    try:
        values: dict[str, Any] = {key: value.strip() if isinstance(value, str) else value for key, value in raw.items()}
        return Promise(**values)
    except ValueError as error:
        raise UsageError(f"{file}: [promise]: {error}") from None
