"""The results of an audit as a value: as text for the terminal, as a table for a notebook, and as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.audit.compare import COMPARISON_WARNING, AuditComparison
from saccade.audit.suite import AuditTable, Estimate, SuiteResult
from saccade.notebook import html_table

MAX_ROWS_PRINTED = 12


@dataclass(frozen=True)
class AuditReport:
    """The results of an audit by suite, the suites that were not run with the reason, and where the results were written."""

    suites: Mapping[str, SuiteResult]
    missing: Mapping[str, str] = field(default_factory=dict)  # suites that apply but lack their data
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    comparison: AuditComparison | None = None
    path: Path | None = None  # audit.json; None for data that were audited before training

    def __getitem__(self, suite: str) -> SuiteResult:
        return self.suites[suite]

    def as_dict(self) -> dict[str, Any]:
        """All results as plain values, as `saccade audit --json` prints them."""
        report: dict[str, Any] = {"suites": {name: result.as_dict() for name, result in self.suites.items()}}
        report["not_run"] = dict(self.missing)
        report |= {} if self.comparison is None else {"comparison": self.comparison.as_dict()}
        return report | {"not_applicable": dict(self.inapplicable), "file": self.path and str(self.path)}

    def __repr__(self) -> str:
        lines = [line for result in self.suites.values() for line in format_suite_result(result).splitlines()]
        lines += [] if self.comparison is None else [format_comparison(self.comparison)]
        return "\n".join([*lines, *self.format_missing()]).lstrip("\n")

    def format_missing(self) -> list[str]:
        """A line for every suite that was not run, with the reason."""
        return [f"{name}: not run, because {why}." for name, why in {**self.missing, **self.inapplicable}.items()]

    def _repr_html_(self) -> str:
        rows = [
            (name, one.name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.count:,}", _baseline(one))
            for name, result in self.suites.items()
            for one in result.estimates
        ]
        columns = ("suite", "metric", "value", "95 % interval", "cases", "baseline")
        return html_table(columns, rows, caption=" ".join(self.format_missing()))


def _baseline(estimate: Estimate) -> str:
    if estimate.baseline is None:
        return ""
    return f"{estimate.baseline:.3g}, {'significant' if estimate.is_significant else 'not significant'}"


def format_suite_result(result: SuiteResult) -> str:
    """A result as text: estimates, notes, tables, interpretation and limitations."""
    lines = [f"\n{result.suite}", *(f"  {line}" for line in (*result.estimates, *result.notes))]
    tables = (*result.tables, *([result.examples] if result.examples else []))
    lines += [format_audit_table(table, max_rows=MAX_ROWS_PRINTED) for table in tables]
    return "\n".join([*lines, f"\n  Interpretation: {result.interpretation}", f"  Limitations: {result.limitations}"])


def format_audit_table(table: AuditTable, *, max_rows: int) -> str:
    """A table as text, with its first rows."""
    lines = [f"\n  {table.title}"]
    for row in (table.columns, *table.rows[:max_rows]):
        lines.append("    " + "  ".join(cell if len(cell) < 60 else cell[:57] + "..." for cell in row))
    more = len(table.rows) - max_rows
    return "\n".join([*lines, *([f"    and {more} more rows in audit.json"] if more > 0 else [])])


def format_comparison(comparison: AuditComparison) -> str:
    """Both audits side by side, with notes and the warning about comparisons."""
    table = format_audit_table(comparison.table, max_rows=len(comparison.rows))
    return "\n".join([table, *(f"  {line}" for line in (*comparison.notes, COMPARISON_WARNING))])
