"""Matrices as inline SVG for a page: where attention looked, and which class was taken for which."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from saccade.render.grid import MAX_CELLS_PER_SIDE, Cell, ColorLegend, color_class_of, render_grid
from saccade.render.svg import format_label, format_token

Matrix = Tensor | np.ndarray | Sequence[Sequence[float]]
QUERY_KEY_AXES = ("query ↓", "key →")  # what rows and columns of attention are
MAX_TOOLTIP_COLUMNS, MAX_LABEL_COLUMNS = 24, 16  # columns of a name in what is said on hovering, and beside the cells


def render_vector_heatmap(
    weights: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    axes: tuple[str, str] = QUERY_KEY_AXES,
    vmax: float | None = None,
) -> str:
    """Attention as a picture: a row for each token that looks, a column for each that is looked at.

    The scale runs from zero to `most`, or to the largest weight; where some are negative, zero is its middle.
    """
    values = matrix_to_lists(weights, len(rows), len(columns))
    finite = [w for line in values for w in line if math.isfinite(w)] or [0.0]
    top, signed = vmax or max(map(abs, finite)) or 1.0, min(finite) < 0
    looking, seen = (
        [format_token(token, MAX_TOOLTIP_COLUMNS) for token in names[:MAX_CELLS_PER_SIDE]] for names in (rows, columns)
    )
    cells = [
        [
            Cell(color_class_of(w / top, signed=signed), f"{row} → {column}: {w:.3f}")
            for column, w in zip(seen, line, strict=False)
        ]
        for row, line in zip(looking, values, strict=False)
    ]
    ends = (f"{-top:.3f}" if signed else "0", f"{top:.3f}")
    shares = [i / 15 for i in (range(-15, 16, 2) if signed else range(16))]
    key = ColorLegend(axes, ends, [color_class_of(share, signed=signed) for share in shares])
    names = (
        [format_token(token, MAX_LABEL_COLUMNS) for token in rows],
        [format_token(token, MAX_LABEL_COLUMNS) for token in columns],
    )
    return render_grid(cells, *names, key, title=title, description=_describe_strongest(values, looking, seen))


def render_confusion_matrix(counts: Sequence[Sequence[int]], names: Sequence[str], *, title: str) -> str:
    """Which class was taken for which: a row for each class, a column for each answer, coloured by the share of its row."""
    values = matrix_to_lists(counts, len(names), len(names))
    called = [format_label(name, MAX_TOOLTIP_COLUMNS) for name in names[:MAX_CELLS_PER_SIDE]]
    cells = []
    for row, line in zip(called, values, strict=False):
        whole = sum(line) or 1
        cells.append(
            [
                Cell(
                    color_class_of(n / whole),
                    f"{row}, answered {column}: {n:,.0f} ({n / whole:.1%})",
                    f"{n:,.0f}" if n else "",
                )
                for column, n in zip(called, line, strict=False)
            ]
        )
    key = ColorLegend(("gold ↓", "answer →"), ("0 %", "100 % of the row"), [color_class_of(i / 15) for i in range(16)])
    right = sum(line[i] for i, line in enumerate(values))
    about = f"{right:,.0f} of {sum(map(sum, values)):,.0f} answers are right: those on the diagonal."
    shown = [format_label(name, MAX_LABEL_COLUMNS) for name in names]
    return render_grid(cells, shown, shown, key, title=title, description=about)


def matrix_to_lists(matrix: Matrix, rows: int, columns: int) -> list[list[float]]:
    """The matrix as lists, if it has a row and a column for each name."""
    values = torch.as_tensor(matrix).detach().double().cpu()
    if values.shape != (rows, columns) or not values.numel():
        raise ValueError(
            f"A picture needs a matrix with a name for each row and each column; {rows} and {columns} names came with "
            f"the shape {tuple(values.shape)}. Choose one example and one head, such as weights[0, 0]."
        )
    return values.tolist()


def _describe_strongest(values: list[list[float]], rows: list[str], columns: list[str]) -> str:
    """Where each row looks most, in words, for those who hear the picture."""
    words = []
    for row, line in zip(rows, values, strict=False):
        j = max(range(len(columns)), key=lambda j: line[j] if math.isfinite(line[j]) else -math.inf)
        words.append(f"{row} looks most at {columns[j]} ({line[j]:.3f})")
    return f"{len(values):,} rows and {len(values[0]):,} columns. {'; '.join(words)}."
