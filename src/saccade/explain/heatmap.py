"""Matrices as inline SVG for a page: where attention looked, and which class was taken for which."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from saccade.explain.grid import DRAWN, Cell, Key, colour, grid
from saccade.explain.svg import label, readable

Matrix = Tensor | np.ndarray | Sequence[Sequence[float]]
LOOKING = ("query ↓", "key →")  # what rows and columns of attention are
SAID, SHOWN = 24, 16  # columns of a name in what is said on hovering, and beside the cells


def heatmap(
    weights: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    axes: tuple[str, str] = LOOKING,
    most: float | None = None,
) -> str:
    """Attention as a picture: a row for each token that looks, a column for each that is looked at.

    The scale runs from zero to `most`, or to the largest weight; where some are negative, zero is its middle.
    """
    values = numbers(weights, len(rows), len(columns))
    finite = [w for line in values for w in line if math.isfinite(w)] or [0.0]
    top, signed = most or max(map(abs, finite)) or 1.0, min(finite) < 0
    looking, seen = ([readable(token, SAID) for token in names[:DRAWN]] for names in (rows, columns))
    cells = [
        [
            Cell(colour(w / top, signed=signed), f"{row} → {column}: {w:.3f}")
            for column, w in zip(seen, line, strict=False)
        ]
        for row, line in zip(looking, values, strict=False)
    ]
    ends = (f"{-top:.3f}" if signed else "0", f"{top:.3f}")
    shares = [i / 15 for i in (range(-15, 16, 2) if signed else range(16))]
    key = Key(axes, ends, [colour(share, signed=signed) for share in shares])
    names = [readable(token, SHOWN) for token in rows], [readable(token, SHOWN) for token in columns]
    return grid(cells, *names, key, title=title, about=_strongest(values, looking, seen))


def confusion_matrix(counts: Sequence[Sequence[int]], names: Sequence[str], *, title: str) -> str:
    """Which class was taken for which: a row for each class, a column for each answer, coloured by the share of its row."""
    values = numbers(counts, len(names), len(names))
    called = [label(name, SAID) for name in names[:DRAWN]]
    cells = []
    for row, line in zip(called, values, strict=False):
        whole = sum(line) or 1
        cells.append(
            [
                Cell(
                    colour(n / whole), f"{row}, answered {column}: {n:,.0f} ({n / whole:.1%})", f"{n:,.0f}" if n else ""
                )
                for column, n in zip(called, line, strict=False)
            ]
        )
    key = Key(("gold ↓", "answer →"), ("0 %", "100 % of the row"), [colour(i / 15) for i in range(16)])
    right = sum(line[i] for i, line in enumerate(values))
    about = f"{right:,.0f} of {sum(map(sum, values)):,.0f} answers are right: those on the diagonal."
    shown = [label(name, SHOWN) for name in names]
    return grid(cells, shown, shown, key, title=title, about=about)


def numbers(matrix: Matrix, rows: int, columns: int) -> list[list[float]]:
    """The matrix as lists, if it has a row and a column for each name."""
    values = torch.as_tensor(matrix).detach().double().cpu()
    if values.shape != (rows, columns) or not values.numel():
        raise ValueError(
            f"A picture needs a matrix with a name for each row and each column; {rows} and {columns} names came with "
            f"the shape {tuple(values.shape)}. Choose one example and one head, such as weights[0, 0]."
        )
    return values.tolist()


def _strongest(values: list[list[float]], rows: list[str], columns: list[str]) -> str:
    """Where each row looks most, in words, for those who hear the picture."""
    words = []
    for row, line in zip(rows, values, strict=False):
        j = max(range(len(columns)), key=lambda j: line[j] if math.isfinite(line[j]) else -math.inf)
        words.append(f"{row} looks most at {columns[j]} ({line[j]:.3f})")
    return f"{len(values):,} rows and {len(values[0]):,} columns. {'; '.join(words)}."
