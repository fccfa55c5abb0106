"""Points to pool over: a curve with noise, and two half moons.

`curve` draws x evenly from 0 to 5 and y = 2 sin(x) + x^0.8 with Gaussian noise of deviation 0.5, the example with which
attention pooling is usually explained. `moons` draws two half circles of radius 1 that reach into each other, upper and
lower, with Gaussian noise of deviation 0.1 on both coordinates; they are drawn in turn, so the classes are equally large.
"""

import math
from typing import Any

from saccade.data.item import Example
from saccade.data.samples.seeded import Sample, check, examples, source

NOISE = 0.5
BLUR = 0.1


def height(x: float) -> float:
    """The curve without its noise.

    >>> height(0.0), round(height(1.0), 4)
    (0.0, 2.6829)
    """
    return 2 * math.sin(x) + x**0.8


def make(count: int, seed: int) -> list[Example]:
    """Examples with `x`, a list of one number, and `y`, a number."""
    check("curve", count)
    random = source("curve", seed)
    places = [5 * random.random() for _ in range(count)]
    return examples("curve", ({"x": [x], "y": height(x) + random.gauss(0, NOISE)} for x in places))


def make_moons(count: int, seed: int) -> list[Example]:
    """Examples with `x`, a list of two numbers, and a `label`, upper or lower."""
    check("moons", count)
    random = source("moons", seed)

    def row(upper: bool) -> dict[str, Any]:
        angle = math.pi * random.random()
        x, y = (math.cos(angle), math.sin(angle)) if upper else (1 - math.cos(angle), 0.5 - math.sin(angle))
        return {"x": [x + random.gauss(0, BLUR), y + random.gauss(0, BLUR)], "label": "upper" if upper else "lower"}

    return examples("moons", [row(number % 2 == 0) for number in range(count)])


SAMPLES = (
    Sample("curve", "noisy points of 2 sin(x) + x^0.8", ("regress",), make, 200),
    Sample("moons", "points of two half moons that reach into each other", ("regress",), make_moons, 400),
)
