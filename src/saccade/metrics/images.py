"""How good painted pictures are: means of what each of them cost, and whether pictures of the picture world show what was asked.

What a picture shows is read by `saccade.data.samples.shape_parser`, which makes no mistake on pictures of that world: what it
does not find in a painted one is not clearly there.
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
    """The mean of a cost, the lower the better.

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
    """The share of pictures of which the text is true, of things whose shape is there, and of things whose colour is.

    For texts of another world, or pictures of another size, there is nothing to say: no scores.
    """
    check_pairs("scenes_correct", texts, images)
    asked = [parse_caption(text) for text in texts]
    if not texts or None in asked or any(picture.shape != (IMAGE_SIZE, IMAGE_SIZE, 3) for picture in images):
        return []
    seen = [parse_shapes(picture) for picture in images]
    right = [
        [float(scene is not None and caption_is_true(text, scene)), 1.0]
        for text, scene in zip(texts, seen, strict=True)
    ]
    tables = {"scenes_correct": right}
    for name, part in (("colors", 1), ("shapes", 2)):
        wanted = [[thing[part] for thing in said[:-1]] for said in asked if said is not None]
        tables[name] = [_count_matches(names, scene, name[:-1]) for names, scene in zip(wanted, seen, strict=True)]
    return [
        measure(name, ratio, np.array(rows), bootstrap_samples=bootstrap_samples, seed=seed)
        for name, rows in tables.items()
    ]


def _count_matches(wanted: list[str], scene: Scene | None, name: str) -> list[float]:
    """How many of the asked colours or shapes are there, and of how many: those asked for, or those there if they are more."""
    there = Counter() if scene is None else Counter(str(vars(thing)[name]) for thing in scene.objects)
    return [float((Counter(wanted) & there).total()), float(max(len(wanted), there.total()))]
