"""The table of promises: counts the trials and failures of the tests behind each promise, and writes docs/promises.md.

    pytest --promises push                   # the tests of every change
    pytest --promises nightly -m nightly

A test counts as one trial, or as many as it records with `record_property("trials", N)`. No failure in n trials bounds the
rate of failures by 3/n at 95 % confidence.
"""

import datetime
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "results" / "promises.json"
PAGE = ROOT / "docs" / "promises.md"
TIERS = ("push", "nightly")
HEADER = """# What saccade promises

The tests behind each promise, how many trials they made when they were last run, and how many failed. Those of every change run
with `make test`; `make nightly` runs the long ones too and makes this page. No failure in n trials bounds the rate of failures by
3/n at 95 % confidence. Where a promise is proven in part, the last column says what is missing.

| | promise | every change: trials, failed | nightly: trials, failed | failure rate below | last run | not proven yet |
|---|---|---|---|---|---|---|
"""

Counts = dict[str, int]


def promises() -> dict[str, dict[str, Any]]:
    """The promises by id, as `promises.toml` says them."""
    return tomllib.loads((ROOT / "tests" / "promises.toml").read_text(encoding="utf-8"))


def ids_of(nodeid: str, known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The promises that a test stands for.

    >>> ids_of("tests/a.py::test_x[2]", {"A": {"tests": ["tests/a.py"]}, "B": {"tests": ["tests/a.py::test_x"]}})
    ['A', 'B']
    """
    bare = nodeid.partition("[")[0]
    return [name for name, one in known.items() if {bare, bare.partition("::")[0]} & set(one["tests"])]


def count(reports: list[pytest.TestReport], known: Mapping[str, Mapping[str, Any]]) -> dict[str, Counts]:
    """Trials, failures and skipped tests of each promise."""
    found: dict[str, Counts] = {}
    for report in reports:
        if report.when != "call" and report.passed:
            continue  # the setting up of a test, which is counted when it is called
        trials = int(dict(report.user_properties).get("trials", 1))
        for name in ids_of(report.nodeid, known):
            one = found.setdefault(name, {"trials": 0, "failures": 0, "skipped": 0})
            one["skipped" if report.skipped else "trials"] += trials
            one["failures"] += report.failed
    return found


def page(record: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The table as Markdown."""
    rows = []
    for name, one in promises().items():
        ran = record.get(name, {})
        cells = [_cell(ran.get(tier)) for tier in TIERS]
        trials, failures = (sum(tier[what] for tier in ran.values()) for what in ("trials", "failures"))
        bound = f"{3 / trials:.2g}" if trials > 3 and not failures else ""
        dates = sorted({tier["date"] for tier in ran.values()})
        last = dates[-1] if dates else ""
        rows.append(f"| {' | '.join([name, one['text'], *cells, bound, last, one.get('missing', '')])} |")
    return HEADER + "\n".join(rows) + "\n"


def _cell(counts: Mapping[str, Any] | None) -> str:
    if counts is None:
        return ""
    skipped = f" ({counts['skipped']:,} skipped)" if counts["skipped"] else ""
    return f"{counts['trials']:,}, {counts['failures']:,}{skipped}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--promises", choices=TIERS, help="write the table of promises; the tests are those of this tier")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    tier = config.getoption("--promises")
    if not tier:
        return
    reports = [r for rows in terminalreporter.stats.values() for r in rows if isinstance(r, pytest.TestReport)]
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    today = datetime.date.today().isoformat()
    for name, counts in count(reports, promises()).items():
        record.setdefault(name, {})[tier] = counts | {"date": today}
    record = {name: dict(sorted(record[name].items())) for name in promises() if name in record}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(record), encoding="utf-8")
    terminalreporter.write_line(f"wrote {PAGE.relative_to(ROOT)}")
