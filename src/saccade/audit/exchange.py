"""Texts with the words of one group exchanged for those of another, by what their task says of itself."""

from saccade.data import Example
from saccade.data.twins import Twin
from saccade.data.twins import twin as made
from saccade.tasks.task import Task
from saccade.text.swap import Dimension


def twin(task: Task, example: Example, dimension: Dimension) -> Twin | None:
    """The counterpart of an example; None where it has none."""
    return made(example, task.counterfactual_roles, task.unchanged_gold, dimension)


def shown(example: Example, task: Task) -> str:
    """What an example reads, in one line."""
    parts = (example[role] for role in task.counterfactual_roles)
    return " / ".join(" ".join(part) if isinstance(part, list) else part for part in parts)
