"""How good painted pictures are: means of what each of them cost, and whether pictures of the picture world show what was asked.

What a picture shows is read by `saccade.data.samples.seeing`, which makes no mistake on pictures of that world: what it does
not find in a painted one is not clearly there.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from saccade.data.samples.pictures import SIDE, Scene, holds, parse
from saccade.data.samples.seeing import see
from saccade.tasks.metrics.score import ROUNDS, Score, check_pairs, measure, ratio


def mean(name: str, values: Sequence[float], *, rounds: int = ROUNDS, seed: int = 0) -> Score:
    """The mean of a cost, the lower the better.

    >>> print(mean("error", [0.25, 0.25]))
    error 0.250 (0.250–0.250), 2 examples
    """
    units = np.array([[value, 1.0] for value in values]).reshape(-1, 2)
    return measure(name, ratio, units, better="lower", rounds=rounds, seed=seed)


def shows(texts: Sequence[str], pictures: Sequence[np.ndarray], *, rounds: int = ROUNDS, seed: int = 0) -> list[Score]:
    """The share of pictures of which the text is true, of things whose shape is there, and of things whose colour is.

    For texts of another world, or pictures of another size, there is nothing to say: no scores.
    """
    check_pairs("shown", texts, pictures)
    asked = [parse(text) for text in texts]
    if not texts or None in asked or any(picture.shape != (SIDE, SIDE, 3) for picture in pictures):
        return []
    seen = [see(picture) for picture in pictures]
    right = [[float(scene is not None and holds(text, scene)), 1.0] for text, scene in zip(texts, seen, strict=True)]
    tables = {"shown": right}
    for name, part in (("colours", 1), ("shapes", 2)):
        wanted = [[thing[part] for thing in said[:-1]] for said in asked if said is not None]
        tables[name] = [_found(names, scene, name[:-1]) for names, scene in zip(wanted, seen, strict=True)]
    return [measure(name, ratio, np.array(rows), rounds=rounds, seed=seed) for name, rows in tables.items()]


def _found(wanted: list[str], scene: Scene | None, name: str) -> list[float]:
    """How many of the asked colours or shapes are there, and of how many: those asked for, or those there if they are more."""
    there = Counter() if scene is None else Counter(str(vars(thing)[name]) for thing in scene.things)
    return [float((Counter(wanted) & there).total()), float(max(len(wanted), there.total()))]
