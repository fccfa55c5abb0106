"""A picture world: one or two coloured shapes on a light ground, each picture with a caption that is exactly true of it.

A scene is drawn at random, then put into words and into 32 x 32 pixels. One shape stands in one of nine places ("a small red
circle at the top left"); of two, one is beside or above the other ("a red circle above a small blue square"). The shape
that comes first in `SHAPES`, then in `COLOURS`, is named first, so a picture has one right caption; `holds` accepts the other
order too. Shapes never touch, never leave the picture, and two of the same shape and colour do not meet. Shapes are drawn
eight times as large and averaged, so edges are smooth and inner pixels have the colour of the table exactly.

`pictures` has one or two shapes and the first-named shape as its label; `shapes` has one shape, which is its label.
"""

import re
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from saccade.data.item import Example
from saccade.data.samples.seeded import Sample, distinct, source

SIDE = 32
FINE = 8  # drawn so many times as large
GROUND = (240, 240, 236)
SHAPES = ("circle", "cross", "ring", "square", "triangle")
COLOURS = {
    "red": (214, 39, 40),
    "orange": (255, 140, 0),
    "yellow": (250, 215, 40),
    "green": (34, 139, 34),
    "cyan": (23, 190, 207),
    "blue": (31, 70, 200),
    "purple": (148, 60, 189),
    "black": (20, 20, 20),
}
# the word before the colour, and half the side of the box around the shape
SIZES = {"small ": 3.5, "": 5.25, "large ": 7.0}
ROWS = ("top", "", "bottom")
COLUMNS = ("left", "", "right")
RELATIONS = ("left of", "right of", "above", "below")
THING = rf"an? (small |large |)({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})"
CAPTION = re.compile(rf"{THING}(?: ({'|'.join(RELATIONS)}) {THING}| (?:at|in) the ([a-z ]+))")


@dataclass(frozen=True)
class Thing:
    """One shape: what it is, and where its middle is, in pixels from the top left corner."""

    shape: str
    colour: str
    size: str
    x: float
    y: float

    def said(self) -> str:
        words = f"{self.size}{self.colour} {self.shape}"
        return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


@dataclass(frozen=True)
class Scene:
    """All that is in a picture, in the order in which it is named."""

    things: tuple[Thing, ...]


def describe(scene: Scene) -> str:
    """The caption of a scene.

    >>> describe(Scene((Thing("circle", "red", "small ", 6, 7),)))
    'a small red circle at the top left'
    """
    first = scene.things[0]
    if len(scene.things) == 2:
        return f"{first.said()} {_relation(*scene.things)} {scene.things[1].said()}"
    return f"{first.said()} {_place(first)}"


def parse(caption: str) -> tuple[tuple[str, ...], ...] | None:
    """What a caption says: (size, colour, shape) of each thing, then where; None if it is not a caption of this world.

    >>> parse("a red circle above a small blue square")
    (('', 'red', 'circle'), ('small ', 'blue', 'square'), ('above',))
    """
    match = CAPTION.fullmatch(caption)
    if match is None:
        return None
    *first, relation, size, colour, shape, place = match.groups()
    if relation:
        return tuple(first), (size, colour, shape), (relation,)
    return (tuple(first), (place,)) if place in _places() else None


def holds(caption: str, scene: Scene) -> bool:
    """Whether a caption is true of a scene, whichever thing it names first.

    >>> scene = Scene((Thing("circle", "red", "", 16, 8), Thing("square", "blue", "small ", 16, 24)))
    >>> holds("a small blue square below a red circle", scene), holds("a red circle below a small blue square", scene)
    (True, False)
    """
    said, ways = parse(caption), [parse(describe(scene))]
    if len(scene.things) == 2:
        ways.append(parse(describe(Scene(scene.things[::-1]))))
    return said is not None and said in ways


def paint(scene: Scene) -> np.ndarray:
    """The pixels of a scene, (SIDE, SIDE, 3) of bytes."""
    canvas = Image.new("RGB", (SIDE * FINE, SIDE * FINE), GROUND)
    draw = ImageDraw.Draw(canvas)
    for thing in scene.things:
        _draw(draw, thing)
    return np.asarray(canvas.reduce(FINE))


def make(count: int, seed: int) -> list[Example]:
    """Examples with an `image`, its `caption`, the first-named shape as the `label`, and the `scene`."""
    random = source("pictures", seed)
    return distinct("pictures", lambda: _row(_pair(random) if random.random() < 0.6 else _alone(random)), count, _scene)


def make_shapes(count: int, seed: int) -> list[Example]:
    """Examples with an `image` of one shape, its `caption`, the shape as the `label`, and the `scene`."""
    random = source("shapes", seed)
    return distinct("shapes", lambda: _row(_alone(random)), count, _scene)


def _scene(row: Any) -> Scene:
    return row["scene"]


def _row(scene: Scene) -> dict[str, Any]:
    return {"image": paint(scene), "caption": describe(scene), "label": scene.things[0].shape, "scene": scene}


def _alone(random: Random) -> Scene:
    """One shape in one of nine places; the gaps between the places leave no doubt which."""
    size = random.choice(list(SIZES))
    edge = SIZES[size] + 0.5
    spans = ((edge, 10.0), (14.0, 18.0), (22.0, SIDE - edge))
    x, y = random.uniform(*random.choice(spans)), random.uniform(*random.choice(spans))
    return Scene((Thing(random.choice(SHAPES), random.choice(list(COLOURS)), size, x, y),))


def _pair(random: Random) -> Scene:
    """Two shapes, one beside or above the other, with room between them and little sideways."""
    kinds = [(shape, colour) for shape in range(len(SHAPES)) for colour in range(len(COLOURS))]
    chosen = sorted(random.sample(kinds, 2))
    sizes = [random.choice(list(SIZES)) for _ in chosen]
    relation = random.choice(RELATIONS)
    turn = slice(None, None, 1 if relation in ("left of", "above") else -1)  # the left or upper one first, and back
    before, after = [SIZES[size] for size in sizes][turn]
    gap = random.uniform(before + after + 1, min(20, SIDE - 1 - before - after))
    start = random.uniform(before + 0.5, SIDE - 0.5 - after - gap)
    along = (start, start + gap)[turn]
    middle = random.uniform(max(before, after) + 1.5, SIDE - max(before, after) - 1.5)
    across = [middle + random.uniform(-1, 1) for _ in chosen]
    places = list(zip(*((along, across) if relation in ("left of", "right of") else (across, along)), strict=True))
    colours = list(COLOURS)
    return Scene(
        tuple(
            Thing(SHAPES[shape], colours[colour], size, *place)
            for (shape, colour), size, place in zip(chosen, sizes, places, strict=True)
        )
    )


def _relation(first: Thing, second: Thing) -> str:
    x, y = second.x - first.x, second.y - first.y
    if abs(x) > abs(y):
        return "left of" if x > 0 else "right of"
    return "above" if y > 0 else "below"


def _place(thing: Thing) -> str:
    row, column = (int(3 * place / SIDE) for place in (thing.y, thing.x))
    words = f"{ROWS[row]} {COLUMNS[column]}".strip()
    return f"at the {words}" if words else "in the centre"


def _places() -> set[str]:
    return {f"{row} {column}".strip() or "centre" for row in ROWS for column in COLUMNS}


def _draw(draw: ImageDraw.ImageDraw, thing: Thing) -> None:
    """Paint one shape on the large canvas; coordinates of a box include its last pixel, hence the less one."""
    x, y, r = thing.x * FINE, thing.y * FINE, SIZES[thing.size] * FINE
    box, fill = (x - r, y - r, x + r - 1, y + r - 1), COLOURS[thing.colour]
    if thing.shape == "circle":
        draw.ellipse(box, fill=fill)
    elif thing.shape == "ring":
        draw.ellipse(box, outline=fill, width=round(0.45 * r))
    elif thing.shape == "square":
        draw.rectangle(box, fill=fill)
    elif thing.shape == "triangle":
        draw.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=fill)
    else:
        draw.rectangle((x - r, y - r / 3, x + r - 1, y + r / 3 - 1), fill=fill)
        draw.rectangle((x - r / 3, y - r, x + r / 3 - 1, y + r - 1), fill=fill)


SAMPLES = (
    Sample("pictures", "one or two coloured shapes, and a caption", ("caption", "paint"), make, 4_000),
    Sample(
        "shapes", "one coloured shape, what it is, and a caption", ("label", "caption", "paint"), make_shapes, 2_000
    ),
)
