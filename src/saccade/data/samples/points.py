"""Points to pool over: a curve with noise, and two half moons.

`curve` draws x evenly from 0 to 5 and y = 2 sin(x) + x^0.8 with Gaussian noise of deviation 0.5, the example with which
attention pooling is usually explained. `moons` draws two half circles of radius 1 that reach into each other, upper and
lower, with Gaussian noise of deviation 0.1 on both coordinates; they are drawn in turn, so the classes are equally large.
"""

import math
from typing import Any

from saccade.data.example import Example
from saccade.data.samples.base import Sample, check_count, make_examples, make_random

CURVE_NOISE = 0.5
MOONS_NOISE = 0.1


def evaluate_curve(x: float) -> float:
    """The curve without its noise.

    >>> evaluate_curve(0.0), round(evaluate_curve(1.0), 4)
    (0.0, 2.6829)
    """
    return 2 * math.sin(x) + x**0.8


def make_curve(count: int, seed: int) -> list[Example]:
    """Examples with `x`, a list of one number, and `y`, a number."""
    check_count("curve", count)
    random = make_random("curve", seed)
    places = [5 * random.random() for _ in range(count)]
    return make_examples("curve", ({"x": [x], "y": evaluate_curve(x) + random.gauss(0, CURVE_NOISE)} for x in places))


def make_moons(count: int, seed: int) -> list[Example]:
    """Examples with `x`, a list of two numbers, and a `label`, upper or lower."""
    check_count("moons", count)
    random = make_random("moons", seed)

    def row(upper: bool) -> dict[str, Any]:
        angle = math.pi * random.random()
        x, y = (math.cos(angle), math.sin(angle)) if upper else (1 - math.cos(angle), 0.5 - math.sin(angle))
        return {
            "x": [x + random.gauss(0, MOONS_NOISE), y + random.gauss(0, MOONS_NOISE)],
            "label": "upper" if upper else "lower",
        }

    return make_examples("moons", [row(number % 2 == 0) for number in range(count)])


SAMPLES = (
    Sample("curve", "noisy points of 2 sin(x) + x^0.8", ("regress",), make_curve, 200),
    Sample("moons", "points of two interleaving half moons", ("regress",), make_moons, 400),
)
