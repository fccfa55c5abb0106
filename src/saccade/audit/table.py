"""Every suite, a line each, and which of them a task is held to."""

from saccade.attention.table import nearest
from saccade.audit.data import Data
from saccade.audit.gender.suite import Genders
from saccade.audit.pairs import Pairs
from saccade.audit.regard.suite import Regard
from saccade.audit.suite import Suite
from saccade.audit.swap import Swap
from saccade.errors import UsageError
from saccade.tasks.task import Task

SUITES: list[Suite] = [Data(), Swap(), Pairs(), Genders(), Regard()]


def suites_for(task: Task | None) -> list[Suite]:
    """The suites that say something of models for a task."""
    return [] if task is None else [suite for suite in SUITES if not suite.unfit(task)]


def reasons(task: Task | None) -> dict[str, str]:
    """Of each other suite why it does not."""
    if task is None:
        return dict.fromkeys((suite.name for suite in SUITES), "this body has no head, so it answers nothing yet")
    return {suite.name: why for suite in SUITES if (why := suite.unfit(task))}


def suite_named(name: str) -> Suite:
    """The suite of that name, or an error with the nearest."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    raise UsageError(f"There is no suite {name!r}; {nearest(name, [suite.name for suite in SUITES])}")
