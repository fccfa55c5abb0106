"""Measurements of a captioner on synthetic scenes: attention mass on the named objects, and the variance of the gradient."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from saccade.attention.watch import watch
from saccade.data import Batch, Example
from saccade.data.samples.shapes import COLORS, IMAGE_SIZE, SHAPES, SIZES, SceneObject
from saccade.decoding.loop import teacher_forced_logits
from saccade.explain.look import eval_mode
from saccade.metrics import Score
from saccade.metrics.score import measure, ratio
from saccade.models.model import Model
from saccade.tasks.base import Task

CROSS_ATTENTION_GLOB = "*across.mechanism"  # the cross-attention to the grid of image features
OBJECT_WORDS = {*(size.strip() for size in SIZES if size), *COLORS, *SHAPES}


def find_object_words(caption: str) -> list[tuple[int, int]]:
    """The words that describe an object: (index of the word, index of the object).

    >>> find_object_words("a red circle above a small blue square")
    [(1, 0), (2, 0), (5, 1), (6, 1), (7, 1)]
    """
    words, object_index = [], 0
    for index, word in enumerate(caption.split()):
        if word in OBJECT_WORDS:
            words.append((index, object_index))
        object_index += word in SHAPES
    return words


def mark_object_cells(thing: SceneObject, side: int) -> np.ndarray:
    """The cells of a side x side grid that overlap the bounding box of an object, (rows, columns) bool.

    >>> mark_object_cells(SceneObject("circle", "red", "small ", 4.0, 12.0), 4).astype(int)
    array([[0, 0, 0, 0],
           [1, 0, 0, 0],
           [0, 0, 0, 0],
           [0, 0, 0, 0]])
    """
    cell_size, half = IMAGE_SIZE / side, SIZES[thing.size]
    starts = np.arange(side) * cell_size

    def overlaps(center: float) -> np.ndarray:
        return (starts < center + half) & (starts + cell_size > center - half)

    return overlaps(thing.y)[:, None] & overlaps(thing.x)[None]


def collect_attention(task: Task, model: Model, examples: Sequence[Example]) -> list[np.ndarray]:
    """The attention weights for each word of the gold captions (teacher forcing), (words, rows, columns) for each example."""
    items = task.encode(examples, model)
    with eval_mode(model), watch(model, CROSS_ATTENTION_GLOB) as looks:
        teacher_forced_logits(model, task.batch(items))
    steps = [look.weights[:, 0, 0] for look in looks if look.weights is not None]  # one per word, (B, rows, columns)
    weights = torch.stack(steps, dim=1).float().numpy()
    return [weights[row, : len(example["caption"].split())] for row, example in enumerate(examples)]


def measure_attention_mass(weights: Sequence[np.ndarray], examples: Sequence[Example]) -> dict[str, Score]:
    """The share of the attention on the object that a word names, on the other object, and its chance level."""
    rows: dict[str, list[list[float]]] = {"named_object": [], "other_object": [], "chance": []}
    for example_weights, example in zip(weights, examples, strict=True):
        objects = example["scene"].objects
        object_cells = [mark_object_cells(index, example_weights.shape[1]) for index in objects]
        words = find_object_words(example["caption"])
        rows["named_object"].append(
            [sum(float(example_weights[word][object_cells[index]].sum()) for word, index in words), len(words)]
        )
        rows["chance"].append([sum(float(object_cells[index].mean()) for _, index in words), len(words)])
        if len(objects) == 2:
            rows["other_object"].append(
                [sum(float(example_weights[word][object_cells[1 - index]].sum()) for word, index in words), len(words)]
            )
    return {name: measure(name, ratio, np.array(values)) for name, values in rows.items() if values}


def compute_gradient(task: Task, model: Model, batch: Batch, seed: int) -> Tensor:
    """The gradient of one step as one flat vector, with `seed` for all random sampling."""
    torch.manual_seed(seed)
    model.train()
    model.zero_grad(set_to_none=True)
    (task.loss(model, batch) / task.count_targets(batch)).backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    return torch.cat(gradients)


def relative_variance(gradients: Sequence[Tensor]) -> float:
    """The variance of a gradient relative to its squared norm: Σ var(g_i) / |mean g|².

    >>> relative_variance([torch.tensor([3.0, 0.0]), torch.tensor([5.0, 0.0])])  # variances 2 and 0, mean (4, 0)
    0.125
    """
    table = torch.stack(list(gradients)).double()
    if len(table) < 2:
        raise ValueError(f"A variance needs at least two gradients; got {len(table)}.")
    return float(table.var(0).sum() / table.mean(0).square().sum())
