"""Which held-out examples are looked at on the way: evenly some of them, so that a look does not take long."""

import numpy as np

from saccade.data import Example
from saccade.tasks.task import Item
from saccade.training.job import Ready


def some(ready: Ready) -> tuple[list[Item], list[Example]]:
    """Held-out items for the looks on the way, evenly from all of them, and their examples."""
    examples, most = ready.splits.dev.examples, ready.config.look_at
    if ready.task.running:
        items = ready.task.items(examples, ready.model)
        items = [items[i] for i in _even(len(items), most)]
        return items, [item.example for item in items]
    examples = [examples[i] for i in _even(len(examples), most)]
    return ready.task.items(examples, ready.model), examples


def _even(count: int, most: int) -> list[int]:
    return list(range(count)) if count <= most else np.linspace(0, count - 1, most).astype(int).tolist()
