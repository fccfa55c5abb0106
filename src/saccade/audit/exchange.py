"""Examples about the other group: what a task reads, with its words exchanged, and whether the answer is still the same."""

from collections.abc import Callable
from typing import Any

from saccade.data import Example
from saccade.data.twins import Twin
from saccade.data.twins import twin as made
from saccade.tasks.label import Label
from saccade.tasks.pair import Pair
from saccade.tasks.span import Span
from saccade.tasks.tag import Tag
from saccade.tasks.task import Task
from saccade.text.swap import Dimension

READ = {"label": ("text",), "pair": ("first", "second"), "tag": ("words",), "span": ("context", "question")}
GOLD = {"label": ("label", "labels"), "pair": ("label",), "tag": ("tags",), "span": ()}  # what stays true


def twin(task: Task, example: Example, dimension: Dimension) -> Twin | None:
    """The counterpart of an example; None where it has none."""
    return made(example, READ[task.name], GOLD[task.name], dimension)


def shown(example: Example, task: Task) -> str:
    """What an example reads, in one line."""
    parts = (example[role] for role in READ[task.name])
    return " / ".join(" ".join(part) if isinstance(part, list) else part for part in parts)


Said = Callable[[Any, Example], Any]


def said(task: Task) -> Said:
    """What an answer says, as a value that can be compared."""
    if isinstance(task, Label):
        return lambda answer, example: tuple(sorted(answer["labels"])) if task.many else answer["label"]
    if isinstance(task, Pair):
        return lambda answer, example: task.shown(answer, example)["score"] if task.graded else answer["label"]
    if isinstance(task, Span):
        return lambda answer, example: tuple(task.shown(answer, example)[key] for key in ("start", "end"))
    return lambda answer, example: tuple(answer)


def carried(task: Task, value: Any, pair: Twin) -> Any:
    """What was said of the text before, as it would be said of its counterpart: places in it move along."""
    if not isinstance(task, Span) or value[0] is None:
        return value
    return tuple(pair.swaps["context"].moved(place) for place in value)


def judged(task: Task) -> bool:
    """Whether an answer is right or wrong, and stays so when words are exchanged."""
    if isinstance(task, Label):
        return not task.many
    return isinstance(task, Tag) or (isinstance(task, Pair) and not task.graded)
