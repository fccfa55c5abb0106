"""HTML for the `_repr_html_` of notebook cells: tables, preformatted text and heat maps, in the style of reports.

Every package may import this module; the templates and plots of `saccade.render` are imported when a cell is displayed.
"""

import sys
from collections.abc import Sequence
from typing import Any


def html_table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str = "") -> str:
    """A table as HTML; its cells are escaped as text.

    >>> "<bdi>&lt;b&gt;</bdi>" in html_table(["a"], [["<b>"]])
    True
    """
    from saccade.render.page import Block, Paragraph, Table, render_notebook_cell

    title: list[Block] = [Paragraph(caption)] if caption else []
    return render_notebook_cell([*title, Table(headers, [[str(cell) for cell in row] for row in rows])])


def html_text(text: str) -> str:
    """Preformatted text as HTML."""
    from saccade.render.page import CodeBlock, render_notebook_cell

    return render_notebook_cell([CodeBlock(text)])


def html_heatmap(values: Sequence[Sequence[float]], *, caption: str) -> str:
    """A matrix as a heat map whose rows and columns are numbered from 0."""
    from saccade.render.page import Figure, Paragraph, render_notebook_cell
    from saccade.render.raster import render_heatmap

    rows, columns = ([str(i) for i in range(count)] for count in (len(values), len(values[0])))
    return render_notebook_cell(
        [Paragraph(caption), Figure(render_heatmap(values, rows, columns, title=caption), caption)]
    )


def get_notebook_display() -> Any:
    """IPython's `display` if this process is the kernel of a notebook, None in a script or a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display  # type: ignore[import-not-found]

    return display
