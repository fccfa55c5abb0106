"""The data that an audit looks at: files that the user names, or those of a run, split as they were in training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saccade.audit.by import By
from saccade.audit.marks import Mark, data_mark
from saccade.cli.settings import Wrong
from saccade.data import Example, Role, Splits, Table, open_data
from saccade.data.read import parse_columns
from saccade.errors import UsageError
from saccade.tasks.hidden import forgiving, revealed
from saccade.tasks.reading import columns_for, read_for
from saccade.tasks.run_settings import read_run_settings
from saccade.tasks.task import Task
from saccade.training.job import check_digest
from saccade.training.job import data_of as again

if TYPE_CHECKING:
    from saccade.cli.audit import Asked


@dataclass(frozen=True)
class Known:
    """What was not learnt from, all of it, and a mark of the files."""

    held: list[Example]
    splits: Splits
    mark: Mark


def data_of(run: str, task: Task, asked: "Asked") -> Known | None:
    """The data of an audit; None where there are none, as of a model that came from elsewhere."""
    if asked.by and (why := By().unfit(task)):
        raise Wrong(f"--by {asked.by} does not apply to {run}: {why}.")
    by = (Role("by", "label", needed=False, shared=True),) if asked.by else ()
    named = {"by": asked.by} if asked.by else {}
    if asked.data:
        task.named = columns = columns_for(task, task.roles(asked.data), parse_columns(asked.columns))
        table = read_for(task, asked.data, (*forgiving(task.roles(asked.data)), *by), columns | named)
        splits = Splits(table, Table([]), None, list(table.said), table.digest)
        return Known(list(table.examples), splits, data_mark(asked.data, columns, ""))
    settings = read_run_settings(run)
    return _of_run(run, task, settings["run"], by, named) if settings else None


def _of_run(run: str, task: Task, settings: dict[str, Any], by: tuple[Role, ...], named: dict[str, str]) -> Known:
    """The data of a run, which have to be those that it was trained on."""
    paths, columns = settings["data"], settings.get("columns", {})
    if not paths:
        return _sample(run, task, settings, by)
    task.named = columns
    roles, running = task.roles(paths), task.running
    given = {"columns": columns | named, "on_bad": "skip", "max_bad": 1.0, "contiguous": running}
    splits = open_data(paths, (*roles, *by), **given)
    plain = splits if not named else open_data(paths, roles, **(given | {"columns": columns}))
    check_digest(plain, settings, run)
    splits = revealed(task, splits)
    held = [] if running else list((splits.test or splits.dev).examples)
    return Known(held, splits, data_mark(paths, columns, ""))


def _sample(run: str, task: Task, settings: dict[str, Any], by: tuple[Role, ...]) -> Known:
    if by:
        raise UsageError(f"{run} learnt a built-in sample, which has no further columns; give --data with --by.")
    splits = again(run)
    assert splits is not None
    held = [] if task.running else list((splits.test or splits.dev).examples)
    return Known(held, splits, data_mark((), {}, settings["digest"]))
