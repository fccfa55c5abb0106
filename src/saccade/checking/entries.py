"""The contract of an entry of a registry by its kind and name, as `saccade check` and the pytest plugin test it."""

from collections.abc import Callable, Mapping, Sequence

from saccade.attention import get_mechanism
from saccade.checking.check import CheckReport
from saccade.checking.contract import Requirement
from saccade.checking.mechanism_contract import MECHANISM_REQUIREMENTS, check_mechanism
from saccade.checking.model_contracts import (
    FAMILY_REQUIREMENTS,
    POSITION_REQUIREMENTS,
    TASK_REQUIREMENTS,
    check_family,
    check_position,
    check_task,
)
from saccade.errors import UsageError
from saccade.models.registry import get_family
from saccade.parts.position import get_position
from saccade.tasks.registry import task_class

CHECKS: dict[str, Callable[[str], CheckReport]] = {
    "mechanism": lambda name: check_mechanism(get_mechanism(name)),
    "position": lambda name: check_position(get_position(name)),
    "family": lambda name: check_family(get_family(name)),
    "task": lambda name: check_task(task_class(name)),
}
REQUIREMENTS: Mapping[str, Sequence[Requirement]] = {
    "mechanism": MECHANISM_REQUIREMENTS,
    "position": POSITION_REQUIREMENTS,
    "family": FAMILY_REQUIREMENTS,
    "task": TASK_REQUIREMENTS,
}


def check_entry(kind: str, name: str) -> CheckReport:
    """Test the contract of a mechanism, position, family or task; an unknown name raises an error that suggests the nearest."""
    try:
        return CHECKS[kind](name)
    except ValueError as error:
        raise UsageError(str(error)) from error
