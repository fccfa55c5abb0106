"""Counterfactuals of the examples of a task: words for one group are swapped for those of another."""

from saccade.data import Example
from saccade.data.counterfactual import Counterfactual, build_counterfactual
from saccade.tasks.base import Task
from saccade.text.counterfactual_words import Dimension


def make_task_counterfactual(task: Task, example: Example, dimension: Dimension) -> Counterfactual | None:
    """The counterfactual of an example; None if no word can be swapped."""
    return build_counterfactual(example, task.counterfactual_roles, task.preserved_gold_roles, dimension)


def format_input(example: Example, task: Task) -> str:
    """The input texts of an example, in one line."""
    parts = (example[role] for role in task.counterfactual_roles)
    return " / ".join(" ".join(part) if isinstance(part, list) else part for part in parts)
