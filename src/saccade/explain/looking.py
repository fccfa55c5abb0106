"""Where a model looked while it read or wrote one item of its task: the maps that reports and the demonstration draw."""

from dataclasses import replace

from saccade.explain.inputs import of_batch
from saccade.explain.look import look_at
from saccade.explain.looks import ATTENTION, Seen
from saccade.models.model import Model
from saccade.tasks.task import Item, Task


def seen(task: Task, model: Model, item: Item, target: list[int] | None = None) -> list[Seen]:
    """Every attention of a model over one item; a writer is watched while it writes `target`, or the item's own."""
    asked = of_batch(task, model, task.batch([item]))
    if model.capabilities.autoregressive:
        words = target if target is not None else [] if item.target is None else item.target.tolist()
        asked = replace(asked, target=tuple(words) if words or asked.alone else (0,))
    return [one for one in look_at(replace(asked, task=None)).maps if one.kind in ATTENTION]
