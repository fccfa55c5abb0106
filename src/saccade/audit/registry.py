"""The table of audit suites, and which of them apply to a task."""

from saccade.audit.suite import Suite
from saccade.audit.suites.counterfactual import CounterfactualSuite
from saccade.audit.suites.data import DataSuite
from saccade.audit.suites.gender.suite import GenderSuite
from saccade.audit.suites.regard.suite import RegardSuite
from saccade.audit.suites.stereotypes import StereotypeSuite
from saccade.errors import UsageError
from saccade.suggest import suggest
from saccade.tasks.base import Task

SUITES: list[Suite] = [DataSuite(), CounterfactualSuite(), StereotypeSuite(), GenderSuite(), RegardSuite()]


def suites_for(task: Task | None) -> list[Suite]:
    """The suites that apply to models for a task."""
    return [] if task is None else [suite for suite in SUITES if not suite.not_applicable(task)]


def inapplicable_suites(task: Task | None) -> dict[str, str]:
    """The suites that do not apply to models for a task, each with the reason."""
    if task is None:
        return dict.fromkeys((suite.name for suite in SUITES), "this model has no head, so it makes no predictions yet")
    return {suite.name: reason for suite in SUITES if (reason := suite.not_applicable(task))}


def find_suite(name: str) -> Suite:
    """The suite with this name; an unknown name raises an error that suggests the nearest one."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    raise UsageError(f"There is no suite {name!r}; {suggest(name, [suite.name for suite in SUITES])}")
