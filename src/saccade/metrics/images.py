"""Metrics of generated images: mean costs, and whether images of the synthetic shapes dataset show what their caption says.

Shapes are recognized by `saccade.data.samples.shape_parser`, which makes no mistake on images of that dataset: a shape
that it does not find in a generated image is not clearly there.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from saccade.data.samples.shape_parser import parse_shapes
from saccade.data.samples.shapes import IMAGE_SIZE, Scene, caption_is_true, parse_caption
from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio


def mean_cost(
    name: str, values: Sequence[float], *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """The mean of a cost per example, where lower is better.

    >>> print(mean_cost("error", [0.25, 0.25]))
    error 0.250 (0.250–0.250), 2 examples
    """
    units = np.array([[value, 1.0] for value in values]).reshape(-1, 2)
    return measure(name, ratio, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def score_scenes(
    texts: Sequence[str],
    images: Sequence[np.ndarray],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> list[Score]:
    """The fraction of images that match their caption, and of objects whose color and whose shape is found.

    Returns no scores for captions of another kind or images of another size.
    """
    check_pairs("scenes_correct", texts, images)
    captions = [parse_caption(text) for text in texts]
    if not texts or None in captions or any(image.shape != (IMAGE_SIZE, IMAGE_SIZE, 3) for image in images):
        return []
    scenes = [parse_shapes(image) for image in images]
    correct = [
        [float(scene is not None and caption_is_true(text, scene)), 1.0]
        for text, scene in zip(texts, scenes, strict=True)
    ]
    tables = {"scenes_correct": correct}
    for name, part in (("colors", 1), ("shapes", 2)):
        expected = [[thing[part] for thing in caption[:-1]] for caption in captions if caption is not None]
        tables[name] = [_count_matches(names, scene, name[:-1]) for names, scene in zip(expected, scenes, strict=True)]
    return [
        measure(name, ratio, np.array(rows), bootstrap_samples=bootstrap_samples, seed=seed)
        for name, rows in tables.items()
    ]


def _count_matches(expected: list[str], scene: Scene | None, name: str) -> list[float]:
    """How many of the expected colors or shapes are found, and the larger of the numbers of expected and found objects."""
    found = Counter() if scene is None else Counter(str(vars(thing)[name]) for thing in scene.objects)
    return [float((Counter(expected) & found).total()), float(max(len(expected), found.total()))]
