"""Matrices and curves as PNG or SVG files: weights, patterns, barcodes. Nothing opens a window."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from saccade.explain.colors import signed_scale, weight_scale
from saccade.explain.fonts import FontWarning, choose_fonts


@dataclass
class Map:
    """A matrix to look at: a row for each query, a column for each key, unless the labels say otherwise."""

    title: str
    matrix: Tensor
    rows: str = "query"
    columns: str = "key"
    signed: bool = False  # whether zero is the middle of the scale
    most: float | None = None  # where the scale ends, if not at the largest value
    names: tuple[Sequence[str], Sequence[str]] | None = None  # of the rows and of the columns

    def paint(self, axis: Axes, figure: Figure) -> None:
        values = self.matrix.detach().float().cpu().numpy()
        top = self.most or max(float(np.nanmax(abs(values))), 1e-9)  # what is no number is left white
        scale = {"cmap": signed_scale(), "vmin": -top} if self.signed else {"cmap": weight_scale(), "vmin": 0}
        image = axis.imshow(values, aspect="auto", interpolation="nearest", vmax=top, **scale)
        axis.set(title=self.title, ylabel=self.rows, xlabel=self.columns)
        axis.title.set_parse_math(False)
        if self.names is not None:
            rows, columns = self.names
            axis.set_yticks(range(len(rows)), rows)
            axis.set_xticks(range(len(columns)), columns, rotation=60, ha="right")
            for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
                label.set_parse_math(False)  # a token may well be a dollar
        figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03)


@dataclass
class Curves:
    """Lines over a common axis, and points that they were made from."""

    title: str
    x: Tensor
    lines: dict[str, Tensor]
    points: tuple[Tensor, Tensor] | None = None
    labels: tuple[str, str] = ("", "")
    log: bool = False
    dashed: frozenset[str] = field(default_factory=frozenset)

    def paint(self, axis: Axes, figure: Figure) -> None:
        if self.points is not None:
            axis.plot(*(p.numpy() for p in self.points), ".", color="0.6", markersize=5, label="data")
        for name, line in self.lines.items():
            axis.plot(self.x.numpy(), line.detach().numpy(), "--" if name in self.dashed else "-", label=name)
        axis.set(title=self.title, xlabel=self.labels[0], ylabel=self.labels[1])
        axis.title.set_parse_math(False)  # a word may well be a dollar
        if self.log:
            axis.set_yscale("log")
        axis.grid(alpha=0.25)
        axis.legend(frameon=False)


def save(path: Path, panels: Sequence[Map | Curves], *, title: str = "", columns: int = 3) -> Path:
    """Write panels side by side, `columns` to a line, as one file: PNG, SVG or PDF by its name."""
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.9 * lines + (0.4 if title else 0)), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).flatten()
    for axis, panel in zip(grid, panels, strict=False):
        panel.paint(axis, figure)
    for axis in grid[len(panels) :]:
        axis.set_axis_off()
    if title:
        figure.suptitle(title)
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, SVG or PDF by the name of the file; letters that no font has are warned of."""
    missing = choose_fonts(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # ours says what to do
        figure.savefig(path, dpi=110)
    if missing:
        warnings.warn(missing, FontWarning, stacklevel=2)
    return path
