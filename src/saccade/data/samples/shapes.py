"""A picture world: one or two coloured shapes on a light ground, each picture with a caption that is exactly true of it.

A scene is drawn at random, then put into words and into 32 x 32 pixels. One shape stands in one of nine places ("a small red
circle at the top left"); of two, one is beside or above the other ("a red circle above a small blue square"). The shape
that comes first in `SHAPES`, then in `COLOURS`, is named first, so a picture has one right caption; `holds` accepts the other
order too. Shapes never touch, never leave the picture, and two of the same shape and colour do not meet. Shapes are drawn
eight times as large and averaged, so edges are smooth and inner pixels have the colour of the table exactly.

`scenes` has one or two shapes and the first-named shape as its label; `shapes` has one shape, which is its label.
"""

import re
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random

IMAGE_SIZE = 32
SUPERSAMPLING = 8  # drawn so many times as large
BACKGROUND = (240, 240, 236)
SHAPES = ("circle", "cross", "ring", "square", "triangle")
COLORS = {
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
ROW_NAMES = ("top", "", "bottom")
COLUMN_NAMES = ("left", "", "right")
RELATIONS = ("left of", "right of", "above", "below")
OBJECT_REGEX = rf"an? (small |large |)({'|'.join(COLORS)}) ({'|'.join(SHAPES)})"
CAPTION_REGEX = re.compile(rf"{OBJECT_REGEX}(?: ({'|'.join(RELATIONS)}) {OBJECT_REGEX}| (?:at|in) the ([a-z ]+))")


@dataclass(frozen=True)
class SceneObject:
    """One shape: what it is, and where its middle is, in pixels from the top left corner."""

    shape: str
    color: str
    size: str
    x: float
    y: float

    def describe(self) -> str:
        words = f"{self.size}{self.color} {self.shape}"
        return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


@dataclass(frozen=True)
class Scene:
    """All that is in a picture, in the order in which it is named."""

    objects: tuple[SceneObject, ...]


def describe_scene(scene: Scene) -> str:
    """The caption of a scene.

    >>> describe_scene(Scene((SceneObject("circle", "red", "small ", 6, 7),)))
    'a small red circle at the top left'
    """
    first = scene.objects[0]
    if len(scene.objects) == 2:
        return f"{first.describe()} {_infer_relation(*scene.objects)} {scene.objects[1].describe()}"
    return f"{first.describe()} {_describe_position(first)}"


def parse_caption(caption: str) -> tuple[tuple[str, ...], ...] | None:
    """What a caption says: (size, colour, shape) of each thing, then where; None if it is not a caption of this world.

    >>> parse_caption("a red circle above a small blue square")
    (('', 'red', 'circle'), ('small ', 'blue', 'square'), ('above',))
    """
    match = CAPTION_REGEX.fullmatch(caption)
    if match is None:
        return None
    *first, relation, size, colour, shape, place = match.groups()
    if relation:
        return tuple(first), (size, colour, shape), (relation,)
    return (tuple(first), (place,)) if place in _list_positions() else None


def caption_is_true(caption: str, scene: Scene) -> bool:
    """Whether a caption is true of a scene, whichever thing it names first.

    >>> scene = Scene((SceneObject("circle", "red", "", 16, 8), SceneObject("square", "blue", "small ", 16, 24)))
    >>> caption_is_true("a small blue square below a red circle", scene)
    True
    >>> caption_is_true("a red circle below a small blue square", scene)
    False
    """
    said, ways = parse_caption(caption), [parse_caption(describe_scene(scene))]
    if len(scene.objects) == 2:
        ways.append(parse_caption(describe_scene(Scene(scene.objects[::-1]))))
    return said is not None and said in ways


def render_scene(scene: Scene) -> np.ndarray:
    """The pixels of a scene, (SIDE, SIDE, 3) of bytes."""
    canvas = Image.new("RGB", (IMAGE_SIZE * SUPERSAMPLING, IMAGE_SIZE * SUPERSAMPLING), BACKGROUND)
    draw = ImageDraw.Draw(canvas)
    for thing in scene.objects:
        _draw_object(draw, thing)
    return np.asarray(canvas.reduce(SUPERSAMPLING))


def make(count: int, seed: int) -> list[Example]:
    """Examples with an `image`, its `caption`, the first-named shape as the `label`, and the `scene`."""
    random = make_random("pictures", seed)  # the seed of the sample's data: another name would draw other scenes
    return draw_distinct(
        "scenes",
        lambda: _make_row(_draw_object_pair(random) if random.random() < 0.6 else _draw_single_object(random)),
        count,
        _get_scene,
    )


def make_shapes(count: int, seed: int) -> list[Example]:
    """Examples with an `image` of one shape, its `caption`, the shape as the `label`, and the `scene`."""
    random = make_random("shapes", seed)
    return draw_distinct("shapes", lambda: _make_row(_draw_single_object(random)), count, _get_scene)


def _get_scene(row: Any) -> Scene:
    return row["scene"]


def _make_row(scene: Scene) -> dict[str, Any]:
    return {
        "image": render_scene(scene),
        "caption": describe_scene(scene),
        "label": scene.objects[0].shape,
        "scene": scene,
    }


def _draw_single_object(random: Random) -> Scene:
    """One shape in one of nine places; the gaps between the places leave no doubt which."""
    size = random.choice(list(SIZES))
    edge = SIZES[size] + 0.5
    spans = ((edge, 10.0), (14.0, 18.0), (22.0, IMAGE_SIZE - edge))
    x, y = random.uniform(*random.choice(spans)), random.uniform(*random.choice(spans))
    return Scene((SceneObject(random.choice(SHAPES), random.choice(list(COLORS)), size, x, y),))


def _draw_object_pair(random: Random) -> Scene:
    """Two shapes, one beside or above the other, with room between them and little sideways."""
    kinds = [(shape, colour) for shape in range(len(SHAPES)) for colour in range(len(COLORS))]
    chosen = sorted(random.sample(kinds, 2))
    sizes = [random.choice(list(SIZES)) for _ in chosen]
    relation = random.choice(RELATIONS)
    turn = slice(None, None, 1 if relation in ("left of", "above") else -1)  # the left or upper one first, and back
    before, after = [SIZES[size] for size in sizes][turn]
    gap = random.uniform(before + after + 1, min(20, IMAGE_SIZE - 1 - before - after))
    start = random.uniform(before + 0.5, IMAGE_SIZE - 0.5 - after - gap)
    along = (start, start + gap)[turn]
    middle = random.uniform(max(before, after) + 1.5, IMAGE_SIZE - max(before, after) - 1.5)
    across = [middle + random.uniform(-1, 1) for _ in chosen]
    places = list(zip(*((along, across) if relation in ("left of", "right of") else (across, along)), strict=True))
    colours = list(COLORS)
    return Scene(
        tuple(
            SceneObject(SHAPES[shape], colours[colour], size, *place)
            for (shape, colour), size, place in zip(chosen, sizes, places, strict=True)
        )
    )


def _infer_relation(first: SceneObject, second: SceneObject) -> str:
    x, y = second.x - first.x, second.y - first.y
    if abs(x) > abs(y):
        return "left of" if x > 0 else "right of"
    return "above" if y > 0 else "below"


def _describe_position(scene_object: SceneObject) -> str:
    row, column = (int(3 * place / IMAGE_SIZE) for place in (scene_object.y, scene_object.x))
    words = f"{ROW_NAMES[row]} {COLUMN_NAMES[column]}".strip()
    return f"at the {words}" if words else "in the centre"


def _list_positions() -> set[str]:
    return {f"{row} {column}".strip() or "centre" for row in ROW_NAMES for column in COLUMN_NAMES}


def _draw_object(draw: ImageDraw.ImageDraw, scene_object: SceneObject) -> None:
    """Paint one shape on the large canvas; coordinates of a box include its last pixel, hence the less one."""
    x, y, r = scene_object.x * SUPERSAMPLING, scene_object.y * SUPERSAMPLING, SIZES[scene_object.size] * SUPERSAMPLING
    box, fill = (x - r, y - r, x + r - 1, y + r - 1), COLORS[scene_object.color]
    if scene_object.shape == "circle":
        draw.ellipse(box, fill=fill)
    elif scene_object.shape == "ring":
        draw.ellipse(box, outline=fill, width=round(0.45 * r))
    elif scene_object.shape == "square":
        draw.rectangle(box, fill=fill)
    elif scene_object.shape == "triangle":
        draw.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=fill)
    else:
        draw.rectangle((x - r, y - r / 3, x + r - 1, y + r / 3 - 1), fill=fill)
        draw.rectangle((x - r / 3, y - r, x + r / 3 - 1, y + r - 1), fill=fill)


SAMPLES = (
    Sample("scenes", "images of one or two colored shapes with a caption", ("caption", "paint"), make, 4_000),
    Sample(
        "shapes",
        "images of one colored shape with a label and a caption",
        ("label", "caption", "paint"),
        make_shapes,
        2_000,
    ),
)
