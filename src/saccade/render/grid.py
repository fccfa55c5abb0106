"""A grid of coloured cells as SVG: the drawing under heat maps and confusion matrices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

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

COLOR_LEVELS = 64  # steps of colour, closer together than an eye can tell apart
MAX_LABELS_PER_SIDE = 64  # with more rows or columns than this there is no room for names
MAX_CELLS_PER_SIDE = 96  # more than this are not drawn: the page would take seconds to open
FONT_SIZE = 11  # of the letters, in pixels
HEATMAP_CSS = (
    f".heat{{{FONT_CSS};font-size:{FONT_SIZE}px;--ink:#1d2025;--soft:#5c6068}}"
    ".heat text{fill:var(--ink)}.heat .soft{fill:var(--soft)}.heat .name{font-size:13px;font-weight:600}"
    ".heat .end{text-anchor:end}.heat .mid{font-size:10px;text-anchor:middle;pointer-events:none}"
    ".heat .cell:hover{stroke:var(--ink);stroke-width:1.5px}"
    ".heat .rim{fill:none;stroke:var(--soft);stroke-opacity:.5}.heat .none{fill:none;pointer-events:all}"
    "@media screen and (prefers-color-scheme:dark){.heat{--ink:#e6e3dd;--soft:#a3a5aa}}"
)


@dataclass(frozen=True)
class Cell:
    """One field: its colour, what is said on hovering, and what is written in it."""

    color_class: str
    tooltip: str
    text: str = ""


@dataclass(frozen=True)
class ColorLegend:
    """What rows and columns are, and how to read the colours: from the first end of the scale to the second."""

    axis_names: tuple[str, str]
    end_labels: tuple[str, str]
    color_classes: Sequence[str]


def color_class_of(fraction: float, *, signed: bool = False) -> str:
    """The name of a colour: m0 to m64 from nothing to all, d0 to d64 from minus one to one, none for what is no number.

    >>> color_class_of(0), color_class_of(0.5), color_class_of(0, signed=True), color_class_of(math.nan)
    ('m0', 'm32', 'd32', 'none')
    """
    if not math.isfinite(fraction):
        return "none"
    return f"d{round((fraction + 1) / 2 * COLOR_LEVELS)}" if signed else f"m{round(fraction * COLOR_LEVELS)}"


@cache
def class_to_colors(color_class: str) -> tuple[str, str]:
    """A colour on a light and on a dark page.

    Zero is the page's own ground, so what stands out is weight.
    """
    scale = diverging_colormap if color_class[0] == "d" else sequential_colormap
    light, dark = (
        to_hex(scale(ground)(int(color_class[1:]) / COLOR_LEVELS)) for ground in (LIGHT_BACKGROUND, DARK_BACKGROUND)
    )
    return light, dark


def choose_text_color(background: str) -> str:
    """Black or white, whichever is easier to read on this shade."""
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
) -> str:
    """The cells with their names, the title above and the scale below, as large as it needs to be.

    Of more than 96 rows or columns the first are drawn, and a note says so.
    """
    note = _size_note(len(rows), len(columns))
    cells = [line[:MAX_CELLS_PER_SIDE] for line in cells[:MAX_CELLS_PER_SIDE]]
    named = max(len(rows), len(columns)) <= MAX_LABELS_PER_SIDE
    rows, columns = (rows, columns) if named else ([], [])
    side = _cell_size(cells)
    long = max((text_width(name, FONT_SIZE) for name in columns), default=0)
    left = 12 + math.ceil(max(text_width(name, FONT_SIZE) for name in [legend.axis_names[0], *rows]))
    top = 48 + math.ceil(0.87 * long)  # names lean by 60 degrees
    wide, high = side * len(cells[0]), side * len(cells)
    called = shorten(title, 80)
    body = [render_text(0, 14, called, css_class="name"), render_text(left, 34, legend.axis_names[1], css_class="soft")]
    body.append(render_text(left - 7, top - 6, legend.axis_names[0], css_class="soft end"))
    body += [render_text(left - 7, top + (i + 0.5) * side + 4, name, css_class="end") for i, name in enumerate(rows)]
    body += [_render_slanted_label(left + (j + 0.5) * side + 3, top - 6, name) for j, name in enumerate(columns)]
    body += [_render_row(line, left, top + i * side, side) for i, line in enumerate(cells)]
    body.append(_render_rect(left, top, wide, high, "rim") + "</rect>")
    body += _render_color_bar(legend, left, top + high + 14)
    body.append(render_text(left, top + high + 48, note, css_class="soft"))
    below = [
        wide + long / 2,
        text_width(note, FONT_SIZE),
        16 * 8 + text_width("".join(legend.end_labels) + "  ", FONT_SIZE),
    ]
    width = max(left + max(below), text_width(called, 13)) + 10
    style = _make_css({cell.color_class for line in cells for cell in line} | set(legend.color_classes))
    height = top + high + (56 if note else 34)
    return render_svg_document(
        body, css_class="heat", title=title, description=description, width=width, height=height, style=style
    )


def _size_note(rows: int, columns: int) -> str:
    if max(rows, columns) > MAX_CELLS_PER_SIDE:
        return f"The first {min(rows, MAX_CELLS_PER_SIDE)} of {rows:,} rows and {min(columns, MAX_CELLS_PER_SIDE)} of {columns:,} columns."
    return "Too many for names: they appear over a cell." if max(rows, columns) > MAX_LABELS_PER_SIDE else ""


def _cell_size(cells: Sequence[Sequence[Cell]]) -> int:
    """How large a cell is: room for what is written in it, or less the more there are."""
    many = max(len(cells), len(cells[0]))
    least = 22 if many <= 24 else 17 if many <= MAX_LABELS_PER_SIDE else 8
    return max(least, 6 + math.ceil(max(text_width(cell.text, 10) for line in cells for cell in line)))


def _render_rect(x: float, y: float, width: float, height: float, css_class: str) -> str:
    return f'<rect x="{format_coordinate(x)}" y="{format_coordinate(y)}" width="{format_coordinate(width)}" height="{format_coordinate(height)}" class="{css_class}">'


def _render_row(cells: Sequence[Cell], x: float, y: float, side: float) -> str:
    drawn = []
    for j, cell in enumerate(cells):
        drawn.append(
            f"{_render_rect(x + j * side, y, side, side, f'cell {cell.color_class}')}<title>{escape(cell.tooltip)}</title></rect>"
        )
        if cell.text:
            drawn.append(render_text(x + (j + 0.5) * side, y + side / 2 + 3.5, cell.text, css_class="mid"))
    return "".join(drawn)


def _render_slanted_label(x: float, y: float, name: str) -> str:
    return f'<g transform="translate({format_coordinate(x)} {format_coordinate(y)}) rotate(-60)">{render_text(0, 0, name)}</g>'


def _render_color_bar(legend: ColorLegend, x: float, y: float) -> list[str]:
    """The colours side by side, with the number that each end stands for."""
    first = x + text_width(legend.end_labels[0], FONT_SIZE) + 6
    bar = [_render_rect(first + 8 * i, y, 8, 10, name) + "</rect>" for i, name in enumerate(legend.color_classes)]
    low, high = (
        render_text(x, y + 9, legend.end_labels[0], css_class="soft"),
        render_text(first + 8 * len(bar) + 6, y + 9, legend.end_labels[1], css_class="soft"),
    )
    return [low, "".join(bar), high]


def _make_css(names: set[str]) -> str:
    used = sorted(names - {"none"})
    rules = "".join(_css_rule(name, class_to_colors(name)[0]) for name in used)
    dark = "".join(_css_rule(name, class_to_colors(name)[1]) for name in used)
    return f"{HEATMAP_CSS}{rules}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def _css_rule(name: str, color: str) -> str:
    return f".heat .{name}{{fill:{color}}}.heat .cell.{name}+text{{fill:{choose_text_color(color)}}}"
