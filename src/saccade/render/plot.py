"""Matrices and curves as PNG or SVG files: weights, patterns, barcodes. Nothing opens a window."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from saccade.render.colors import diverging_colormap, sequential_colormap
from saccade.render.fonts import FontWarning, choose_fonts


@dataclass
class Heatmap:
    """A matrix to look at: a row for each query, a column for each key, unless the labels say otherwise."""

    title: str
    matrix: Tensor
    row_label: str = "query"
    column_label: str = "key"
    signed: bool = False  # whether zero is the middle of the scale
    vmax: float | None = None  # where the scale ends, if not at the largest value
    tick_labels: tuple[Sequence[str], Sequence[str]] | None = None  # of the rows and of the columns

    def draw(self, axis: Axes, figure: Figure) -> None:
        values = self.matrix.detach().float().cpu().numpy()
        top = self.vmax or max(float(np.nanmax(abs(values))), 1e-9)  # what is no number is left white
        scale = (
            {"cmap": diverging_colormap(), "vmin": -top} if self.signed else {"cmap": sequential_colormap(), "vmin": 0}
        )
        image = axis.imshow(values, aspect="auto", interpolation="nearest", vmax=top, **scale)
        axis.set(title=self.title, ylabel=self.row_label, xlabel=self.column_label)
        axis.title.set_parse_math(False)
        if self.tick_labels is not None:
            rows, columns = self.tick_labels
            axis.set_yticks(range(len(rows)), rows)
            axis.set_xticks(range(len(columns)), columns, rotation=60, ha="right")
            for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
                label.set_parse_math(False)  # a token may well be a dollar
        figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03)


@dataclass
class LineChart:
    """Lines over a common axis, and points that they were made from."""

    title: str
    x: Tensor
    lines: dict[str, Tensor]
    points: tuple[Tensor, Tensor] | None = None
    axis_labels: tuple[str, str] = ("", "")
    log_y: bool = False
    dashed_lines: frozenset[str] = field(default_factory=frozenset)

    def draw(self, axis: Axes, figure: Figure) -> None:
        if self.points is not None:
            axis.plot(*(p.numpy() for p in self.points), ".", color="0.6", markersize=5, label="data")
        for name, line in self.lines.items():
            axis.plot(self.x.numpy(), line.detach().numpy(), "--" if name in self.dashed_lines else "-", label=name)
        axis.set(title=self.title, xlabel=self.axis_labels[0], ylabel=self.axis_labels[1])
        axis.title.set_parse_math(False)  # a word may well be a dollar
        if self.log_y:
            axis.set_yscale("log")
        axis.grid(alpha=0.25)
        axis.legend(frameon=False)


def save_panels(path: Path, panels: Sequence[Heatmap | LineChart], *, title: str = "", columns: int = 3) -> Path:
    """Write panels side by side, `columns` to a line, as one file: PNG, SVG or PDF by its name."""
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.9 * lines + (0.4 if title else 0)), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).flatten()
    for axis, panel in zip(grid, panels, strict=False):
        panel.draw(axis, figure)
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
