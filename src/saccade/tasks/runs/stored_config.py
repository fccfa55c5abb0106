"""Reading the config.toml of a run, with a check of the type of every table and value."""

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from saccade.data.held_out import HeldOut
from saccade.errors import ModelError
from saccade.models.io.model_dir import read_toml
from saccade.plugins import check_plugins
from saccade.suggest import suggest
from saccade.tasks.registry import TASKS, task_class
from saccade.text.loading.safe_files import abbreviate

CONFIG_FILE = "config.toml"
CONFIG_TABLES = ("run", "model", "task", "train")
MAX_SETTING_VALUES = {  # largest valid value of integer settings of tasks, whose smallest is 1
    "max_tokens": 1_000_000,
    "max_summary_tokens": 1_000_000,
    "max_question_tokens": 1_000_000,
    "max_answer_tokens": 1_000_000,
    "stride": 1_000_000,
    "eval_beams": 1_000,
    "generator_divisor": 1_000,
}
MAX_INTEGER = 2**31 - 1  # of any other integer


def is_run(where: str | Path) -> bool:
    """Whether a directory has a config.toml; a broken symbolic link counts as one, which then fails to be read."""
    return os.path.lexists(Path(where) / CONFIG_FILE)


def read_run_settings(where: str | Path) -> dict[str, dict[str, Any]]:
    """The tables [run], [model], [task] and [train] of a run; an empty dictionary if there is no config.toml.

    A file that is damaged or was not written by training raises a ModelError with the file, the setting and what is expected.
    """
    path = Path(where) / CONFIG_FILE
    if not is_run(where):
        return {}
    tables = read_toml(path)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ModelError(
                f"{path}: {abbreviate(name)} is {abbreviate(table)} where a table [{name[:20]}] is needed."
            )
    for name in CONFIG_TABLES:
        tables.setdefault(name, {})
    run, task = tables["run"], tables["task"]
    for name in ("task", "model", "family", "digest"):
        if not isinstance(run.setdefault(name, ""), str):
            raise ModelError(f"{path}: run.{name} = {abbreviate(run[name])} where a text is needed.")
    _check_texts(path, "run.data", run.setdefault("data", []))
    _check_texts(path, "task.labels", task.get("labels", []))
    columns = run.setdefault("columns", {})
    if not isinstance(columns, dict) or not all(isinstance(column, str) for column in columns.values()):
        raise ModelError(f"{path}: run.columns = {abbreviate(columns)} where a table from roles to columns is needed.")
    check_plugins(run.get("plugins", {}), where)
    check_setting_values(HeldOut, tables["train"], f"{path}: train")
    if run["task"]:
        known = [entry.name for entry in TASKS]
        if run["task"] not in known:
            raise ModelError(f"{path}: run.task = {abbreviate(run['task'])}; {suggest(run['task'][:40], known)}")
        check_setting_values(task_class(run["task"]).Config, task, f"{path}: task")
    return tables


def _check_texts(path: Path, name: str, value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ModelError(f"{path}: {name} = {abbreviate(value)} where a list of texts is needed.")


def check_setting_values(config_class: type, values: Mapping[str, Any], where: str) -> None:
    """Raise an error for values of the wrong type, not finite, or out of range."""
    hints = get_type_hints(config_class)
    for name in (item.name for item in fields(config_class) if item.name in values):
        value, expected = values[name], _describe_type(hints[name], name)
        if not _has_type(value, hints[name]) or not _in_range(name, value):
            option = name.replace("_", "-") if where.startswith("--") else name
            raise ModelError(f"{where}.{option} = {abbreviate(value)} where {expected} is needed.")


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value of a TOML file has an annotated type; an integer is a valid float, and a boolean is not a number."""
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_has_type(value, option) for option in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, list | tuple)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _in_range(name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    if name in MAX_SETTING_VALUES:
        return 1 <= value <= MAX_SETTING_VALUES[name]
    return abs(value) <= MAX_INTEGER and math.isfinite(value)


def _describe_type(hint: Any, name: str) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if name in MAX_SETTING_VALUES:
        return f"a whole number from 1 to {MAX_SETTING_VALUES[name]:,}"
    types = [option for option in get_args(hint) or (hint,) if option is not type(None)]
    names = {int: "a whole number", float: "a finite number", str: "a text", bool: "true or false"}
    return names.get(types[0], "a list")
