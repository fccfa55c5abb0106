"""The gate: a model goes out with both statements and a current audit, or with a reason for which it has none."""

from saccade.audit.marks import changed
from saccade.audit.records import Records
from saccade.audit.statements import FILE, STATEMENTS
from saccade.audit.suite import Suite
from saccade.audit.table import suites_for
from saccade.errors import ModelError
from saccade.tasks.task import Task


class Shut(ModelError):
    """A model that may not go out yet."""


def lacking(records: Records, task: Task | None) -> list[str]:
    """What a model still lacks, in lines for a person; none where it may go out."""
    return [*undescribed(records), *unaudited(records, task)]


def undescribed(records: Records) -> list[str]:
    """What the statements still lack."""
    lines = []
    for table, name in STATEMENTS.items():
        if blanks := records.statements.lacking(table):
            if records.statements.path is None:
                cure = f"saccade card {records.home} --init writes {FILE} with the questions"
            else:
                cure = f"fill in {records.statements.path}"
            lines.append(f"the {name} says nothing of {', '.join(blanks)}; {cure}")
    return lines


def unaudited(records: Records, task: Task | None) -> list[str]:
    """Which suites have not been run on this model as it is."""
    found = ((suite, _wanting(suite, records)) for suite in suites_for(task))
    again = f"saccade audit {records.home} --suite"
    return [f"the suite {suite.name} {why}; {again} {suite.name} runs it" for suite, why in found if why]


def _wanting(suite: Suite, records: Records) -> str:
    if suite.name in records.missing and not records.settings:
        return ""  # a model that came from elsewhere, whose training data nobody here has; its card says so
    audited = records.audits.get(suite.name)
    if audited is None:
        return "has not been run"
    if "splits" in suite.reads and records.settings and audited.mark.files != records.data:
        return f"was run on other data ({', '.join(audited.mark.files)}) than this run learnt from"
    if audited.mark.source and audited.mark.source != suite.source():
        return "is stale (its own sentences are others now)"
    why = changed(audited.mark, records.weights)
    return f"is stale ({why})" if why else ""


def check_gate(records: Records, task: Task | None) -> None:
    """Refuse a model that lacks something, with all that it lacks."""
    if lines := lacking(records, task):
        told = "".join(f"\n  - {line}" for line in lines)
        raise Shut(
            f"{records.home} is not ready to go out:{told}\n"
            'Do that first, or export it with --unaudited "REASON", which its card will carry.'
        )
