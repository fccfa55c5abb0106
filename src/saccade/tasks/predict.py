"""Questions in, answers out: a task put to a model on many examples, in batches of like length."""

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

Predictor = Callable[[Model, Batch], Sequence[Any]]  # a batch to an answer for each row
MAX_TOKENS_PER_BATCH = 8192  # at a time, padding counted
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
    """The answer to each example, in their order, and the examples that were answered: windows, for a running text.

    `told` hears how many of all are done; `ask` is how the model is asked, where that is not `task.max_answer_tokens`, and `times` how
    many rows it makes of each, as beams do.
    """
    items = task.encode(examples, model)
    found = predict_items(
        task,
        model,
        items,
        on_progress=on_progress,
        predictor=predictor,
        rows_per_item=rows_per_item,
        batch_size=batch_size,
    )
    return task.merge_answers(found, items), [item.example for item in items] if task.is_text_stream else list(examples)


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
    """The answer to each item, in their order; the model is left in the mode in which it came."""
    out: list[Any] = [None] * len(items)
    done = 0
    with _eval_mode(model):
        for numbers, batch in _length_sorted_batches(task, model, items, rows_per_item, batch_size):
            for i, answer in zip(numbers, (predictor or task.answer)(model, batch), strict=True):
                out[i] = answer
            done += len(numbers)
            on_progress(done, len(items))
    return out


def check_answers(answers: Iterable[Any]) -> None:
    """Refuse answers with a number that is not finite, as a model gives whose weights are too large to compute with.

    >>> check_answers([{"label": "good", "chances": [0.2, float("nan")]}])
    Traceback (most recent call last):
    ...
    saccade.errors.ModelError: The model answers with numbers that are not finite, so its answers mean nothing; ...
    """
    rest = list(answers)
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += one.values()
        elif isinstance(one, list | tuple):
            rest += one
        elif isinstance(one, float) and not math.isfinite(one):
            raise ModelError(
                "The model answers with numbers that are not finite, so its answers mean nothing; "
                "its training diverged or its weights are damaged."
            )


def mean_loss(
    task: Task, model: Model, items: Sequence[Item], *, on_progress: Callable[[int, int], None] = lambda done, all: None
) -> float:
    """The loss of a model on items whose gold is known, divided as in training; what is random in it is drawn anew each time
    from the same seed, and the draws of training are left as they were."""
    total, count, done = 0.0, 0, 0
    with _eval_mode(model), torch.random.fork_rng():
        torch.manual_seed(0)
        for numbers, batch in _length_sorted_batches(task, model, items):
            total += float(task.loss(model, batch))
            count += task.count_targets(batch)
            done += len(numbers)
            on_progress(done, len(items))
    return total / max(1, count)


@contextmanager
def _eval_mode(model: Model) -> Iterator[None]:
    """A model that answers and does not learn, left in the mode in which it came."""
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
    """Items of like length side by side, the longest first, so that memory shows early; and their numbers."""
    order = np.argsort([-sum(item.lengths) for item in items], kind="stable").tolist()
    device = next(model.parameters()).device
    done = 0
    while done < len(order):
        longest = max(1, sum(items[order[done]].lengths))
        rows = batch_size or min(MAX_ROWS_PER_BATCH, MAX_TOKENS_PER_BATCH // longest)
        numbers = order[done : done + max(1, rows // rows_per_item)]
        yield numbers, task.batch([items[i] for i in numbers]).to(device)
        done += len(numbers)


def evaluate(
    task: Task,
    model: Model,
    examples: Sequence[Example],
    *,
    on_progress: Callable[[int, int], None] = lambda done, all: None,
) -> list[Score]:
    """How good the answers are, the score that counts first."""
    found, asked = predict(task, model, examples, on_progress=on_progress)
    check_answers(found)
    return score_answers(task, model, found, asked)


def score_answers(task: Task, model: Model, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
    """The scores of answers, with what they depend on, such as the window of a perplexity, in their signatures."""
    settings = task.scoring_settings(model)
    return [score.with_signature(**settings) for score in task.score(answers, examples)]
