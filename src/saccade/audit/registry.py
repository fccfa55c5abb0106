"""Every suite, a line each, and which of them a task is held to."""

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
    """The suites that say something of models for a task."""
    return [] if task is None else [suite for suite in SUITES if not suite.not_applicable(task)]


def inapplicable_suites(task: Task | None) -> dict[str, str]:
    """Of each other suite why it does not."""
    if task is None:
        return dict.fromkeys((suite.name for suite in SUITES), "this body has no head, so it answers nothing yet")
    return {suite.name: why for suite in SUITES if (why := suite.not_applicable(task))}


def find_suite(name: str) -> Suite:
    """The suite of that name, or an error with the nearest."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    raise UsageError(f"There is no suite {name!r}; {suggest(name, [suite.name for suite in SUITES])}")
