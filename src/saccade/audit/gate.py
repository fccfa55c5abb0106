"""The export gate: a model is exported with both statements and current audits, or with a stated reason why it lacks them."""

from saccade.audit.fingerprints import stale_reason
from saccade.audit.registry import suites_for
from saccade.audit.run_records import RunRecords
from saccade.audit.statements import STATEMENTS, STATEMENTS_FILE
from saccade.audit.suite import Suite
from saccade.errors import ModelError
from saccade.tasks.base import Task


class ExportRefused(ModelError):
    """The export gate refuses a model because statements or audits are missing."""


def missing_items(records: RunRecords, task: Task | None) -> list[str]:
    """What a model lacks for an export, in sentences; empty if it passes the gate."""
    return [*missing_statements(records), *missing_suites(records, task)]


def missing_statements(records: RunRecords) -> list[str]:
    """The required answers that the statements lack, in sentences."""
    lines = []
    for table, name in STATEMENTS.items():
        if blanks := records.statements.missing_answers(table):
            if records.statements.path is None:
                cure = f"saccade card {records.directory} --init writes {STATEMENTS_FILE} with the questions"
            else:
                cure = f"fill in {records.statements.path}"
            lines.append(f"the {name} lacks {', '.join(blanks)}; {cure}")
    return lines


def missing_suites(records: RunRecords, task: Task | None) -> list[str]:
    """The suites that have not been run on the current weights and data, in sentences."""
    reasons = ((suite, _why_missing(suite, records)) for suite in suites_for(task))
    command = f"saccade audit {records.directory} --suite"
    return [f"the suite {suite.name} {reason}; {command} {suite.name} runs it" for suite, reason in reasons if reason]


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


def check_gate(records: RunRecords, task: Task | None) -> None:
    """Raise `ExportRefused` with everything that a model lacks for an export."""
    if lines := missing_items(records, task):
        missing = "".join(f"\n  - {line}" for line in lines)
        raise ExportRefused(
            f"{records.directory} is not ready for export:{missing}\n"
            'Do this first, or export with --unaudited "REASON"; the card will state the reason.'
        )
