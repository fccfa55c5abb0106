"""Heat maps and line charts: described once, then drawn by matplotlib into a PNG, SVG or PDF file or as inline SVG for a page.

The two outputs have different needs: an image file can hold many panels and any font, while a page has tooltips, follows the
light or dark theme and can be read by a screen reader. Colors and labels are the same in both. No window is opened.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from saccade.render.charts import render_line_chart
from saccade.render.colors import diverging_colormap, sequential_colormap
from saccade.render.fonts import FontWarning, choose_fonts
from saccade.render.raster import render_heatmap

DPI = 110


@dataclass(frozen=True)
class ColorScale:
    """The numbers that colors stand for: from zero to `vmax`, or from `-vmax` where some values are negative."""

    name: str
    vmax: float
    signed: bool = False

    @property
    def vmin(self) -> float:
        return -self.vmax if self.signed else 0.0

    def colormap(self) -> Colormap:
        return diverging_colormap() if self.signed else sequential_colormap()


@dataclass
class Heatmap:
    """A matrix with a row for each query and a column for each key, unless the labels say otherwise."""

    title: str
    matrix: Tensor
    row_label: str = "query"
    column_label: str = "key"
    signed: bool = False  # whether zero is the middle of the scale
    vmax: float | None = None  # end of the scale; None: the largest absolute value
    tick_labels: tuple[Sequence[str], Sequence[str]] | None = None  # names of rows and of columns; None: their numbers

    def draw(self, axis: Axes, figure: Figure) -> None:
        vmax = self.vmax or max(float(np.nanmax(abs(self.matrix.detach().float().cpu().numpy()))), 1e-9)
        image = draw_matrix(axis, self.matrix, ColorScale("", vmax, self.signed))
        axis.set(ylabel=self.row_label, xlabel=self.column_label)
        axis.set_title(self.title, parse_math=False)
        if self.tick_labels is not None:
            rows, columns = self.tick_labels
            set_tick_labels(axis, list(enumerate(rows)), list(enumerate(columns)), rotation=60)
            for label in axis.get_xticklabels():
                label.set_horizontalalignment("right")
        figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03)

    def to_svg(self) -> Markup:
        """The heat map as inline SVG for a page."""
        rows, columns = self.tick_labels or [[str(i) for i in range(count)] for count in self.matrix.shape]
        values = self.matrix if self.vmax is None else self.matrix.clamp(-self.vmax, self.vmax)
        axes = (f"{self.row_label} ↓", f"{self.column_label} →")
        return render_heatmap(values, rows, columns, title=self.title, axes=axes, vmax=self.vmax)


@dataclass
class LineChart:
    """Lines over a common x-axis, with the data points that they were computed from, if any."""

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
        axis.set(xlabel=self.axis_labels[0], ylabel=self.axis_labels[1])
        axis.set_title(self.title, parse_math=False)
        if self.log_y:
            axis.set_yscale("log")
        axis.grid(alpha=0.25)
        axis.legend(frameon=False)

    def to_svg(self) -> Markup:
        """The chart as inline SVG for a page, where lines are solid and the y-axis is linear."""
        if self.log_y or self.points is not None:
            raise ValueError(
                f"{self.title}: a chart on a page has neither a logarithmic axis nor separate data points."
            )
        lines = {name: list(zip(self.x.tolist(), line.tolist(), strict=True)) for name, line in self.lines.items()}
        return render_line_chart(lines, title=self.title, x=self.axis_labels[0], y=self.axis_labels[1])


def draw_matrix(axis: Axes, matrix: Tensor, scale: ColorScale) -> AxesImage:
    """Draw the cells of a matrix; a value that is not a number stays white."""
    values = matrix.detach().float().cpu().numpy()
    return axis.imshow(
        values, aspect="auto", interpolation="nearest", cmap=scale.colormap(), vmin=scale.vmin, vmax=scale.vmax
    )


def set_tick_labels(
    axis: Axes,
    rows: Sequence[tuple[int, str]],
    columns: Sequence[tuple[int, str]],
    *,
    rotation: float,
    font_size: float | None = None,
) -> None:
    """Label rows and columns by their positions; the dollar signs of a token do not make its label a formula."""
    axis.set_yticks([i for i, _ in rows], [name for _, name in rows], fontsize=font_size)
    axis.set_xticks([i for i, _ in columns], [name for _, name in columns], fontsize=font_size, rotation=rotation)
    for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        label.set_parse_math(False)


def draw_errorbar(
    axis: Axes,
    scores: Sequence[Mapping[str, float]],
    positions: Sequence[float],
    *,
    scale: float = 1.0,
    orientation: Literal["horizontal", "vertical"] = "horizontal",
    **style: Any,
) -> None:
    """Draw values with error bars at positions; each score has `value`, `low` and `high`, multiplied by `scale`."""
    values, low, high = ([scale * score[key] for score in scores] for key in ("value", "low", "high"))
    errors = [
        [value - end for value, end in zip(values, low, strict=True)],
        [end - value for value, end in zip(values, high, strict=True)],
    ]
    if orientation == "vertical":
        axis.errorbar(positions, values, yerr=errors, capsize=3, **style)
    else:
        axis.errorbar(values, positions, xerr=errors, capsize=3, **style)


def save_panels(path: Path, panels: Sequence[Heatmap | LineChart], *, title: str = "", columns: int = 3) -> Path:
    """Write panels in rows of `columns` to one file; its suffix chooses PNG, SVG or PDF."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.9 * rows + (0.4 if title else 0)), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, panel in zip(grid, panels, strict=False):
        panel.draw(axis, figure)
    for axis in grid[len(panels) :]:
        axis.set_axis_off()
    if title:
        figure.suptitle(title)
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure to a file whose suffix chooses PNG, SVG or PDF; warn of characters that no font of this machine has."""
    missing = choose_fonts(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # our warning says what to do
        figure.savefig(path, dpi=DPI)
    if missing:
        warnings.warn(missing, FontWarning, stacklevel=2)
    return path
