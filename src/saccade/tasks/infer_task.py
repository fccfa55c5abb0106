"""What a file is good for, when nobody says: the first task whose roles its first records fill sensibly."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data import Example, Role
from saccade.data.read.reader import stream_examples
from saccade.data.splits import find_split_files
from saccade.errors import DataError
from saccade.tasks.base import Task
from saccade.tasks.registry import TASKS, task_class

MAX_RECORDS_READ = 2_000  # that are read to decide, of those in the first megabyte of each file


def task_for_data(
    name: str, paths: Sequence[str], columns: Mapping[str, str] | None = None
) -> tuple[Task, tuple[Role, ...]]:
    """A task of a name, and the roles that it asks of these data: of texts or of images."""
    return _task_with_roles(task_class(name), paths, columns)


def infer_task(paths: Sequence[str], columns: Mapping[str, str] | None = None) -> tuple[Task, tuple[Role, ...]]:
    """The task and its roles; running text is what everything else can be read as."""
    every = [_task_with_roles(kind, paths, columns) for kind in TASKS]
    named = [(task, roles) for task, roles in every if set(columns or {}) <= {role.name for role in roles}]
    for task, roles in named:
        found = _first_records(paths, roles, columns)
        shown = roles[0].kind == "image" and len(roles) == 2 and roles[1].kind == "label"
        # labelled images can be read as nothing else, not even bad ones
        if (found and task.matches(found)) or (shown and _can_fill_roles(paths, roles, columns)):
            return task, roles
    for task, roles in named if columns else ():  # bad throughout, but the caller's names say what it should be
        if _can_fill_roles(paths, roles, columns):
            return task, roles
    return _task_with_roles(task_class("language"), paths, columns)


def _task_with_roles(
    task_type: type[Task], paths: Sequence[str], columns: Mapping[str, str] | None
) -> tuple[Task, tuple[Role, ...]]:
    task = task_type()
    task.column_names = columns or {}
    return task, task.roles(paths)


def _can_fill_roles(paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None) -> bool:
    """There is a column for every role, whatever stands in it."""
    bad: list[DataError] = []
    try:
        files = next(iter(find_split_files(paths, roles, columns).values()))
        return any(
            True
            for _ in stream_examples(
                files, roles, columns=columns, on_bad_record="skip", max_bad_fraction=1.0, rejects=bad, preview=True
            )
        )
    except DataError:
        return bool(bad)


def _first_records(
    paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None
) -> list[Example]:
    """The first good records, or none if the roles cannot be filled by most of them."""
    bad: list[DataError] = []
    try:
        files = next(iter(find_split_files(paths, roles, columns).values()))
        found = list(
            islice(
                stream_examples(
                    files, roles, columns=columns, on_bad_record="skip", max_bad_fraction=1.0, rejects=bad, preview=True
                ),
                MAX_RECORDS_READ,
            )
        )
    except DataError:
        return []
    return found if len(found) > len(bad) else []
