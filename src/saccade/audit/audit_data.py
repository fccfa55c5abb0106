"""Data of an audit: files that the user names, or the data of the run, split as in training."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from saccade.audit.disaggregate import DisaggregatedSuite
from saccade.audit.fingerprints import Fingerprint, fingerprint_data
from saccade.data import Example, Records, Role, Splits
from saccade.errors import UsageError
from saccade.tasks.base import Task
from saccade.tasks.runs.read_data import read_task_examples, resolve_columns
from saccade.tasks.runs.run import Run
from saccade.tasks.unlabeled import make_gold_optional


@dataclass(frozen=True)
class AuditInputs:
    """Data of an audit, its own test sentences and bad words, and the audit to compare with; all have a default."""

    data: tuple[str, ...] = ()  # labeled data; empty: the data of the run
    columns: Mapping[str, str] = field(default_factory=dict)  # by role; empty: the columns that training used
    group_by: str = ""  # column for a disaggregated evaluation
    test_sentences: tuple[str, ...] = ()  # files in the format of the suite, such as CrowS-Pairs or StereoSet
    bad_words: str = ""  # file of words that are never generated, in suites of generated text
    regard_classifier: str = ""  # a run with the labels negative, neutral and positive; "": the built-in one
    compare_to: str = ""  # an earlier audit: an audited run or its audit.json


@dataclass(frozen=True)
class AuditData:
    """The held-out examples, all splits, and a fingerprint of the files."""

    held_out: list[Example]
    splits: Splits
    fingerprint: Fingerprint


def load_audit_data(run: Run, task: Task, inputs: AuditInputs) -> AuditData | None:
    """Load the data of an audit; None if there is none, as for an imported model."""
    if inputs.group_by and (why := DisaggregatedSuite().not_applicable(task)):
        raise UsageError(f"--group-by {inputs.group_by} does not apply to {run.path}: {why}.")
    group_roles = (Role("group", "label", required=False, shares_column=True),) if inputs.group_by else ()
    group_columns = {"group": inputs.group_by} if inputs.group_by else {}
    if inputs.data:
        task.column_names = columns = resolve_columns(task, task.roles(inputs.data), inputs.columns)
        roles = (*make_gold_optional(task.roles(inputs.data)), *group_roles)
        table = read_task_examples(task, inputs.data, roles, columns | group_columns)
        splits = Splits(table, Records([]), None, list(table.notes), table.digest)
        return AuditData(list(table.examples), splits, fingerprint_data(inputs.data, columns, ""))
    return _load_run_data(run, group_roles, group_columns)


def _load_run_data(run: Run, group_roles: tuple[Role, ...], extra_columns: dict[str, str]) -> AuditData | None:
    """Load the data that a run was trained on."""
    stored = run.settings.get("run", {})
    if group_roles and stored and not stored["data"]:
        raise UsageError(
            f"{run.path} was trained on a built-in sample, which has no other columns; use --group-by with --data."
        )
    splits = run.read_data_with(group_roles, extra_columns) if group_roles else run.data
    if splits is None:
        return None
    held_out = [] if run.task.is_text_stream else list((splits.test or splits.dev).examples)
    # a built-in sample has neither files nor columns; its digest identifies it
    fingerprint = fingerprint_data(stored["data"], run.columns, "" if stored["data"] else stored["digest"])
    return AuditData(held_out, splits, fingerprint)
