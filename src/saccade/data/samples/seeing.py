"""The picture world read back: which shapes a picture shows, in which colours and sizes, and where.

By rules, not learnt: a pixel lies between the ground and one of eight colours, and how far from the ground is how much of it a
shape covers. Pixels more than half covered that touch each other are one thing. Its shape and size are those whose drawing, put
where the thing's middle is, differs least from what is covered. On pictures of this world it is right; on painted ones
it says what a person would, as far as they have clear shapes.
"""

from functools import cache

import numpy as np

from saccade.data.samples.pictures import COLOURS, GROUND, SHAPES, SIDE, SIZES, Scene, Thing, paint

LEAST = 5  # covered pixels, below which it is a speck
MOST = 2  # things in a picture
STEPS = 4  # places of a drawing within a pixel, along each axis
MIDDLES = {"triangle": 1 / 3}  # how far below the middle of its box a shape's own middle is, in halves of the box


def see(picture: np.ndarray) -> Scene | None:
    """The scene of a picture, uint8 (SIDE, SIDE, 3); None where there is nothing, or more than the world has.

    >>> see(paint(Scene((Thing("ring", "blue", "large ", 10.0, 20.0),)))).things[0].said()
    'a large blue ring'
    """
    if picture.shape != (SIDE, SIDE, 3) or picture.dtype != np.uint8:
        raise ValueError(
            f"A picture of this world is uint8 ({SIDE}, {SIDE}, 3); got {picture.dtype} {picture.shape}. Resize it."
        )
    colours, covered = _covered(picture)
    found = [place for place in _connected(covered > 0.5) if len(place) >= LEAST]
    if not 1 <= len(found) <= MOST:
        return None
    things = [_thing(picture, place, colours, covered, found) for place in found]
    order = list(COLOURS)
    return Scene(tuple(sorted(things, key=lambda thing: (SHAPES.index(thing.shape), order.index(thing.colour)))))


def _covered(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The colour of each pixel by number, and how much of the pixel it covers, both (SIDE, SIDE)."""
    away = picture.astype(np.float64) - np.array(GROUND)  # (rows, columns, 3)
    ways = np.array(list(COLOURS.values()), np.float64) - np.array(GROUND)  # (colours, 3)
    share = np.clip(away @ ways.T / (ways**2).sum(1), 0, 1)
    left = ((away[:, :, None] - share[..., None] * ways) ** 2).sum(-1)  # what the mixture does not explain
    best = left.argmin(-1)
    return best, np.take_along_axis(share, best[..., None], -1)[..., 0]


def _connected(mask: np.ndarray) -> list[np.ndarray]:
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


def _thing(
    picture: np.ndarray, place: np.ndarray, colours: np.ndarray, covered: np.ndarray, all: list[np.ndarray]
) -> Thing:
    """What the pixels at a place are: their colour, then the drawing that fits best."""
    rows, columns = place.T
    surest = covered[rows, columns] >= np.quantile(covered[rows, columns], 0.5)  # edges are mixed with the ground
    number = int(np.bincount(colours[rows[surest], columns[surest]], minlength=len(COLOURS)).argmax())
    colour = list(COLOURS)[number]
    way = np.array(COLOURS[colour], np.float64) - np.array(GROUND)
    share = np.clip((picture.astype(np.float64) - np.array(GROUND)) @ way / (way @ way), 0, 1)
    share = np.where(_around(place, all), share, 0.0)
    total = share.sum()
    middle = [float((share * axis).sum() / total) + 0.5 for axis in np.mgrid[:SIDE, :SIDE]]  # row and column
    _, shape, size, y = min(_fits(share, middle))
    return Thing(shape, colour, size, middle[1], y)


def _around(place: np.ndarray, all: list[np.ndarray]) -> np.ndarray:
    """The pixels of a thing and those that touch it, but none of another thing."""
    wide = np.zeros((SIDE + 2, SIDE + 2), dtype=bool)
    for row in (0, 1, 2):
        for column in (0, 1, 2):
            wide[place[:, 0] + row, place[:, 1] + column] = True
    own = wide[1:-1, 1:-1]
    for other in all:
        if other is not place:
            own[other[:, 0], other[:, 1]] = False
    return own


def _fits(share: np.ndarray, middle: list[float]) -> list[tuple[float, str, str, float]]:
    """How badly each shape in each size fits, and the row of the middle of its box."""
    out = []
    for shape in SHAPES:
        for size, half in SIZES.items():
            y = middle[0] - MIDDLES.get(shape, 0.0) * half
            drawn = _drawn(shape, size, middle[1], y)
            out.append((float(((drawn - share) ** 2).sum()), shape, size, y))
    return out


def _drawn(shape: str, size: str, x: float, y: float) -> np.ndarray:
    """A drawing as shares of each pixel, moved to a place: to the quarter of a pixel."""
    (column, right), (row, down) = (divmod(round(STEPS * place), STEPS) for place in (x, y))
    made = np.zeros((3 * SIDE, 3 * SIDE))  # room for what stands over the edge
    top, left = SIDE + row - SIDE // 2, SIDE + column - SIDE // 2
    if 0 <= top <= 2 * SIDE and 0 <= left <= 2 * SIDE:
        made[top : top + SIDE, left : left + SIDE] = _template(shape, size, right, down)
    return made[SIDE : 2 * SIDE, SIDE : 2 * SIDE]


@cache
def _template(shape: str, size: str, right: int, down: int) -> np.ndarray:
    middle = SIDE // 2
    picture = paint(Scene((Thing(shape, "black", size, middle + right / STEPS, middle + down / STEPS),)))
    ground, black = GROUND[0], COLOURS["black"][0]
    return (ground - picture[..., 0].astype(np.float64)) / (ground - black)
