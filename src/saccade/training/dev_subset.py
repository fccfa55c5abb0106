"""The part of the dev set that is evaluated during training: evenly spaced examples, so that an evaluation is quick."""

import numpy as np

from saccade.data import Example
from saccade.tasks.base import Item
from saccade.training.prepare import PreparedRun


def dev_subset(prepared_run: PreparedRun) -> tuple[list[Item], list[Example]]:
    """Encoded items and examples of the dev set, at most `max_eval_examples` of them, evenly spaced."""
    examples, max_count = prepared_run.splits.dev.examples, prepared_run.config.max_eval_examples
    if prepared_run.task.is_text_stream:
        items = prepared_run.task.encode(examples, prepared_run.model)
        items = [items[i] for i in _spaced_indices(len(items), max_count)]
        return items, [item.example for item in items]
    examples = [examples[i] for i in _spaced_indices(len(examples), max_count)]
    return prepared_run.task.encode(examples, prepared_run.model), examples


def _spaced_indices(count: int, max_count: int) -> list[int]:
    return list(range(count)) if count <= max_count else np.linspace(0, count - 1, max_count).astype(int).tolist()
