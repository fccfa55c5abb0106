"""A grid of colored cells as inline SVG: the drawing behind heat maps and confusion matrices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup
from matplotlib.colors import to_hex

from saccade.render.colors import DARK_BACKGROUND, LIGHT_BACKGROUND, diverging_colormap, sequential_colormap
from saccade.render.svg import (
    FONT_CSS,
    escape,
    format_coordinate,
    render_svg_document,
    render_text,
    shorten,
    text_width,
)

COLOR_LEVELS = 64  # neighboring levels cannot be distinguished by eye
MAX_LABELS_PER_SIDE = 64  # a grid with more rows or columns has no labels
MAX_CELLS_PER_SIDE = 96  # rows and columns beyond are not drawn, since the page would take seconds to open
FONT_SIZE, CELL_FONT_SIZE = 11, 10  # in pixels
HEATMAP_CSS = (
    f".heat{{{FONT_CSS};font-size:{FONT_SIZE}px;--ink:#1d2025;--soft:#5c6068}}"
    ".heat text{fill:var(--ink)}.heat .soft{fill:var(--soft)}.heat .name{font-size:13px;font-weight:600}"
    f".heat .end{{text-anchor:end}}.heat .mid{{font-size:{CELL_FONT_SIZE}px;text-anchor:middle;pointer-events:none}}"
    ".heat .cell:hover{stroke:var(--ink);stroke-width:1.5px}"
    ".heat .rim{fill:none;stroke:var(--soft);stroke-opacity:.5}.heat .none{fill:none;pointer-events:all}"
    "@media screen and (prefers-color-scheme:dark){.heat{--ink:#e6e3dd;--soft:#a3a5aa}}"
)


@dataclass(frozen=True)
class Cell:
    """One cell: the CSS class of its color, its tooltip, and the text inside."""

    color_class: str
    tooltip: str
    text: str = ""


@dataclass(frozen=True)
class ColorLegend:
    """The names of both axes, and the color bar with a label at each end."""

    axis_names: tuple[str, str]
    end_labels: tuple[str, str]
    color_classes: Sequence[str]


def color_class_of(fraction: float, *, signed: bool = False) -> str:
    """The CSS class of a color: m0 to m64 for fractions from 0 to 1, d0 to d64 for -1 to 1, and `none` for nan.

    >>> color_class_of(0), color_class_of(0.5), color_class_of(0, signed=True), color_class_of(math.nan)
    ('m0', 'm32', 'd32', 'none')
    """
    if not math.isfinite(fraction):
        return "none"
    return f"d{round((fraction + 1) / 2 * COLOR_LEVELS)}" if signed else f"m{round(fraction * COLOR_LEVELS)}"


@cache
def class_to_colors(color_class: str) -> tuple[str, str]:
    """The color of a CSS class on a light and on a dark page. Zero has the color of the background."""
    colormap = diverging_colormap if color_class[0] == "d" else sequential_colormap
    light, dark = (
        to_hex(colormap(background)(int(color_class[1:]) / COLOR_LEVELS))
        for background in (LIGHT_BACKGROUND, DARK_BACKGROUND)
    )
    return light, dark


def choose_text_color(background: str) -> str:
    """Black or white, whichever has more contrast with the background (relative luminance as in WCAG 2)."""
    parts = [int(background[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return "#000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#fff"


def render_grid(
    cells: Sequence[Sequence[Cell]],
    rows: Sequence[str],
    columns: Sequence[str],
    legend: ColorLegend,
    *,
    title: str,
    description: str,
) -> Markup:
    """The cells with labels for rows and columns, the title above and the color bar below.

    Of more than 96 rows or columns only the first are drawn, and a note says so.
    """
    note = _size_note(len(rows), len(columns))
    cells = [row[:MAX_CELLS_PER_SIDE] for row in cells[:MAX_CELLS_PER_SIDE]]
    has_labels = max(len(rows), len(columns)) <= MAX_LABELS_PER_SIDE
    rows, columns = (rows, columns) if has_labels else ([], [])
    side = _cell_size(cells)
    longest = max((text_width(name, FONT_SIZE) for name in columns), default=0)
    left = 12 + math.ceil(max(text_width(name, FONT_SIZE) for name in [legend.axis_names[0], *rows]))
    top = 48 + math.ceil(0.87 * longest)  # labels are slanted by 60 degrees
    width, height = side * len(cells[0]), side * len(cells)
    short_title = shorten(title, 80)
    body = [
        render_text(0, 14, short_title, css_class="name"),
        render_text(left, 34, legend.axis_names[1], css_class="soft"),
        render_text(left - 7, top - 6, legend.axis_names[0], css_class="soft end"),
    ]
    body += [render_text(left - 7, top + (i + 0.5) * side + 4, name, css_class="end") for i, name in enumerate(rows)]
    body += [render_text(left + (j + 0.5) * side + 3, top - 6, name, rotation=-60) for j, name in enumerate(columns)]
    body += [_render_row(row, left, top + i * side, side) for i, row in enumerate(cells)]
    body.append(_render_rect(left, top, width, height, "rim"))
    body += _render_color_bar(legend, left, top + height + 14)
    body.append(render_text(left, top + height + 48, note, css_class="soft"))
    widths_below = [
        width + longest / 2,
        text_width(note, FONT_SIZE),
        16 * 8 + text_width("".join(legend.end_labels) + "  ", FONT_SIZE),
    ]
    return render_svg_document(
        body,
        css_class="heat",
        title=title,
        description=description,
        width=max(left + max(widths_below), text_width(short_title, 13)) + 10,
        height=top + height + (56 if note else 34),
        style=_make_css({cell.color_class for row in cells for cell in row} | set(legend.color_classes)),
    )


def _size_note(rows: int, columns: int) -> str:
    """What is left out of a large grid."""
    if max(rows, columns) > MAX_CELLS_PER_SIDE:
        shown_rows, shown_columns = min(rows, MAX_CELLS_PER_SIDE), min(columns, MAX_CELLS_PER_SIDE)
        return f"The first {shown_rows} of {rows:,} rows and {shown_columns} of {columns:,} columns."
    return "Too many labels to draw: hover over a cell to see them." if max(rows, columns) > MAX_LABELS_PER_SIDE else ""


def _cell_size(cells: Sequence[Sequence[Cell]]) -> int:
    """The side of a cell in pixels: room for the text inside, and smaller the more cells there are."""
    count = max(len(cells), len(cells[0]))
    smallest = 22 if count <= 24 else 17 if count <= MAX_LABELS_PER_SIDE else 8
    return max(smallest, 6 + math.ceil(max(text_width(cell.text, CELL_FONT_SIZE) for row in cells for cell in row)))


def _render_rect(x: float, y: float, width: float, height: float, css_class: str, content: str = "") -> str:
    position = f'x="{format_coordinate(x)}" y="{format_coordinate(y)}"'
    size = f'width="{format_coordinate(width)}" height="{format_coordinate(height)}"'
    return f'<rect {position} {size} class="{css_class}">{content}</rect>'


def _render_row(cells: Sequence[Cell], x: float, y: float, side: float) -> str:
    elements = []
    for j, cell in enumerate(cells):
        tooltip = f"<title>{escape(cell.tooltip)}</title>"
        elements.append(_render_rect(x + j * side, y, side, side, f"cell {cell.color_class}", tooltip))
        if cell.text:
            elements.append(render_text(x + (j + 0.5) * side, y + side / 2 + 3.5, cell.text, css_class="mid"))
    return "".join(elements)


def _render_color_bar(legend: ColorLegend, x: float, y: float) -> list[str]:
    """The colors side by side, with a label at each end."""
    start = x + text_width(legend.end_labels[0], FONT_SIZE) + 6
    return [
        render_text(x, y + 9, legend.end_labels[0], css_class="soft"),
        *(_render_rect(start + 8 * i, y, 8, 10, name) for i, name in enumerate(legend.color_classes)),
        render_text(start + 8 * len(legend.color_classes) + 6, y + 9, legend.end_labels[1], css_class="soft"),
    ]


def _make_css(color_classes: set[str]) -> str:
    names = sorted(color_classes - {"none"})
    light = "".join(_css_rule(name, class_to_colors(name)[0]) for name in names)
    dark = "".join(_css_rule(name, class_to_colors(name)[1]) for name in names)
    return f"{HEATMAP_CSS}{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def _css_rule(name: str, color: str) -> str:
    return f".heat .{name}{{fill:{color}}}.heat .cell.{name}+text{{fill:{choose_text_color(color)}}}"
