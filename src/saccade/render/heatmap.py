"""Heat maps of attention weights and confusion matrices as inline SVG, with a tooltip for each cell."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor

from saccade.render.grid import MAX_CELLS_PER_SIDE, Cell, ColorLegend, color_class_of, render_grid
from saccade.render.svg import format_label, format_token

Matrix = Tensor | np.ndarray | Sequence[Sequence[float]]
QUERY_KEY_AXES = ("query ↓", "key →")  # rows and columns of attention
MAX_TOOLTIP_COLUMNS, MAX_LABEL_COLUMNS = 24, 16  # columns of a name in a tooltip, and beside the cells


def render_vector_heatmap(
    weights: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    axes: tuple[str, str] = QUERY_KEY_AXES,
    vmax: float | None = None,
) -> Markup:
    """A heat map with a row for each query token and a column for each key token.

    The color scale runs from zero to `vmax`, by default the largest weight; where some weights are negative, zero is its middle.
    """
    values = matrix_to_lists(weights, len(rows), len(columns))
    finite = [w for row in values for w in row if math.isfinite(w)] or [0.0]
    end, signed = vmax or max(map(abs, finite)) or 1.0, min(finite) < 0
    queries, keys = (
        [format_token(token, MAX_TOOLTIP_COLUMNS) for token in names[:MAX_CELLS_PER_SIDE]] for names in (rows, columns)
    )
    cells = [
        [
            Cell(color_class_of(w / end, signed=signed), f"{query} → {key}: {w:.3f}")
            for key, w in zip(keys, row, strict=False)
        ]
        for query, row in zip(queries, values, strict=False)
    ]
    end_labels = (f"{-end:.3f}" if signed else "0", f"{end:.3f}")
    fractions = [i / 15 for i in (range(-15, 16, 2) if signed else range(16))]
    legend = ColorLegend(axes, end_labels, [color_class_of(fraction, signed=signed) for fraction in fractions])
    row_labels, column_labels = ([format_token(name, MAX_LABEL_COLUMNS) for name in names] for names in (rows, columns))
    description = _describe_strongest(values, queries, keys)
    return render_grid(cells, row_labels, column_labels, legend, title=title, description=description)


def render_confusion_matrix(counts: Sequence[Sequence[int]], names: Sequence[str], *, title: str) -> Markup:
    """A confusion matrix: a row for each gold class, a column for each predicted class, colored by the fraction of its row."""
    values = matrix_to_lists(counts, len(names), len(names))
    classes = [format_label(name, MAX_TOOLTIP_COLUMNS) for name in names[:MAX_CELLS_PER_SIDE]]
    cells = []
    for gold, row in zip(classes, values, strict=False):
        total = sum(row) or 1
        cells.append(
            [
                Cell(
                    color_class_of(n / total),
                    f"{gold}, predicted {predicted}: {n:,.0f} ({n / total:.1%})",
                    f"{n:,.0f}" if n else "",
                )
                for predicted, n in zip(classes, row, strict=False)
            ]
        )
    ends = ("0%", "100% of the row")
    legend = ColorLegend(("gold ↓", "predicted →"), ends, [color_class_of(i / 15) for i in range(16)])
    correct = sum(row[i] for i, row in enumerate(values))
    description = f"{correct:,.0f} of {sum(map(sum, values)):,.0f} predictions are correct: those on the diagonal."
    labels = [format_label(name, MAX_LABEL_COLUMNS) for name in names]
    return render_grid(cells, labels, labels, legend, title=title, description=description)


def matrix_to_lists(matrix: Matrix, rows: int, columns: int) -> list[list[float]]:
    """The matrix as lists, checked to have a row and a column for each name."""
    values = torch.as_tensor(matrix).detach().double().cpu()
    if values.shape != (rows, columns) or not values.numel():
        raise ValueError(
            f"A heat map needs a matrix with a name for each row and each column; got {rows} and {columns} names with "
            f"the shape {tuple(values.shape)}. Choose one example and one head, such as weights[0, 0]."
        )
    return values.tolist()


def _describe_strongest(values: list[list[float]], queries: list[str], keys: list[str]) -> str:
    """The largest weight of each row in words, for screen readers."""
    words = []
    for query, row in zip(queries, values, strict=False):
        j = max(range(len(keys)), key=lambda j: row[j] if math.isfinite(row[j]) else -math.inf)
        words.append(f"{query} attends most to {keys[j]} ({row[j]:.3f})")
    return f"{len(values):,} rows and {len(values[0]):,} columns. {'; '.join(words)}."
