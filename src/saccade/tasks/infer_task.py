"""What a file is good for, when nobody says: the first task whose roles its first records fill sensibly."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data import Example, Role
from saccade.data.read.reading import stream
from saccade.data.split import splits
from saccade.errors import DataError
from saccade.tasks.table import TASKS, task_class
from saccade.tasks.task import Task

MAX_RECORDS = 2_000  # that are read to decide


def task_for_data(
    name: str, paths: Sequence[str], columns: Mapping[str, str] | None = None
) -> tuple[Task, tuple[Role, ...]]:
    """A task of a name, and the roles that it asks of these data: of texts or of images."""
    return _asking(task_class(name), paths, columns)


def infer_task(paths: Sequence[str], columns: Mapping[str, str] | None = None) -> tuple[Task, tuple[Role, ...]]:
    """The task and its roles; running text is what everything else can be read as."""
    every = [_asking(kind, paths, columns) for kind in TASKS]
    named = [(task, roles) for task, roles in every if set(columns or {}) <= {role.name for role in roles}]
    for task, roles in named:
        found = _first(paths, roles, columns)
        shown = roles[0].kind == "image" and len(roles) == 2 and roles[1].kind == "label"
        # labelled images can be read as nothing else, not even bad ones
        if (found and task.matches(found)) or (shown and _fills(paths, roles, columns)):
            return task, roles
    for task, roles in named if columns else ():  # bad throughout, but the caller's names say what it should be
        if _fills(paths, roles, columns):
            return task, roles
    return _asking(task_class("language"), paths, columns)


def _asking(kind: type[Task], paths: Sequence[str], columns: Mapping[str, str] | None) -> tuple[Task, tuple[Role, ...]]:
    task = kind()
    task.named = columns or {}
    return task, task.roles(paths)


def _fills(paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None) -> bool:
    """There is a column for every role, whatever stands in it."""
    bad: list[DataError] = []
    try:
        files = next(iter(splits(paths, roles, columns).values()))
        return any(True for _ in stream(files, roles, columns=columns, on_bad="skip", max_bad=1.0, bad=bad))
    except DataError:
        return bool(bad)


def _first(paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None) -> list[Example]:
    """The first good records, or none if the roles cannot be filled by most of them."""
    bad: list[DataError] = []
    try:
        files = next(iter(splits(paths, roles, columns).values()))
        found = list(islice(stream(files, roles, columns=columns, on_bad="skip", max_bad=1.0, bad=bad), MAX_RECORDS))
    except DataError:
        return []
    return found if len(found) > len(bad) else []
