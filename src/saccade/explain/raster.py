"""Heat maps of any size: the cells as one small picture inside an SVG, with a name for each row and column."""

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image
from torch import Tensor

from saccade.explain.colors import paint_over
from saccade.explain.grid import SIZE, STYLE
from saccade.explain.heatmap import LOOKING, SHOWN, Matrix, heatmap, numbers
from saccade.explain.svg import breadth, escape, frame, place, readable, write

CELLS = 44  # rows and columns up to which a cell is drawn by itself and answers to the pointer
NAMED = 400  # beyond, names would make a picture of many metres
SIDE = 13  # of a cell, in pixels: a line of small letters
ROOM = 1200  # pixels of a picture without names


def drawing(
    weights: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    axes: tuple[str, str] = LOOKING,
    most: float | None = None,
) -> str:
    """A heat map as SVG: with cells that answer to the pointer, or beyond 44 tokens as a picture with all names."""
    if max(len(rows), len(columns)) <= CELLS:
        return heatmap(weights, rows, columns, title=title, axes=axes, most=most)
    return large(weights, rows, columns, title=title, most=most)


def large(
    weights: Matrix, rows: Sequence[str], columns: Sequence[str], *, title: str, most: float | None = None
) -> str:
    """A heat map whose cells are the pixels of one picture."""
    values = np.array(numbers(weights, len(rows), len(columns)))
    named = max(values.shape) <= NAMED
    side = SIDE if named else max(1.0, ROOM / max(values.shape))
    up, across = ([readable(name, SHOWN) for name in names] if named else [] for names in (rows, columns))
    left = 12 + math.ceil(max((breadth(name, SIZE) for name in up), default=20))
    top = 40 + math.ceil(max((breadth(name, SIZE) for name in across), default=0))
    wide, high = side * values.shape[1], side * values.shape[0]
    body = [write(0, 14, title, kind="name")]
    body += [write(left - 6, top + (i + 0.5) * side + 4, name, kind="end") for i, name in enumerate(up)]
    for j, name in enumerate(across):
        at = f"translate({place(left + (j + 0.5) * side + 4)} {place(top - 6)}) rotate(-90)"
        body.append(f'<g transform="{at}">{write(0, 0, name)}</g>')
    size = f'x="{place(left)}" y="{place(top)}" width="{place(wide)}" height="{place(high)}"'
    body.append(
        f'<image {size} preserveAspectRatio="none" style="image-rendering:pixelated" href="{picture(values, top=most)}"/>'
    )
    body.append(f'<rect {size} class="rim"/>')
    most = most or float(np.nanmax(np.abs(values)))
    body.append(write(left, top + high + 18, f"no color is 0, full color is {most:.3f}", kind="soft"))
    about = f"{values.shape[0]:,} rows and {values.shape[1]:,} columns; the largest weight is {most:.3f}."
    return frame(
        body, kind="heat", title=title, about=about, width=left + wide + 40, height=top + high + 28, style=STYLE
    )


def picture(values: np.ndarray | Tensor, *, top: float | None = None) -> str:
    """A matrix as a PNG inside an address, a pixel for each number; zero is transparent, and negative numbers are blue."""
    array = np.nan_to_num(np.asarray(values, dtype=np.float64))
    most = (top or float(np.abs(array).max(initial=0.0))) or 1.0
    return address(Image.fromarray(paint_over(array / most)))


def address(image: Image.Image) -> str:
    """A picture as an address that needs no file."""
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def thumbnail(values: np.ndarray | Tensor, name: str, under: str, *, width: int = 96, top: float | None = None) -> str:
    """One small picture with its name on hovering and a line under it; `top` is the number that full color stands for."""
    said = escape(name)
    image = (
        f'<img src="{picture(values, top=top)}" alt="{said}" title="{said}" style="width:{width}px;height:{width}px">'
    )
    return f"<figure>{image}<figcaption>{escape(under)}</figcaption></figure>"
