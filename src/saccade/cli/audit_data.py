"""The data that an audit looks at: files that the user names, or those of a run, split as they were in training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.audit.disaggregate import DisaggregatedSuite
from saccade.audit.fingerprints import Fingerprint, fingerprint_data
from saccade.data import Example, Records, Role, Splits
from saccade.data.read import parse_columns
from saccade.errors import UsageError
from saccade.tasks.base import Task
from saccade.tasks.runs.read_data import read_task_examples, resolve_columns
from saccade.tasks.runs.run import Run
from saccade.tasks.unlabeled import make_gold_optional

if TYPE_CHECKING:
    from saccade.cli.commands.audit import AuditInputs


@dataclass(frozen=True)
class AuditData:
    """What was not learnt from, all of it, and a mark of the files."""

    held_out: list[Example]
    splits: Splits
    fingerprint: Fingerprint


def load_audit_data(run: Run, task: Task, inputs: "AuditInputs") -> AuditData | None:
    """The data of an audit; None where there are none, as of a model that came from elsewhere."""
    if inputs.group_by and (why := DisaggregatedSuite().not_applicable(task)):
        raise UsageError(f"--group-by {inputs.group_by} does not apply to {run.path}: {why}.")
    by = (Role("group", "label", required=False, shares_column=True),) if inputs.group_by else ()
    named = {"group": inputs.group_by} if inputs.group_by else {}
    if inputs.data:
        task.column_names = columns = resolve_columns(task, task.roles(inputs.data), parse_columns(inputs.columns))
        table = read_task_examples(
            task, inputs.data, (*make_gold_optional(task.roles(inputs.data)), *by), columns | named
        )
        splits = Splits(table, Records([]), None, list(table.notes), table.digest)
        return AuditData(list(table.examples), splits, fingerprint_data(inputs.data, columns, ""))
    return _load_run_data(run, by, named)


def _load_run_data(run: Run, group_roles: tuple[Role, ...], extra_columns: dict[str, str]) -> AuditData | None:
    """The data of a run, which have to be those that it was trained on."""
    stored = run.settings.get("run", {})
    if group_roles and stored and not stored["data"]:
        raise UsageError(
            f"{run.path} learnt a built-in sample, which has no further columns; give --data with --group-by."
        )
    splits = run.read_data_with(group_roles, extra_columns) if group_roles else run.data
    if splits is None:
        return None
    held = [] if run.task.is_text_stream else list((splits.test or splits.dev).examples)
    # a sample has neither files nor columns: its digest names it
    mark = fingerprint_data(stored["data"], run.columns, "" if stored["data"] else stored["digest"])
    return AuditData(held, splits, mark)
