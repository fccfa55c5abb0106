"""The gate: a model goes out with both statements and a current audit, or with a reason for which it has none."""

from saccade.audit.fingerprints import stale_reason
from saccade.audit.registry import suites_for
from saccade.audit.run_records import RunRecords
from saccade.audit.statements import STATEMENTS, STATEMENTS_FILE
from saccade.audit.suite import Suite
from saccade.errors import ModelError
from saccade.tasks.base import Task


class ExportRefused(ModelError):
    """A model that may not go out yet."""


def missing_items(records: RunRecords, task: Task | None) -> list[str]:
    """What a model still lacks, in lines for a person; none where it may go out."""
    return [*missing_statements(records), *missing_suites(records, task)]


def missing_statements(records: RunRecords) -> list[str]:
    """What the statements still lack."""
    lines = []
    for table, name in STATEMENTS.items():
        if blanks := records.statements.missing_answers(table):
            if records.statements.path is None:
                cure = f"saccade card {records.directory} --init writes {STATEMENTS_FILE} with the questions"
            else:
                cure = f"fill in {records.statements.path}"
            lines.append(f"the {name} says nothing of {', '.join(blanks)}; {cure}")
    return lines


def missing_suites(records: RunRecords, task: Task | None) -> list[str]:
    """Which suites have not been run on this model as it is."""
    found = ((suite, _why_missing(suite, records)) for suite in suites_for(task))
    again = f"saccade audit {records.directory} --suite"
    return [f"the suite {suite.name} {why}; {again} {suite.name} runs it" for suite, why in found if why]


def _why_missing(suite: Suite, records: RunRecords) -> str:
    if suite.name in records.missing and not records.settings:
        return ""  # a model that came from elsewhere, whose training data nobody here has; its card says so
    audited = records.audits.get(suite.name)
    if audited is None:
        return "has not been run"
    if "splits" in suite.requires and records.settings and audited.fingerprint.files != records.data:
        return f"was run on other data ({', '.join(audited.fingerprint.files)}) than this run learnt from"
    if (
        audited.fingerprint.builtin_data_digest
        and audited.fingerprint.builtin_data_digest != suite.builtin_data_digest()
    ):
        return "is stale (its own sentences are others now)"
    why = stale_reason(audited.fingerprint, records.weights_digest)
    return f"is stale ({why})" if why else ""


def check_gate(records: RunRecords, task: Task | None) -> None:
    """Refuse a model that lacks something, with all that it lacks."""
    if lines := missing_items(records, task):
        told = "".join(f"\n  - {line}" for line in lines)
        raise ExportRefused(
            f"{records.directory} is not ready to go out:{told}\n"
            'Do that first, or export it with --unaudited "REASON", which its card will carry.'
        )
