"""What is measured of a captioner in the picture world: do its looks fall on what it names, and how noisy is its gradient?"""

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

CROSS_ATTENTION_GLOB = "*across.mechanism"  # the look at the grid of cells
OBJECT_WORDS = {*(size.strip() for size in SIZES if size), *COLORS, *SHAPES}


def find_object_words(caption: str) -> list[tuple[int, int]]:
    """Which words name a thing, and which thing: (number of the word, number of the thing).

    >>> find_object_words("a red circle above a small blue square")
    [(1, 0), (2, 0), (5, 1), (6, 1), (7, 1)]
    """
    found, thing = [], 0
    for number, word in enumerate(caption.split()):
        if word in OBJECT_WORDS:
            found.append((number, thing))
        thing += word in SHAPES
    return found


def mark_object_cells(thing: SceneObject, side: int) -> np.ndarray:
    """Which cells of a grid of side x side the box around a thing touches, (rows, columns) of bool.

    >>> mark_object_cells(SceneObject("circle", "red", "small ", 4.0, 12.0), 4).astype(int)
    array([[0, 0, 0, 0],
           [1, 0, 0, 0],
           [0, 0, 0, 0],
           [0, 0, 0, 0]])
    """
    step, half = IMAGE_SIZE / side, SIZES[thing.size]
    starts = np.arange(side) * step

    def touched(middle: float) -> np.ndarray:
        return (starts < middle + half) & (starts + step > middle - half)

    return touched(thing.y)[:, None] & touched(thing.x)[None]


def collect_attention(task: Task, model: Model, examples: Sequence[Example]) -> list[np.ndarray]:
    """Where it looks as it writes each word of the right captions, (words, rows, columns) for each example."""
    items = task.encode(examples, model)
    with eval_mode(model), watch(model, CROSS_ATTENTION_GLOB) as looks:
        teacher_forced_logits(model, task.batch(items))
    steps = [
        look.weights[:, 0, 0] for look in looks if look.weights is not None
    ]  # a look for each word, (B, rows, columns)
    whole = torch.stack(steps, dim=1).float().numpy()
    return [whole[number, : len(example["caption"].split())] for number, example in enumerate(examples)]


def measure_attention_mass(weights: Sequence[np.ndarray], examples: Sequence[Example]) -> dict[str, Score]:
    """The share of the looks that falls on the thing that a word names, on the other thing, and what chance would give."""
    rows: dict[str, list[list[float]]] = {"named_object": [], "other_object": [], "chance": []}
    for look, example in zip(weights, examples, strict=True):
        things = example["scene"].objects
        grids = [mark_object_cells(thing, look.shape[1]) for thing in things]
        words = find_object_words(example["caption"])
        rows["named_object"].append([sum(float(look[word][grids[thing]].sum()) for word, thing in words), len(words)])
        rows["chance"].append([sum(float(grids[thing].mean()) for _, thing in words), len(words)])
        if len(things) == 2:
            rows["other_object"].append(
                [sum(float(look[word][grids[1 - thing]].sum()) for word, thing in words), len(words)]
            )
    return {name: measure(name, ratio, np.array(some)) for name, some in rows.items() if some}


def compute_gradient(task: Task, model: Model, batch: Batch, seed: int) -> Tensor:
    """The gradient of one step as one long vector; what is drawn on the way is drawn from `seed`."""
    torch.manual_seed(seed)
    model.train()
    model.zero_grad(set_to_none=True)
    (task.loss(model, batch) / task.count_targets(batch)).backward()
    found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    return torch.cat(found)


def relative_variance(gradients: Sequence[Tensor]) -> float:
    """The variance of a gradient over its squared length: Σ var(g_i) / |mean g|².

    >>> relative_variance([torch.tensor([3.0, 0.0]), torch.tensor([5.0, 0.0])])  # variances 2 and 0, mean (4, 0)
    0.125
    """
    table = torch.stack(list(gradients)).double()
    if len(table) < 2:
        raise ValueError(f"A variance needs two gradients or more; got {len(table)}.")
    return float(table.var(0).sum() / table.mean(0).square().sum())
