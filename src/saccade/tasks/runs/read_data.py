"""Data for a task: to train it, and for a trained one, whose columns are those named in training unless others are named now."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from saccade.data import Example, Records, Role, open_data, read_examples, stream_examples
from saccade.data.samples import get_sample
from saccade.data.splits import Splits, split_records
from saccade.errors import DataError
from saccade.tasks.base import Task


def read_splits(
    task: Task,
    paths: Sequence[str],
    columns: Mapping[str, str],
    *,
    extra_roles: Sequence[Role] = (),
    on_bad: str = "error",
    max_bad_fraction: float = 0.01,
) -> Splits:
    """Training, dev and test data of a task from files, with roles beyond its own; without files, its built-in sample."""
    if paths:
        task.column_names = columns
        return open_data(
            paths,
            (*task.roles(paths), *extra_roles),
            columns=columns,
            on_bad_record=on_bad,
            max_bad_fraction=max_bad_fraction,
            contiguous=task.is_text_stream,
        )
    own = get_sample(task.sample)
    made = split_records(
        Records(own.make(own.default_count, 0), digest=f"sample {own.name}"),
        task.roles(()),
        contiguous=task.is_text_stream,
    )
    return replace(made, notes=[f"no --data: the package's own sample {own.name} ({own.description})", *made.notes])


def resolve_columns(task: Task, roles: Sequence[Role], overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """The column of each role: the one that is named now, else the one that the run's config.toml has stored."""
    asked = {role.name for role in roles}
    stored = {role: column for role, column in task.column_names.items() if role in asked}
    return stored | dict(overrides or {})


def read_task_examples(
    task: Task, data: Sequence[str], roles: Sequence[Role], columns: Mapping[str, str] | None = None
) -> Records:
    """All records of some files."""
    try:
        return read_examples(data, roles, columns=resolve_columns(task, roles, columns))
    except DataError as error:
        raise _explain_stored_column(error, task, columns) from None


def stream_task_examples(
    task: Task,
    data: Sequence[str],
    roles: Sequence[Role],
    columns: Mapping[str, str] | None = None,
    notes: list[str] | None = None,
) -> Iterator[Example]:
    """The same one by one; what was recognised goes into `said`."""
    try:
        yield from stream_examples(data, roles, columns=resolve_columns(task, roles, columns), notes=notes)
    except DataError as error:
        raise _explain_stored_column(error, task, columns) from None


def _explain_stored_column(error: DataError, task: Task, overrides: Mapping[str, str] | None) -> DataError:
    """An error about a column that nobody named now says where the name came from."""
    stored = {role: column for role, column in task.column_names.items() if role not in (overrides or {})}
    wanted = next((role for role, name in stored.items() if error.problem.startswith(f"no column for {role}: ")), None)
    if wanted is None:
        return error
    what = f"{error.problem}. The model was trained with --columns {wanted}={stored[wanted]}"
    return DataError(what, file=error.file, line=error.line, column=error.column, value=error.value, hint=error.hint)
