"""The picture world read back: which shapes a picture shows, in which colours and sizes, and where.

By rules, not learnt: a pixel lies between the ground and one of eight colours, and how far from the ground is how much of it a
shape covers. Pixels more than half covered that touch each other are one thing. Its shape and size are those whose drawing, put
where the thing's middle is, differs least from what is covered. On pictures of this world it is right; on painted ones
it says what a person would, as far as they have clear shapes.
"""

from functools import cache

import numpy as np

from saccade.data.samples.shapes import BACKGROUND, COLORS, IMAGE_SIZE, SHAPES, SIZES, Scene, SceneObject, render_scene

MIN_OBJECT_PIXELS = 5  # covered pixels, below which it is a speck
MAX_OBJECTS = 2  # things in a picture
SUBPIXEL_STEPS = 4  # places of a drawing within a pixel, along each axis
CENTROID_OFFSETS = {
    "triangle": 1 / 3
}  # how far below the middle of its box a shape's own middle is, in halves of the box


def parse_shapes(image: np.ndarray) -> Scene | None:
    """The scene of a picture, uint8 (SIDE, SIDE, 3); None where there is nothing, or more than the world has.

    >>> parse_shapes(render_scene(Scene((SceneObject("ring", "blue", "large ", 10.0, 20.0),)))).objects[0].describe()
    'a large blue ring'
    """
    if image.shape != (IMAGE_SIZE, IMAGE_SIZE, 3) or image.dtype != np.uint8:
        raise ValueError(
            f"A picture of this world is uint8 ({IMAGE_SIZE}, {IMAGE_SIZE}, 3); got {image.dtype} {image.shape}. Resize it."
        )
    colours, covered = _estimate_coverage(image)
    found = [place for place in _find_components(covered > 0.5) if len(place) >= MIN_OBJECT_PIXELS]
    if not 1 <= len(found) <= MAX_OBJECTS:
        return None
    things = [_classify_object(image, place, colours, covered, found) for place in found]
    order = list(COLORS)
    return Scene(tuple(sorted(things, key=lambda thing: (SHAPES.index(thing.shape), order.index(thing.color)))))


def _estimate_coverage(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The colour of each pixel by number, and how much of the pixel it covers, both (SIDE, SIDE)."""
    away = image.astype(np.float64) - np.array(BACKGROUND)  # (rows, columns, 3)
    ways = np.array(list(COLORS.values()), np.float64) - np.array(BACKGROUND)  # (colours, 3)
    share = np.clip(away @ ways.T / (ways**2).sum(1), 0, 1)
    left = ((away[:, :, None] - share[..., None] * ways) ** 2).sum(-1)  # what the mixture does not explain
    best = left.argmin(-1)
    return best, np.take_along_axis(share, best[..., None], -1)[..., 0]


def _find_components(mask: np.ndarray) -> list[np.ndarray]:
    """Pixels that touch, corners too, as (count, 2) rows and columns."""
    left = {(int(row), int(column)) for row, column in np.argwhere(mask)}
    found = []
    while left:
        edge = [left.pop()]
        place = list(edge)
        while edge:
            row, column = edge.pop()
            near = {(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= near
            edge += near
            place += near
        found.append(np.array(place))
    return found


def _classify_object(
    image: np.ndarray, pixels: np.ndarray, color_indices: np.ndarray, coverage: np.ndarray, regions: list[np.ndarray]
) -> SceneObject:
    """What the pixels at a place are: their colour, then the drawing that fits best."""
    rows, columns = pixels.T
    surest = coverage[rows, columns] >= np.quantile(coverage[rows, columns], 0.5)  # edges are mixed with the ground
    number = int(np.bincount(color_indices[rows[surest], columns[surest]], minlength=len(COLORS)).argmax())
    colour = list(COLORS)[number]
    way = np.array(COLORS[colour], np.float64) - np.array(BACKGROUND)
    share = np.clip((image.astype(np.float64) - np.array(BACKGROUND)) @ way / (way @ way), 0, 1)
    share = np.where(_dilate(pixels, regions), share, 0.0)
    total = share.sum()
    middle = [
        float((share * axis).sum() / total) + 0.5 for axis in np.mgrid[:IMAGE_SIZE, :IMAGE_SIZE]
    ]  # row and column
    _, shape, size, y = min(_score_templates(share, middle))
    return SceneObject(shape, colour, size, middle[1], y)


def _dilate(pixels: np.ndarray, regions: list[np.ndarray]) -> np.ndarray:
    """The pixels of a thing and those that touch it, but none of another thing."""
    wide = np.zeros((IMAGE_SIZE + 2, IMAGE_SIZE + 2), dtype=bool)
    for row in (0, 1, 2):
        for column in (0, 1, 2):
            wide[pixels[:, 0] + row, pixels[:, 1] + column] = True
    own = wide[1:-1, 1:-1]
    for other in regions:
        if other is not pixels:
            own[other[:, 0], other[:, 1]] = False
    return own


def _score_templates(coverage: np.ndarray, centroid: list[float]) -> list[tuple[float, str, str, float]]:
    """How badly each shape in each size fits, and the row of the middle of its box."""
    out = []
    for shape in SHAPES:
        for size, half in SIZES.items():
            y = centroid[0] - CENTROID_OFFSETS.get(shape, 0.0) * half
            drawn = _shift_template(shape, size, centroid[1], y)
            out.append((float(((drawn - coverage) ** 2).sum()), shape, size, y))
    return out


def _shift_template(shape: str, size: str, x: float, y: float) -> np.ndarray:
    """A drawing as shares of each pixel, moved to a place: to the quarter of a pixel."""
    (column, right), (row, down) = (divmod(round(SUBPIXEL_STEPS * place), SUBPIXEL_STEPS) for place in (x, y))
    made = np.zeros((3 * IMAGE_SIZE, 3 * IMAGE_SIZE))  # room for what stands over the edge
    top, left = IMAGE_SIZE + row - IMAGE_SIZE // 2, IMAGE_SIZE + column - IMAGE_SIZE // 2
    if 0 <= top <= 2 * IMAGE_SIZE and 0 <= left <= 2 * IMAGE_SIZE:
        made[top : top + IMAGE_SIZE, left : left + IMAGE_SIZE] = _render_template(shape, size, right, down)
    return made[IMAGE_SIZE : 2 * IMAGE_SIZE, IMAGE_SIZE : 2 * IMAGE_SIZE]


@cache
def _render_template(shape: str, size: str, right: int, down: int) -> np.ndarray:
    middle = IMAGE_SIZE // 2
    picture = render_scene(
        Scene((SceneObject(shape, "black", size, middle + right / SUBPIXEL_STEPS, middle + down / SUBPIXEL_STEPS),))
    )
    ground, black = BACKGROUND[0], COLORS["black"][0]
    return (ground - picture[..., 0].astype(np.float64)) / (ground - black)
