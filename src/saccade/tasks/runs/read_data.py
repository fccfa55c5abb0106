"""Reading the data of a task, for training or for a trained run, which stores the columns named in training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from saccade.data import Example, Records, Role, open_data, read_examples, stream_examples
from saccade.data.held_out import DEV_ONLY, HeldOut
from saccade.data.samples import get_sample
from saccade.data.splits import Splits, split_records
from saccade.errors import DataError, UsageError
from saccade.tasks.base import Task


def read_splits(
    task: Task,
    paths: Sequence[str],
    columns: Mapping[str, str],
    *,
    extra_roles: Sequence[Role] = (),
    on_bad: str = "error",
    max_bad_fraction: float = 0.01,
    held_out: HeldOut = DEV_ONLY,
) -> Splits:
    """Training, dev and test data of a task from files, with optional extra roles; without files, its built-in sample.

    Of a sample only dev is held out: its records are generated, and thousands of dev records are hardly selected by.
    """
    if paths:
        task.column_names = columns
        return open_data(
            paths,
            (*task.roles(paths), *extra_roles),
            columns=columns,
            on_bad_record=on_bad,
            max_bad_fraction=max_bad_fraction,
            contiguous=task.is_text_stream,
            held_out=held_out,
        )
    if held_out.group_by:
        raise UsageError(
            "--train.group-by names a column of a data file, and the built-in sample has none; give --data."
        )
    sample = get_sample(task.sample)
    records = Records(sample.make(sample.default_count, 0), digest=f"sample {sample.name}")
    plan = replace(held_out, test_size=0.0)
    splits = split_records(records, task.roles(()), contiguous=task.is_text_stream, held_out=plan)
    return replace(splits, notes=[f"no --data: built-in sample {sample.name} ({sample.description})", *splits.notes])


def resolve_columns(task: Task, roles: Sequence[Role], overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """The column of each role: from `overrides`, or else from the run's config.toml."""
    names = {role.name for role in roles}
    stored = {role: column for role, column in task.column_names.items() if role in names}
    return stored | dict(overrides or {})


def without_gold(task: Task, columns: Mapping[str, str] | None) -> dict[str, str]:
    """The columns of the input roles: a prediction does not read the gold."""
    return {role: name for role, name in (columns or {}).items() if role not in task.gold_roles}


def read_task_examples(
    task: Task,
    data: Sequence[str],
    roles: Sequence[Role],
    columns: Mapping[str, str] | None = None,
    **policy: Any,
) -> Records:
    """All records of the files, with the values of all their columns; `policy` is that of `read_examples`."""
    try:
        return read_examples(data, roles, columns=resolve_columns(task, roles, columns), keep_fields=True, **policy)
    except DataError as error:
        raise _explain_stored_column(error, task, columns) from None


def stream_task_examples(
    task: Task,
    data: Sequence[str],
    roles: Sequence[Role],
    columns: Mapping[str, str] | None = None,
    notes: list[str] | None = None,
    **policy: Any,
) -> Iterator[Example]:
    """The examples of the files one by one, with the values of all their columns; remarks are appended to `notes`.

    `policy` is that of `stream_examples` for bad records: on_bad_record, max_bad_fraction and rejects.
    """
    resolved = resolve_columns(task, roles, columns)
    try:
        yield from stream_examples(data, roles, columns=resolved, notes=notes, keep_fields=True, **policy)
    except DataError as error:
        raise _explain_stored_column(error, task, columns) from None


def _explain_stored_column(error: DataError, task: Task, overrides: Mapping[str, str] | None) -> DataError:
    """Add to an error about a stored column name that it comes from training."""
    stored = {role: column for role, column in task.column_names.items() if role not in (overrides or {})}
    missing = next((role for role, name in stored.items() if error.problem.startswith(f"no column for {role}: ")), None)
    if missing is None:
        return error
    problem = f"{error.problem}. The model was trained with --columns {missing}={stored[missing]}"
    return DataError(problem, file=error.file, line=error.line, column=error.column, value=error.value, hint=error.hint)
