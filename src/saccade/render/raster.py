"""Heat maps of any size: the cells as one small picture inside an SVG, with a name for each row and column."""

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image
from torch import Tensor

from saccade.render.colors import weights_to_rgba
from saccade.render.grid import FONT_SIZE, HEATMAP_CSS
from saccade.render.heatmap import MAX_LABEL_COLUMNS, QUERY_KEY_AXES, Matrix, matrix_to_lists, render_vector_heatmap
from saccade.render.svg import escape, format_coordinate, format_token, render_svg_document, render_text, text_width

MAX_VECTOR_CELLS = 44  # rows and columns up to which a cell is drawn by itself and answers to the pointer
MAX_LABELS_PER_SIDE = 400  # beyond, names would make a picture of many metres
CELL_PIXELS = 13  # of a cell, in pixels: a line of small letters
MAX_IMAGE_PIXELS = 1200  # pixels of a picture without names


def render_heatmap(
    weights: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    axes: tuple[str, str] = QUERY_KEY_AXES,
    vmax: float | None = None,
) -> str:
    """A heat map as SVG: with cells that answer to the pointer, or beyond 44 tokens as a picture with all names."""
    if max(len(rows), len(columns)) <= MAX_VECTOR_CELLS:
        return render_vector_heatmap(weights, rows, columns, title=title, axes=axes, vmax=vmax)
    return render_raster_heatmap(weights, rows, columns, title=title, vmax=vmax)


def render_raster_heatmap(
    weights: Matrix, rows: Sequence[str], columns: Sequence[str], *, title: str, vmax: float | None = None
) -> str:
    """A heat map whose cells are the pixels of one picture."""
    values = np.array(matrix_to_lists(weights, len(rows), len(columns)))
    named = max(values.shape) <= MAX_LABELS_PER_SIDE
    side = CELL_PIXELS if named else max(1.0, MAX_IMAGE_PIXELS / max(values.shape))
    up, across = (
        [format_token(name, MAX_LABEL_COLUMNS) for name in names] if named else [] for names in (rows, columns)
    )
    left = 12 + math.ceil(max((text_width(name, FONT_SIZE) for name in up), default=20))
    top = 40 + math.ceil(max((text_width(name, FONT_SIZE) for name in across), default=0))
    wide, high = side * values.shape[1], side * values.shape[0]
    body = [render_text(0, 14, title, css_class="name")]
    body += [render_text(left - 6, top + (i + 0.5) * side + 4, name, css_class="end") for i, name in enumerate(up)]
    for j, name in enumerate(across):
        at = f"translate({format_coordinate(left + (j + 0.5) * side + 4)} {format_coordinate(top - 6)}) rotate(-90)"
        body.append(f'<g transform="{at}">{render_text(0, 0, name)}</g>')
    size = f'x="{format_coordinate(left)}" y="{format_coordinate(top)}" width="{format_coordinate(wide)}" height="{format_coordinate(high)}"'
    body.append(
        f'<image {size} preserveAspectRatio="none" style="image-rendering:pixelated" href="{matrix_to_data_url(values, vmax=vmax)}"/>'
    )
    body.append(f'<rect {size} class="rim"/>')
    vmax = vmax or float(np.nanmax(np.abs(values)))
    body.append(render_text(left, top + high + 18, f"no color is 0, full color is {vmax:.3f}", css_class="soft"))
    about = f"{values.shape[0]:,} rows and {values.shape[1]:,} columns; the largest weight is {vmax:.3f}."
    return render_svg_document(
        body,
        css_class="heat",
        title=title,
        description=about,
        width=left + wide + 40,
        height=top + high + 28,
        style=HEATMAP_CSS,
    )


def matrix_to_data_url(values: np.ndarray | Tensor, *, vmax: float | None = None) -> str:
    """A matrix as a PNG inside an address, a pixel for each number; zero is transparent, and negative numbers are blue."""
    array = np.nan_to_num(np.asarray(values, dtype=np.float64))
    most = (vmax or float(np.abs(array).max(initial=0.0))) or 1.0
    return image_to_data_url(Image.fromarray(weights_to_rgba(array / most)))


def image_to_data_url(image: Image.Image) -> str:
    """A picture as an address that needs no file."""
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def render_thumbnail(
    values: np.ndarray | Tensor, name: str, caption: str, *, width: int = 96, vmax: float | None = None
) -> str:
    """One small picture with its name on hovering and a line under it; `top` is the number that full color stands for."""
    said = escape(name)
    image = f'<img src="{matrix_to_data_url(values, vmax=vmax)}" alt="{said}" title="{said}" style="width:{width}px;height:{width}px">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
