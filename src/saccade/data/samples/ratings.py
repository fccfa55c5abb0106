"""Short reviews of restaurants with a rating in half stars, which follows from what is said of food, service, room and price.

Each review speaks of two to four things. How good a thing was is one of five degrees, each with phrases of its own, and the
rating is 3 stars plus half of the mean degree, rounded to half a star; "but" gives what comes after it twice the weight.
"""

from random import Random
from typing import Any

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random

PHRASES_BY_DEGREE = {  # -4 to 4, of a thing that was had
    "food": {
        -4: ["the soup was cold and the meat inedible", "we sent both plates back"],
        -2: ["the fish was overcooked", "the pasta tasted of nothing"],
        0: ["the food was ordinary", "the menu is what you would expect"],
        2: ["the bread was fresh", "the stew was tasty"],
        4: ["every dish was superb", "it was the best risotto of my life"],
    },
    "service": {
        -4: ["the waiter insulted us", "nobody served us for an hour"],
        -2: ["the service was slow", "they forgot our drinks"],
        0: ["the staff did their job", "the service was neither fast nor slow"],
        2: ["the waiter was friendly", "they were quick"],
        4: ["the staff were wonderful", "they guessed our every wish"],
    },
    "room": {
        -4: ["the room stank of smoke", "a mouse ran across the floor"],
        -2: ["the tables are too close", "it was noisy"],
        0: ["the room is plain", "there is nothing to say of the room"],
        2: ["the place is cosy", "we had a nice view"],
        4: ["the garden is magnificent", "it is the most beautiful room in town"],
    },
    "price": {
        -4: ["the bill was robbery", "it cost three times what it was worth"],
        -2: ["it was a little expensive", "the wine is overpriced"],
        0: ["the prices are average", "we paid what we expected"],
        2: ["it was good value", "the lunch is cheap"],
        4: ["I have never eaten so well for so little", "it was unbelievably cheap"],
    },
}


def make_review(random: Random) -> dict[str, Any]:
    """A text and its stars."""
    things = random.sample(list(PHRASES_BY_DEGREE), random.randint(2, 4))
    degrees = [random.choice([-4, -2, 0, 2, 4]) for _ in things]
    said = [random.choice(PHRASES_BY_DEGREE[thing][degree]) for thing, degree in zip(things, degrees, strict=True)]
    turn = random.random() < 0.4
    weights = [1.0] * (len(said) - 1) + [2.0 if turn else 1.0]
    mean = sum(weight * degree for weight, degree in zip(weights, degrees, strict=True)) / sum(weights)
    first = ", ".join(said[:-1])
    text = f"{first}, but {said[-1]}." if turn else f"{first}, and {said[-1]}."
    return {"text": text[0].upper() + text[1:], "score": round(2 * (3 + mean / 2)) / 2}


def make(count: int, seed: int) -> list[Example]:
    """Examples with `text` and `score`, from 1 to 5."""
    random = make_random("ratings", seed)
    return draw_distinct("ratings", lambda: make_review(random), count, key=lambda row: row["text"])


SAMPLE = Sample("ratings", "restaurant reviews with their stars", ("grade",), make, 6_000)
