"""The table of promises names tests that exist, counts what they report, and is made from its record."""

import ast
import json

import pytest

from promise_table import PAGE, RECORD, ROOT, count, page, promises

REPORTS = [
    ("tests/a.py::test_x[1]", "setup", "passed", []),
    ("tests/a.py::test_x[1]", "call", "passed", [("trials", 20)]),
    ("tests/a.py::test_x[2]", "call", "failed", []),
    ("tests/a.py::test_y", "setup", "skipped", []),
    ("tests/b.py::test_x", "setup", "failed", []),
    ("tests/c.py::test_x", "call", "failed", []),
]


@pytest.mark.parametrize("name", promises())
def test_every_promise_has_tests_that_exist(name):
    for test in promises()[name]["tests"]:
        file, _, function = test.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
        assert known
        assert not function or function in known, test


def test_trials_failures_and_skipped_tests_are_counted():
    reports = [
        pytest.TestReport(id, ("", 0, ""), {}, outcome, None, when, user_properties=properties)  # type: ignore[arg-type]
        for id, when, outcome, properties in REPORTS
    ]
    known = {"A": {"tests": ["tests/a.py"]}, "B": {"tests": ["tests/a.py::test_x", "tests/b.py"]}, "C": {"tests": []}}
    assert count(reports, known) == {
        "A": {"trials": 21, "failures": 1, "skipped": 1},
        "B": {"trials": 22, "failures": 2, "skipped": 0},
    }


def test_the_page_is_made_from_the_record():
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(RECORD.read_text(encoding="utf-8")))


def test_a_promise_without_a_run_says_nothing_of_trials():
    row = next(line for line in page({}).splitlines() if line.startswith("| N1 |"))
    assert row.count("|") == 8
    assert [cell.strip() for cell in row.split("|")[3:6]] == ["", "", ""]
