"""A model with the task it was trained for: of a run, what its config.toml says; of any other directory, what its head is for."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from saccade.models.load import load
from saccade.models.model import Model
from saccade.tasks.label import Label, picture_shape
from saccade.tasks.table import task_class
from saccade.tasks.task import Task

MAX_WINDOW = 2048  # tokens that are read at once, of a model that came from elsewhere and could read more
HEADS = {"words": "pretrain", "label": "label", "tag": "tag", "span": "span"}


def open_run(
    where: str | Path, verb: str | None = None, changes: Mapping[str, Any] | None = None
) -> tuple[Task, Model]:
    """The model and its task; `verb` is the task that is asked for, and a model made for another is refused by name.

    `changes` are settings of the task that it shall have instead of those it was trained with. A run reads as many tokens at
    once as it was trained with (`task.length`); a model from elsewhere as many as it can, up to MAX_WINDOW.
    """
    settings = Path(where) / "config.toml"
    if Path(where).is_dir() and settings.is_file() and not (Path(where) / "model").is_dir():
        raise ValueError(f"{where}: this run has no model yet; the command that began it goes on with it.")
    raw: dict[str, Any] = tomllib.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    model = load(where)
    name = raw.get("run", {}).get("task") or _task_of(model)
    if verb is not None and name != verb:
        raise ValueError(f"{where} was made to {name}, not to {verb}; say saccade predict {where}, or train another.")
    kind = task_class(name)
    known = {item.name for item in fields(kind.Config)}
    given = {key: value for key, value in raw.get("task", {}).items() if key in known} | dict(changes or {})
    if name == "label" and "many" not in given:
        given["many"] = model.many
    if "length" in known - given.keys() and (kind.running or (kind.cuts and kind.head)):
        given["length"] = context_length(model)
    task = kind(kind.Config(**given), labels=model.labels)
    task.named = raw.get("run", {}).get("columns", {})
    if isinstance(task, Label):
        task.seen = picture_shape(model)[0] is not None
    return task, model


def context_length(model: Model) -> int:
    """The tokens that a model can read at once, up to MAX_WINDOW; a model without a limit of its own reads that many."""
    own = model.limit or getattr(model.config, "length", None)
    return min(own or MAX_WINDOW, MAX_WINDOW)


def _of_pairs(model: Model) -> bool:
    """Whether a head is for two texts: one output, which is a number, or a class by the name of entailment."""
    return (len(model.labels) == 1 and not model.many) or any("entail" in label.lower() for label in model.labels)


def _task_of(model: Model) -> str:
    if model.kind == "label" and _of_pairs(model):
        return "pair"
    if model.kind in HEADS:
        return HEADS[model.kind]
    if not hasattr(model.body, "start"):
        raise ValueError(
            f"This {model.family.name} has no head that answers, so it has no task; "
            "saccade train TASK --model DIR gives it one, and saccade.encode and saccade.embed use it as it is."
        )
    return "translate" if hasattr(model.body, "encoder") else "language"
