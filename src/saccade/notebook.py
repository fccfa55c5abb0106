"""Small HTML forms for notebooks: tables, text and heat maps; it needs nothing of the library, so that every part may use it."""

import sys
from collections.abc import Sequence
from html import escape
from typing import Any

MAX_CELLS = 32  # rows and columns of a heat map that are drawn
CELL_STYLE = "width:10px;height:10px;min-width:10px;padding:0;border:1px solid #ddd"


def html_table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str = "") -> str:
    """A table whose cells are text.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_text(text: str) -> str:
    """Text with its lines and spaces as they are."""
    return f'<pre style="line-height:1.2">{escape(text)}</pre>'


def html_heatmap(values: Sequence[Sequence[float]], *, caption: str) -> str:
    """Numbers from 0 as cells between white and blue; the caption says how large the darkest is, and what was left out."""
    drawn = [list(row[:MAX_CELLS]) for row in values[:MAX_CELLS]]
    most = max((value for row in drawn for value in row), default=0.0)
    shade = lambda value: 0.0 if most <= 0 else max(0.0, min(1.0, value / most))
    cell = lambda value: (
        f'<td title="{value:.3f}" style="{CELL_STYLE};background:rgba(33,92,168,{shade(value):.2f})"></td>'
    )
    body = "".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in drawn)
    rows, columns = len(values), len(values[0]) if len(values) else 0
    cut = f"; the first {len(drawn)} of {rows} rows and {len(drawn[0])} of {columns} columns" if drawn else ""
    cut = cut if max(rows, columns) > MAX_CELLS else ""
    said = escape(f"{caption}; darkest: {most:.3g}{cut}")
    return f'<p>{said}</p><table style="border-collapse:collapse"><tbody>{body}</tbody></table>'


def get_notebook_display() -> Any:
    """IPython's `display` where this process is the kernel of a notebook; None in a script or on a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display  # type: ignore[import-not-found]

    return display
