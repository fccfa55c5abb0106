"""Data for a model that was trained before: its columns are those that its training named, unless others are named now."""

from collections.abc import Iterator, Mapping, Sequence

from saccade.data import Example, Role, Table, read, stream
from saccade.errors import DataError
from saccade.tasks.task import Task


def columns_for(task: Task, roles: Sequence[Role], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The column of each role: the one that is named now, else the one that the run's config.toml has stored."""
    asked = {role.name for role in roles}
    stored = {role: column for role, column in task.named.items() if role in asked}
    return stored | dict(given or {})


def read_for(task: Task, data: Sequence[str], roles: Sequence[Role], columns: Mapping[str, str] | None = None) -> Table:
    """All records of some files."""
    try:
        return read(data, roles, columns=columns_for(task, roles, columns))
    except DataError as error:
        raise _explained(error, task, columns) from None


def stream_for(
    task: Task,
    data: Sequence[str],
    roles: Sequence[Role],
    columns: Mapping[str, str] | None = None,
    said: list[str] | None = None,
) -> Iterator[Example]:
    """The same one by one; what was recognised goes into `said`."""
    try:
        yield from stream(data, roles, columns=columns_for(task, roles, columns), said=said)
    except DataError as error:
        raise _explained(error, task, columns) from None


def _explained(error: DataError, task: Task, given: Mapping[str, str] | None) -> DataError:
    """An error about a column that nobody named now says where the name came from."""
    stored = {role: column for role, column in task.named.items() if role not in (given or {})}
    wanted = next((role for role, name in stored.items() if error.what.startswith(f"no column for {role}: ")), None)
    if wanted is None:
        return error
    what = f"{error.what}. The model was trained with --columns {wanted}={stored[wanted]}"
    return DataError(what, file=error.file, line=error.line, column=error.column, value=error.value, cure=error.cure)
