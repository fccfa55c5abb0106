"""The export gate: a model is exported with both statements and current audits, or with a stated reason why it lacks them."""

from dataclasses import dataclass
from pathlib import Path

from saccade.audit.fingerprints import stale_reason
from saccade.audit.registry import suites_for
from saccade.audit.run_records import RunRecords
from saccade.audit.statements import STATEMENTS, STATEMENTS_FILE
from saccade.audit.suite import Suite
from saccade.errors import ModelError
from saccade.tasks.base import Task


class ExportRefused(ModelError):
    """The export gate refuses a model because statements or audits are missing."""


@dataclass(frozen=True)
class GateHints:
    """How to satisfy the gate: the commands, or the calls in Python, that write the card, run the audits, and export anyway."""

    card: str
    audit: str
    export: str

    @classmethod
    def for_commands(cls, run: Path, directory: Path | str = "DIR") -> "GateHints":
        """The commands for a run.

        >>> GateHints.for_commands(Path("runs/a"), "out").export
        'saccade export runs/a out --unaudited "REASON"'
        """
        return cls(
            f"saccade card {run} --init",
            f"saccade audit {run}",
            f'saccade export {run} {directory} --unaudited "REASON"',
        )

    @classmethod
    def for_python(cls, directory: Path | str) -> "GateHints":
        """The calls of a `Run`."""
        return cls("run.card(init=True)", "run.audit()", f'run.export("{directory}", unaudited="REASON")')


def missing_items(records: RunRecords, task: Task | None) -> list[str]:
    """What a model lacks for an export, in sentences that name the command; empty if it passes the gate."""
    hints = GateHints.for_commands(records.directory)
    return [
        *(f"{line}; {describe_missing_answers(records, hints)}" for line in missing_statements(records)),
        *(f"{line}; {hints.audit} runs it" for line in missing_suites(records, task)),
    ]


def describe_missing_answers(records: RunRecords, hints: GateHints) -> str:
    """What to do about missing answers."""
    if records.statements.path:
        return f"fill in {records.statements.path}"
    return f"{hints.card} writes {records.directory / STATEMENTS_FILE}; fill it in"


def missing_statements(records: RunRecords) -> list[str]:
    """The required answers that the statements lack, in sentences."""
    lines = []
    for table, name in STATEMENTS.items():
        if blanks := records.statements.missing_answers(table):
            lines.append(f"the {name} lacks {', '.join(blanks)}")
    return lines


def missing_suites(records: RunRecords, task: Task | None) -> list[str]:
    """The suites that have not been run on the current weights and data, in sentences."""
    reasons = ((suite, _why_missing(suite, records)) for suite in suites_for(task))
    return [f"the suite {suite.name} {reason}" for suite, reason in reasons if reason]


def _why_missing(suite: Suite, records: RunRecords) -> str:
    if suite.name in records.missing and not records.settings:
        return ""  # an imported model, whose training data are not available; its card says so
    audit = records.audits.get(suite.name)
    if audit is None:
        return "has not been run"
    fingerprint = audit.fingerprint
    if "splits" in suite.requires and records.settings and fingerprint.files != records.data:
        return f"was run on other data ({', '.join(fingerprint.files)}) than this run was trained on"
    if fingerprint.builtin_data_digest and fingerprint.builtin_data_digest != suite.builtin_data_digest():
        return "is stale (its built-in sentences have changed)"
    reason = stale_reason(fingerprint, records.weights_digest)
    return f"is stale ({reason})" if reason else ""


def check_gate(records: RunRecords, task: Task | None, hints: GateHints | None = None) -> None:
    """Raise `ExportRefused` with what a model lacks for an export, and how to satisfy the gate, by default with commands."""
    hints = hints or GateHints.for_commands(records.directory)
    if lines := describe_missing(records, task, hints):
        lines.append(f"or give a reason to export without them, which the card states: {hints.export}")
        raise ExportRefused("\n  ".join([f"{records.directory} is not ready for export:", *lines]))


def describe_missing(records: RunRecords, task: Task | None, hints: GateHints) -> list[str]:
    """A line for missing statements and a line for missing audits, each with the command or the call that helps."""
    statements, suites = missing_statements(records), missing_suites(records, task)
    lines = [f"{'; '.join(statements)}: {describe_missing_answers(records, hints)}"] if statements else []
    return [*lines, *([f"{'; '.join(suites)}: {hints.audit}"] if suites else [])]
