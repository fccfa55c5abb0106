"""Texts with the words of one group exchanged for those of another, by what their task says of itself."""

from saccade.data import Example
from saccade.data.counterfactual import Counterfactual
from saccade.data.counterfactual import build_counterfactual as made
from saccade.tasks.base import Task
from saccade.text.counterfactual_words import Dimension


def make_task_counterfactual(task: Task, example: Example, dimension: Dimension) -> Counterfactual | None:
    """The counterpart of an example; None where it has none."""
    return made(example, task.counterfactual_roles, task.preserved_gold_roles, dimension)


def format_input(example: Example, task: Task) -> str:
    """What an example reads, in one line."""
    parts = (example[role] for role in task.counterfactual_roles)
    return " / ".join(" ".join(part) if isinstance(part, list) else part for part in parts)
