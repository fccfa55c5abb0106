"""Task inference: the first task in the registry whose roles the first records of a file fill plausibly."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data import Example, Role
from saccade.data.read.media_files import MEDIA
from saccade.data.read.reader import stream_examples
from saccade.data.splits import find_split_files
from saccade.errors import DataError
from saccade.tasks.base import Task
from saccade.tasks.registry import TASKS, task_class

MAX_RECORDS_READ = 2_000  # records that are examined, from the first megabyte of each file


def task_for_data(
    name: str, paths: Sequence[str], columns: Mapping[str, str] | None = None
) -> tuple[Task, tuple[Role, ...]]:
    """The task with this name and its roles for these data, which may be texts, images or recordings."""
    return _task_with_roles(task_class(name), paths, columns)


def infer_task(paths: Sequence[str], columns: Mapping[str, str] | None = None) -> tuple[Task, tuple[Role, ...]]:
    """The inferred task and its roles; `language` is the fallback, as any file can be read as running text."""
    tasks = [_task_with_roles(task_type, paths, columns) for task_type in TASKS]
    candidates = [(task, roles) for task, roles in tasks if set(columns or {}) <= {role.name for role in roles}]
    for task, roles in candidates:
        examples = _first_records(paths, roles, columns)
        is_media_label = roles[0].kind in MEDIA and len(roles) == 2 and roles[1].kind == "label"
        # labeled images and recordings fit no other task, even if some records are bad
        if (examples and task.matches(examples)) or (is_media_label and _can_fill_roles(paths, roles, columns)):
            return task, roles
    for task, roles in candidates if columns else ():  # no good records, but the named columns identify the task
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
    """Whether there is a column for every role, whatever its values."""
    bad_records: list[DataError] = []
    try:
        files = next(iter(find_split_files(paths, roles, columns).values()))
        return any(
            True
            for _ in stream_examples(
                files,
                roles,
                columns=columns,
                on_bad_record="skip",
                max_bad_fraction=1.0,
                rejects=bad_records,
                preview=True,
            )
        )
    except DataError:
        return bool(bad_records)


def _first_records(
    paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None
) -> list[Example]:
    """The first good records; empty if more records are bad than good."""
    bad_records: list[DataError] = []
    try:
        files = next(iter(find_split_files(paths, roles, columns).values()))
        examples = list(
            islice(
                stream_examples(
                    files,
                    roles,
                    columns=columns,
                    on_bad_record="skip",
                    max_bad_fraction=1.0,
                    rejects=bad_records,
                    preview=True,
                ),
                MAX_RECORDS_READ,
            )
        )
    except DataError:
        return []
    return examples if len(examples) > len(bad_records) else []
