"""Heat maps of any size: above a limit the cells are one PNG image inside the SVG, with a label for each row and column."""

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from saccade.render.colors import weights_to_rgba
from saccade.render.grid import FONT_SIZE, HEATMAP_CSS
from saccade.render.heatmap import MAX_LABEL_COLUMNS, QUERY_KEY_AXES, Matrix, matrix_to_lists, render_vector_heatmap
from saccade.render.svg import format_coordinate, format_token, render_svg_document, render_text, text_width

MAX_VECTOR_CELLS = 44  # rows and columns up to which each cell is an element with a tooltip
MAX_LABELS_PER_SIDE = 400  # with more rows or columns there are no labels, as the drawing would be meters long
CELL_PIXELS = 13  # side of a labeled cell: the height of a small line of text
MAX_IMAGE_PIXELS = 1200  # longer side of an image without labels


def render_heatmap(
    weights: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    axes: tuple[str, str] = QUERY_KEY_AXES,
    vmax: float | None = None,
) -> Markup:
    """A heat map as SVG: up to 44 tokens with a tooltip for each cell, beyond as an image with all labels."""
    render = render_vector_heatmap if max(len(rows), len(columns)) <= MAX_VECTOR_CELLS else render_raster_heatmap
    return render(weights, rows, columns, title=title, axes=axes, vmax=vmax)


def render_raster_heatmap(
    weights: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    axes: tuple[str, str] = QUERY_KEY_AXES,
    vmax: float | None = None,
) -> Markup:
    """A heat map whose cells are the pixels of one image."""
    values = np.array(matrix_to_lists(weights, len(rows), len(columns)))
    has_labels = max(values.shape) <= MAX_LABELS_PER_SIDE
    side = CELL_PIXELS if has_labels else max(1.0, MAX_IMAGE_PIXELS / max(values.shape))
    row_labels, column_labels = (
        [format_token(name, MAX_LABEL_COLUMNS) for name in names] if has_labels else [] for names in (rows, columns)
    )
    left = 12 + math.ceil(max((text_width(name, FONT_SIZE) for name in row_labels), default=20))
    top = 40 + math.ceil(max((text_width(name, FONT_SIZE) for name in column_labels), default=0))
    width, height = side * values.shape[1], side * values.shape[0]
    body = [render_text(0, 14, title, css_class="name")]
    body += [
        render_text(left - 6, top + (i + 0.5) * side + 4, name, css_class="end") for i, name in enumerate(row_labels)
    ]
    body += [
        render_text(left + (j + 0.5) * side + 4, top - 6, name, rotation=-90) for j, name in enumerate(column_labels)
    ]
    position = (
        f'x="{format_coordinate(left)}" y="{format_coordinate(top)}" '
        f'width="{format_coordinate(width)}" height="{format_coordinate(height)}"'
    )
    image = f'style="image-rendering:pixelated" href="{matrix_to_data_url(values, vmax=vmax)}"'
    vmax = vmax or float(np.nanmax(np.abs(values)))
    note = f"{axes[0]}, {axes[1]}; no color is 0, full color is {vmax:.3f}"
    body += [
        f'<image {position} preserveAspectRatio="none" {image}/>',
        f'<rect {position} class="rim"/>',
        render_text(left, top + height + 18, note, css_class="soft"),
    ]
    return render_svg_document(
        body,
        css_class="heat",
        title=title,
        description=f"{values.shape[0]:,} rows and {values.shape[1]:,} columns; full color is {vmax:.3f}.",
        width=max(left + max(width, text_width(note, FONT_SIZE)) + 40, text_width(title, 13)),
        height=top + height + 28,
        style=HEATMAP_CSS,
    )


def matrix_to_data_url(values: np.ndarray | Tensor, *, vmax: float | None = None) -> str:
    """A matrix as a PNG data URL with a pixel for each value: zero is transparent, `vmax` opaque, negative values blue."""
    array = np.nan_to_num(np.asarray(values, dtype=np.float64))
    end = (vmax or float(np.abs(array).max(initial=0.0))) or 1.0
    return image_to_data_url(Image.fromarray(weights_to_rgba(array / end)))


def image_to_data_url(image: Image.Image) -> str:
    """An image as a PNG data URL."""
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
