"""Where a model looked while it read or wrote one item of its task: the maps that reports and the demonstration draw."""

from dataclasses import replace

from saccade.explain.inputs import make_input_from_batch
from saccade.explain.look import look_at
from saccade.explain.maps import ATTENTION_KINDS, AttentionMap
from saccade.models.model import Model
from saccade.tasks.base import Item, Task


def collect_attention_maps(task: Task, model: Model, item: Item, target: list[int] | None = None) -> list[AttentionMap]:
    """Every attention of a model over one item; a writer is watched while it writes `target`, or the item's own."""
    asked = make_input_from_batch(task, model, task.batch([item]))
    if model.capabilities.is_autoregressive:
        words = target if target is not None else [] if item.target is None else item.target.tolist()
        asked = replace(asked, target=tuple(words) if words or asked.continues_input else (0,))
    return [one for one in look_at(replace(asked, task=None)).maps if one.kind in ATTENTION_KINDS]
