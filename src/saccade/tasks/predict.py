"""Inference and evaluation: the predictions of a model for many examples, in batches of similar length."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from saccade.data import Batch, Example
from saccade.errors import ModelError
from saccade.metrics import Score
from saccade.models.model import Model
from saccade.tasks.base import Item, Task

Predictor = Callable[[Model, Batch], Sequence[Any]]  # from a batch to one answer per row
MAX_TOKENS_PER_BATCH = 8192  # padding included
MAX_ROWS_PER_BATCH = 256


def predict(
    task: Task,
    model: Model,
    examples: Sequence[Example],
    *,
    on_progress: Callable[[int, int], None] = lambda done, all: None,
    predictor: Predictor | None = None,
    rows_per_item: int = 1,
    batch_size: int | None = None,
) -> tuple[list[Any], list[Example]]:
    """The answers in the order of the examples, and the examples that they belong to: windows, for a running text.

    `on_progress` is called with the number of finished items and of all items. `predictor` replaces `task.answer`, and
    `rows_per_item` is the number of rows that it needs per item, such as the number of beams.
    """
    items = task.encode(examples, model)
    answers = predict_items(
        task,
        model,
        items,
        on_progress=on_progress,
        predictor=predictor,
        rows_per_item=rows_per_item,
        batch_size=batch_size,
    )
    return task.merge_answers(answers, items), [item.example for item in items] if task.is_text_stream else list(
        examples
    )


def predict_items(
    task: Task,
    model: Model,
    items: Sequence[Item],
    *,
    on_progress: Callable[[int, int], None] = lambda done, all: None,
    predictor: Predictor | None = None,
    rows_per_item: int = 1,
    batch_size: int | None = None,
) -> list[Any]:
    """The answers in the order of the items; restores the training mode of the model."""
    out: list[Any] = [None] * len(items)
    done = 0
    with _eval_mode(model):
        for indices, batch in _length_sorted_batches(task, model, items, rows_per_item, batch_size):
            for i, answer in zip(indices, (predictor or task.answer)(model, batch), strict=True):
                out[i] = answer
            done += len(indices)
            on_progress(done, len(items))
    return out


def check_answers(answers: Iterable[Any]) -> None:
    """Raise an error if an answer contains NaN or infinity, for example because training diverged.

    >>> check_answers([{"label": "good", "scores": [0.2, float("nan")]}])
    Traceback (most recent call last):
    ...
    saccade.errors.ModelError: The model answers with numbers that are not finite, so its answers mean nothing; ...
    """
    values = list(answers)
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value
        elif isinstance(value, float) and not math.isfinite(value):
            raise ModelError(
                "The model answers with numbers that are not finite, so its answers mean nothing; "
                "its training diverged or its weights are damaged."
            )


def mean_loss(
    task: Task, model: Model, items: Sequence[Item], *, on_progress: Callable[[int, int], None] = lambda done, all: None
) -> float:
    """The mean loss of items with gold, per target as in training; uses a fixed seed and restores the RNG state of training."""
    total, count, done = 0.0, 0, 0
    with _eval_mode(model), torch.random.fork_rng():
        torch.manual_seed(0)
        for indices, batch in _length_sorted_batches(task, model, items):
            total += float(task.loss(model, batch))
            count += task.count_targets(batch)
            done += len(indices)
            on_progress(done, len(items))
    return total / max(1, count)


@contextmanager
def _eval_mode(model: Model) -> Iterator[None]:
    """Inference mode without gradients; restores the training mode of the model."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def _length_sorted_batches(
    task: Task, model: Model, items: Sequence[Item], rows_per_item: int = 1, batch_size: int | None = None
) -> Iterator[tuple[list[int], Batch]]:
    """Item indices and batches of items of similar length, longest first, so that out-of-memory errors come early."""
    order = np.argsort([-sum(item.lengths) for item in items], kind="stable").tolist()
    device = next(model.parameters()).device
    done = 0
    while done < len(order):
        longest = max(1, sum(items[order[done]].lengths))
        rows = batch_size or min(MAX_ROWS_PER_BATCH, MAX_TOKENS_PER_BATCH // longest)
        indices = order[done : done + max(1, rows // rows_per_item)]
        yield indices, task.batch([items[i] for i in indices]).to(device)
        done += len(indices)


def evaluate(
    task: Task,
    model: Model,
    examples: Sequence[Example],
    *,
    on_progress: Callable[[int, int], None] = lambda done, all: None,
) -> list[Score]:
    """The scores of a model on examples, the metric of the task first."""
    answers, scored_examples = predict(task, model, examples, on_progress=on_progress)
    check_answers(answers)
    return score_answers(task, model, answers, scored_examples)


def score_answers(task: Task, model: Model, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
    """The scores of answers; their signatures contain the settings they depend on, such as the window of a perplexity."""
    settings = task.scoring_settings(model)
    return [score.with_signature(**settings) for score in task.score(answers, examples)]
