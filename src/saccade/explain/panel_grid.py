"""Many matrices on one sheet by matplotlib: bands of panels with the names of their tokens, and a color bar for each scale.

Panels that are compared share a scale, so a color means the same weight in all of them. Everything is placed in inches, which is
far quicker than a layout engine where there are hundreds of panels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from torch import Tensor

from saccade.render.colors import diverging_colormap, sequential_colormap
from saccade.render.svg import BIDI_ISOLATES, display_width, format_token

CELL_INCHES = 0.13  # inches of a cell that has a name
MIN_PANEL_INCHES, MAX_PANEL_INCHES, MAX_CROWDED_PANEL_INCHES = (
    1.3,
    4.0,
    2.0,
)  # inches of a panel; and the most where there are many of them
MAX_UNCROWDED_PANELS = 24  # panels
MIN_LABEL_SPACING_INCHES = 0.115  # inches between two names that do not touch
LETTER_INCHES = 0.062  # inches of a letter of a name
MAX_LABEL_COLUMNS = 16  # columns of a name
PANEL_GAP_INCHES, TITLE_INCHES, COLOR_BAR_INCHES = (
    0.18,
    0.42,
    1.15,
)  # inches between panels, of titles above them, and for color bars
MAX_PANELS_PER_ROW = 12  # panels on a line


@dataclass(frozen=True)
class ColorScale:
    """What the colors of some panels stand for: from zero to `top`, or from -top where some values are negative."""

    name: str
    vmax: float
    signed: bool = False

    def colormap(self) -> Colormap:
        return diverging_colormap() if self.signed else sequential_colormap()


@dataclass(frozen=True)
class Panel:
    """One matrix with a name for each row and column."""

    title: str
    values: Tensor
    row_names: Sequence[str]
    column_names: Sequence[str]


@dataclass(frozen=True)
class PanelGroup:
    """Panels side by side that have the same rows and columns."""

    title: str
    panels: Sequence[Panel]
    scale: ColorScale

    def split_rows(self) -> list["PanelGroup"]:
        """The same in lines that a sheet has room for."""
        starts = range(0, len(self.panels), MAX_PANELS_PER_ROW)
        return [PanelGroup(self.title, self.panels[start : start + MAX_PANELS_PER_ROW], self.scale) for start in starts]


def make_shared_scale(name: str, values: Sequence[Tensor], vmax: float | None = None) -> ColorScale:
    """One scale for all of these matrices: it ends at the largest of all values, or at `top`."""
    largest = max((one.abs().max().item() for one in values if one.numel()), default=0.0)
    return ColorScale(name, vmax or max(largest, 1e-9), any((one < 0).any() for one in values))


def plot_panels(groups: Sequence[PanelGroup]) -> Figure:
    """All bands below one another, with the color bars on the right."""
    lines = [line for band in groups for line in band.split_rows()]
    most = (
        MAX_PANEL_INCHES
        if sum(len(line.panels) for line in lines) <= MAX_UNCROWDED_PANELS
        else MAX_CROWDED_PANEL_INCHES
    )
    left = 0.3 + max(_labels_inches(line.panels[0].row_names) for line in lines)
    sizes = [[min(max(MIN_PANEL_INCHES, CELL_INCHES * n), most) for n in line.panels[0].values.shape] for line in lines]
    heights = [
        TITLE_INCHES + high + 0.12 + _labels_inches(line.panels[0].column_names)
        for line, (high, _) in zip(lines, sizes, strict=True)
    ]
    wide = (
        left
        + max(len(line.panels) * (w + PANEL_GAP_INCHES) for line, (_, w) in zip(lines, sizes, strict=True))
        + COLOR_BAR_INCHES
    )
    size = (max(wide, 3.2), max(sum(heights) + 0.35, 1.2 + 1.6 * len({line.scale for line in lines})))
    figure = Figure(figsize=size)
    top = size[1] - 0.1
    thinned = 1
    for line, (high, width), taken in zip(lines, sizes, heights, strict=True):
        figure.text(
            0.1 / size[0], (top - 0.12) / size[1], line.title, fontsize=8, weight="bold", va="center", parse_math=False
        )
        for number, panel in enumerate(line.panels):
            box = (left + number * (width + PANEL_GAP_INCHES), top - TITLE_INCHES - high, width, high)
            axis = figure.add_axes((box[0] / size[0], box[1] / size[1], box[2] / size[0], box[3] / size[1]))
            thinned = max(thinned, _draw_panel(axis, panel, line.scale, (high, width), first=number == 0))
        top -= taken
    _draw_color_bars(figure, list(dict.fromkeys(line.scale for line in lines)), size)
    said = (
        ""
        if thinned == 1
        else f"names are left out where they do not fit: of {thinned} tokens at least one has its name"
    )
    figure.text(0.1 / size[0], 0.12 / size[1], said, fontsize=7, va="center")
    return figure


def _draw_panel(axis: Axes, panel: Panel, scale: ColorScale, inches: tuple[float, float], *, first: bool) -> int:
    """One panel; names beside the first of a line and below all. Returns how many tokens there are to one with a name."""
    values = panel.values.detach().float().cpu().numpy()
    low = -scale.vmax if scale.signed else 0.0
    axis.imshow(values, aspect="auto", interpolation="nearest", cmap=scale.colormap(), vmin=low, vmax=scale.vmax)
    axis.set_title(panel.title, fontsize=7, pad=2, parse_math=False)
    rows, every = _thin_labels(panel.row_names, inches[0])
    across, other = _thin_labels(panel.column_names, inches[1])
    axis.set_yticks([at for at, _ in rows] if first else [], [name for _, name in rows] if first else [], fontsize=6.5)
    axis.set_xticks([at for at, _ in across], [name for _, name in across], fontsize=6.5, rotation=90)
    axis.tick_params(length=0, pad=2)
    for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        label.set_parse_math(False)  # a token may well be a dollar
    return max(every, other)


def _thin_labels(names: Sequence[str], inches: float) -> tuple[list[tuple[int, str]], int]:
    """The names that fit side by side, with their places, and how many there are to one that is written."""
    every = max(1, math.ceil(len(names) * MIN_LABEL_SPACING_INCHES / inches))
    written = [(at, clean_label(name)) for at, name in enumerate(names) if at % every == 0]
    counts = all(name == str(at) for at, name in enumerate(names))  # what is left out of 0, 4, 8 need not be said
    return written, 1 if counts else every


def clean_label(name: str, width: int = MAX_LABEL_COLUMNS) -> str:
    """A token as matplotlib can draw it: as pages have it, but for marks that it would draw as boxes."""
    return "".join(c for c in format_token(name, width) if c not in BIDI_ISOLATES)


def _labels_inches(names: Sequence[str]) -> float:
    return 0.08 + LETTER_INCHES * max((display_width(clean_label(name)) for name in names), default=0)


def _draw_color_bars(figure: Figure, scales: Sequence[ColorScale], size: tuple[float, float]) -> None:
    """A color bar for each scale, one below the other at the right edge."""
    high = min(1.3, (size[1] - 0.8) / len(scales) - 0.35)
    for number, scale in enumerate(scales):
        box = (size[0] - 0.8, size[1] - TITLE_INCHES - high - number * (high + 0.5), 0.12, high)
        place = figure.add_axes((box[0] / size[0], box[1] / size[1], box[2] / size[0], box[3] / size[1]))
        ends = Normalize(-scale.vmax if scale.signed else 0.0, scale.vmax)
        bar = figure.colorbar(ScalarMappable(ends, scale.colormap()), cax=place)
        bar.ax.tick_params(labelsize=6.5)
        bar.ax.set_title(scale.name, fontsize=6.5, loc="center")
