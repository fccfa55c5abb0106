"""Recipes: runs in files, which say what they need, what is trained how, and what they promise."""

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
    """The data and the weights that a person has to have: a set of `saccade data get`, how it is parted, and a model."""

    dataset: str = ""
    files: tuple[str, ...] = ()  # patterns of names in the set's directory; none: the directory
    split_flags: Mapping[str, Any] = field(default_factory=dict)  # flags of `saccade data split`
    weights: str = ""

    def __str__(self) -> str:
        data = f"--data FILE... of {self.dataset} (saccade data get {self.dataset})" if self.dataset else ""
        if self.split_flags:
            data = f"--data DIRECTORY of {self.dataset}, made by: {self.split_command('FILE...')}"
        model = f"--model DIRECTORY of {self.weights}" if self.weights else ""
        return " and ".join(filter(None, (data, model)))

    def select_files(self, data: tuple[str, ...]) -> tuple[str, ...]:
        """The data that were given; of a directory that has all the files that the recipe names, only those.

        So a further language that lies beside them is no part of the set.
        """
        if len(data) != 1 or not self.files or self.split_flags or not Path(data[0]).is_dir():
            return data
        found = [sorted(map(str, Path(data[0]).glob(pattern))) for pattern in self.files]
        return tuple(path for some in found for path in some) if all(found) else data

    def split_command(self, names: str) -> str:
        """The command that parts the set."""
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.split_flags.items())
        return f"saccade data split {names} {flags} --out DIRECTORY"


@dataclass(frozen=True)
class Promise:
    """What a recipe reaches, in how many minutes of two cores, and what there is to say of it."""

    score: str
    minutes: float
    at_least: float | None = None
    at_most: float | None = None
    split: str = "test"
    rationale: str = ""  # it is made as it is
    alternatives: str = ""  # and given up
    sample_review: str = ""  # what a critical reader finds in its answers to the inputs

    def __post_init__(self) -> None:
        if self.at_least is not None and self.at_most is not None:
            raise UsageError("at_least and at_most are two promises; keep one.")

    @property
    def bound(self) -> str:
        """The promised score in words; one without a bound is only reported."""
        if self.at_least is None and self.at_most is None:
            return f"{self.score}, reported"
        word, value = ("at least", self.at_least) if self.at_least is not None else ("at most", self.at_most)
        return f"{self.score} {word} {value:g}"

    def holds_for(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Recipe:
    """A run in a file: what to train on what, and the settings that differ from the usual."""

    task: str
    name: str = ""
    description: str = ""
    requirements: Requirements = field(default_factory=Requirements)
    data: tuple[str, ...] = ()
    model: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {name: {} for name in SETTING_TABLES})
    promise: Promise | None = None
    inputs: tuple[
        str, ...
    ] = ()  # of our own, whose answers are shown; texts that belong together have tabs between them


def read_recipe_text(name: str) -> str:
    """The file of a recipe that comes with the package."""
    return (files("saccade") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")


def load_recipes() -> dict[str, Recipe]:
    """Every recipe that comes with the package, by name."""
    found = [path.name for path in (files("saccade") / "recipes").iterdir() if path.name.endswith(".toml")]
    names = sorted(name.removesuffix(".toml") for name in found)
    return {name: _parse_recipe(name, tomllib.loads(read_recipe_text(name)), f"{name}.toml") for name in names}


def load_recipe(name: str) -> Recipe:
    """The recipe of a name, one in a file, or a task's own name: a recipe without settings."""
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
        raise UsageError(f"{file}: {table!r} has to be a table, [{table}].")
    run = raw.get("run", {})
    _check_types(run, file)
    odd = [key for key in raw if key not in ("run", "promise", *SETTING_TABLES)] + [
        key for key in run if key not in RUN_KEYS
    ]
    if odd or "task" not in run:
        wrong = f"it has {odd[0]!r}" if odd else "it names no task"
        raise UsageError(f"{file}: {wrong}; needed are [run] with task, data, model, and {', '.join(SETTING_TABLES)}.")
    tables = {table: dict(raw.get(table, {})) for table in SETTING_TABLES}
    tables["task"].pop("labels", None)  # a run's config.toml tells them; they come from the data
    return Recipe(
        run["task"],
        name,
        run.get("description", ""),
        Requirements(
            run.get("dataset", ""), tuple(run.get("files", ())), run.get("split_flags", {}), run.get("weights", "")
        ),
        tuple(run.get("data", ())),
        run.get("model") or run.get("family", ""),
        run.get("columns", {}),
        tables,
        _parse_promise(raw["promise"], file) if "promise" in raw else None,
        tuple(run.get("inputs", ())),
    )


def _check_types(run: Mapping[str, Any], file: str) -> None:
    """Every setting of [run] is of its kind: a text, a list of texts, or a table."""
    lists, tables = ("data", "files", "inputs"), ("columns", "split_flags", "augmentation")
    for key, value in run.items():
        kind, said = (
            (list, "a list of texts") if key in lists else (dict, "a table") if key in tables else (str, "a text")
        )
        if not isinstance(value, kind) or (kind is list and not all(isinstance(one, str) for one in value)):
            raise UsageError(f"{file}: run.{key} has to be {said}.")


def _parse_promise(raw: Mapping[str, Any], file: str) -> Promise:
    from saccade.suggest import suggest

    known = [item.name for item in fields(Promise)]
    for key in raw:
        if key not in known:
            raise UsageError(f"{file}: [promise] has no {key!r}; {suggest(key, known)}")
    for key in ("score", "minutes"):
        if key not in raw:
            raise UsageError(f"{file}: [promise] does not say its {key}; write {key} = ...")
    try:
        told: dict[str, Any] = {key: value.strip() if isinstance(value, str) else value for key, value in raw.items()}
        return Promise(**told)
    except ValueError as error:
        raise UsageError(f"{file}: [promise]: {error}") from None
