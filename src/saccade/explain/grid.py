"""A grid of coloured cells as SVG: the drawing under heat maps and confusion matrices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from matplotlib.colors import to_hex

from saccade.explain.colors import DARK_GROUND, LIGHT_GROUND, signed_scale, weight_scale
from saccade.explain.svg import TYPE, breadth, escape, frame, place, shorten, write

LEVELS = 64  # steps of colour, closer together than an eye can tell apart
NAMED = 64  # with more rows or columns than this there is no room for names
DRAWN = 96  # more than this are not drawn: the page would take seconds to open
SIZE = 11  # of the letters, in pixels
STYLE = (
    f".heat{{{TYPE};font-size:{SIZE}px;--ink:#1d2025;--soft:#5c6068}}"
    ".heat text{fill:var(--ink)}.heat .soft{fill:var(--soft)}.heat .name{font-size:13px;font-weight:600}"
    ".heat .end{text-anchor:end}.heat .mid{font-size:10px;text-anchor:middle;pointer-events:none}"
    ".heat .cell:hover{stroke:var(--ink);stroke-width:1.5px}"
    ".heat .rim{fill:none;stroke:var(--soft);stroke-opacity:.5}.heat .none{fill:none;pointer-events:all}"
    "@media screen and (prefers-color-scheme:dark){.heat{--ink:#e6e3dd;--soft:#a3a5aa}}"
)


@dataclass(frozen=True)
class Cell:
    """One field: its colour, what is said on hovering, and what is written in it."""

    colour: str
    tip: str
    text: str = ""


@dataclass(frozen=True)
class Key:
    """What rows and columns are, and how to read the colours: from the first end of the scale to the second."""

    axes: tuple[str, str]
    ends: tuple[str, str]
    colours: Sequence[str]


def colour(share: float, *, signed: bool = False) -> str:
    """The name of a colour: m0 to m64 from nothing to all, d0 to d64 from minus one to one, none for what is no number.

    >>> colour(0), colour(0.5), colour(0, signed=True), colour(math.nan)
    ('m0', 'm32', 'd32', 'none')
    """
    if not math.isfinite(share):
        return "none"
    return f"d{round((share + 1) / 2 * LEVELS)}" if signed else f"m{round(share * LEVELS)}"


@cache
def shades(name: str) -> tuple[str, str]:
    """A colour on a light and on a dark page.

    Zero is the page's own ground, so what stands out is weight.
    """
    scale = signed_scale if name[0] == "d" else weight_scale
    light, dark = (to_hex(scale(ground)(int(name[1:]) / LEVELS)) for ground in (LIGHT_GROUND, DARK_GROUND))
    return light, dark


def ink(shade: str) -> str:
    """Black or white, whichever is easier to read on this shade."""
    parts = [int(shade[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return "#000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#fff"


def grid(
    cells: Sequence[Sequence[Cell]], rows: Sequence[str], columns: Sequence[str], key: Key, *, title: str, about: str
) -> str:
    """The cells with their names, the title above and the scale below, as large as it needs to be.

    Of more than 96 rows or columns the first are drawn, and a note says so.
    """
    note = _note(len(rows), len(columns))
    cells = [line[:DRAWN] for line in cells[:DRAWN]]
    named = max(len(rows), len(columns)) <= NAMED
    rows, columns = (rows, columns) if named else ([], [])
    side = _side(cells)
    long = max((breadth(name, SIZE) for name in columns), default=0)
    left = 12 + math.ceil(max(breadth(name, SIZE) for name in [key.axes[0], *rows]))
    top = 48 + math.ceil(0.87 * long)  # names lean by 60 degrees
    wide, high = side * len(cells[0]), side * len(cells)
    called = shorten(title, 80)
    body = [write(0, 14, called, kind="name"), write(left, 34, key.axes[1], kind="soft")]
    body.append(write(left - 7, top - 6, key.axes[0], kind="soft end"))
    body += [write(left - 7, top + (i + 0.5) * side + 4, name, kind="end") for i, name in enumerate(rows)]
    body += [_leaning(left + (j + 0.5) * side + 3, top - 6, name) for j, name in enumerate(columns)]
    body += [_line(line, left, top + i * side, side) for i, line in enumerate(cells)]
    body.append(_rect(left, top, wide, high, "rim") + "</rect>")
    body += _scale(key, left, top + high + 14)
    body.append(write(left, top + high + 48, note, kind="soft"))
    below = [wide + long / 2, breadth(note, SIZE), 16 * 8 + breadth("".join(key.ends) + "  ", SIZE)]
    width = max(left + max(below), breadth(called, 13)) + 10
    style = _style({cell.colour for line in cells for cell in line} | set(key.colours))
    height = top + high + (56 if note else 34)
    return frame(body, kind="heat", title=title, about=about, width=width, height=height, style=style)


def _note(rows: int, columns: int) -> str:
    if max(rows, columns) > DRAWN:
        return f"The first {min(rows, DRAWN)} of {rows:,} rows and {min(columns, DRAWN)} of {columns:,} columns."
    return "Too many for names: they appear over a cell." if max(rows, columns) > NAMED else ""


def _side(cells: Sequence[Sequence[Cell]]) -> int:
    """How large a cell is: room for what is written in it, or less the more there are."""
    many = max(len(cells), len(cells[0]))
    least = 22 if many <= 24 else 17 if many <= NAMED else 8
    return max(least, 6 + math.ceil(max(breadth(cell.text, 10) for line in cells for cell in line)))


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{place(x)}" y="{place(y)}" width="{place(width)}" height="{place(height)}" class="{kind}">'


def _line(cells: Sequence[Cell], x: float, y: float, side: float) -> str:
    drawn = []
    for j, cell in enumerate(cells):
        drawn.append(
            f"{_rect(x + j * side, y, side, side, f'cell {cell.colour}')}<title>{escape(cell.tip)}</title></rect>"
        )
        if cell.text:
            drawn.append(write(x + (j + 0.5) * side, y + side / 2 + 3.5, cell.text, kind="mid"))
    return "".join(drawn)


def _leaning(x: float, y: float, name: str) -> str:
    return f'<g transform="translate({place(x)} {place(y)}) rotate(-60)">{write(0, 0, name)}</g>'


def _scale(key: Key, x: float, y: float) -> list[str]:
    """The colours side by side, with the number that each end stands for."""
    first = x + breadth(key.ends[0], SIZE) + 6
    bar = [_rect(first + 8 * i, y, 8, 10, name) + "</rect>" for i, name in enumerate(key.colours)]
    low, high = (
        write(x, y + 9, key.ends[0], kind="soft"),
        write(first + 8 * len(bar) + 6, y + 9, key.ends[1], kind="soft"),
    )
    return [low, "".join(bar), high]


def _style(names: set[str]) -> str:
    used = sorted(names - {"none"})
    rules = "".join(_rule(name, shades(name)[0]) for name in used)
    dark = "".join(_rule(name, shades(name)[1]) for name in used)
    return f"{STYLE}{rules}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def _rule(name: str, shade: str) -> str:
    return f".heat .{name}{{fill:{shade}}}.heat .cell.{name}+text{{fill:{ink(shade)}}}"
