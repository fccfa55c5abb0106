"""Many heat maps on one matplotlib figure: rows of panels with token labels, and a color bar for each color scale.

Panels of one group share a color scale, so a color means the same weight in all of them. Positions are computed in inches, which
is much faster than matplotlib's layout engines when there are hundreds of panels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from saccade.render.plot import ColorScale, draw_matrix, set_tick_labels
from saccade.render.svg import BIDI_ISOLATES, display_width, format_token

MAX_PANELS_PER_ROW = 12
MAX_FEW_PANELS = 24  # panels of a figure; with more than this, each is drawn smaller
MIN_PANEL_INCHES = 1.3
PANEL_GAP_INCHES, TITLE_INCHES, COLOR_BAR_INCHES = 0.18, 0.42, 1.15  # between panels, above a row, right of all rows


@dataclass(frozen=True)
class PanelLayout:
    """Sizes of panels and labels, in inches unless a name says otherwise."""

    cell: float  # side of a cell, as long as the panel does not grow beyond `max_panel`
    max_panel: float
    font_points: float
    label_spacing: float  # between two labels that do not touch
    letter: float  # width of a letter
    label_columns: int  # longest label, in columns of text


SINGLE_PANEL = PanelLayout(0.17, 40.0, 8, 0.14, 0.068, 24)
FEW_PANELS = PanelLayout(0.13, 4.0, 6.5, 0.115, 0.062, 16)
MANY_PANELS = PanelLayout(0.13, 2.0, 6.5, 0.115, 0.062, 16)


@dataclass(frozen=True)
class Panel:
    """One matrix with a name for each row and column."""

    title: str
    values: Tensor
    row_names: Sequence[str]
    column_names: Sequence[str]


@dataclass(frozen=True)
class PanelGroup:
    """Panels with the same rows and columns, side by side."""

    title: str
    panels: Sequence[Panel]
    scale: ColorScale

    def split_rows(self) -> list["PanelGroup"]:
        """The group in rows of at most `MAX_PANELS_PER_ROW` panels."""
        starts = range(0, len(self.panels), MAX_PANELS_PER_ROW)
        return [PanelGroup(self.title, self.panels[start : start + MAX_PANELS_PER_ROW], self.scale) for start in starts]


def make_shared_scale(name: str, values: Sequence[Tensor], vmax: float | None = None) -> ColorScale:
    """One scale for several matrices; it ends at their largest absolute value, or at `vmax`."""
    largest = max((matrix.abs().max().item() for matrix in values if matrix.numel()), default=0.0)
    return ColorScale(name, vmax or max(largest, 1e-9), any((matrix < 0).any() for matrix in values))


def plot_heatmap(weights: Tensor, row_names: Sequence[str], column_names: Sequence[str], title: str) -> Figure:
    """One matrix, large enough for all its labels up to some 280 tokens."""
    panel = Panel("", weights, row_names, column_names)
    return plot_panels([PanelGroup(title, [panel], make_shared_scale("", [weights]))])


def plot_panels(groups: Sequence[PanelGroup]) -> Figure:
    """All groups below one another, with the color bars on the right."""
    rows = [row for group in groups for row in group.split_rows()]
    layout = _choose_layout(sum(len(row.panels) for row in rows))
    left = 0.3 + max(_labels_inches(row.panels[0].row_names, layout) for row in rows)
    sizes = [[_panel_inches(count, layout) for count in row.panels[0].values.shape] for row in rows]
    heights = [
        TITLE_INCHES + height + 0.12 + _labels_inches(row.panels[0].column_names, layout)
        for row, (height, _) in zip(rows, sizes, strict=True)
    ]
    widths = [left + len(row.panels) * (width + PANEL_GAP_INCHES) for row, (_, width) in zip(rows, sizes, strict=True)]
    titles = [0.2 + 0.08 * display_width(row.title) for row in rows]
    figure_width = max(max(widths) + COLOR_BAR_INCHES, *titles, 3.2)
    figure_height = max(sum(heights) + 0.35, 1.2 + 1.6 * len({row.scale for row in rows}))
    figure = Figure(figsize=(figure_width, figure_height))
    top = figure_height - 0.1
    tokens_per_label = 1
    for row, (height, width), row_height in zip(rows, sizes, heights, strict=True):
        _add_text(figure, top - 0.12, row.title, fontsize=8, weight="bold")
        for number, panel in enumerate(row.panels):
            x = left + number * (width + PANEL_GAP_INCHES)
            axis = _add_axes(figure, x, top - TITLE_INCHES - height, width, height)
            thinning = _draw_panel(axis, panel, row.scale, layout, (height, width), is_first=number == 0)
            tokens_per_label = max(tokens_per_label, thinning)
        top -= row_height
    _draw_color_bars(figure, list(dict.fromkeys(row.scale for row in rows)), max(widths))
    if tokens_per_label > 1:
        _add_text(
            figure,
            0.12,
            f"Labels that do not fit are left out: one of {tokens_per_label} tokens is labeled.",
            fontsize=7,
        )
    return figure


def _choose_layout(panel_count: int) -> PanelLayout:
    if panel_count == 1:
        return SINGLE_PANEL
    return FEW_PANELS if panel_count <= MAX_FEW_PANELS else MANY_PANELS


def _panel_inches(cell_count: int, layout: PanelLayout) -> float:
    return min(max(MIN_PANEL_INCHES, layout.cell * cell_count), layout.max_panel)


def _labels_inches(names: Sequence[str], layout: PanelLayout) -> float:
    """Space for the longest label."""
    return 0.08 + layout.letter * max(
        (display_width(clean_label(name, layout.label_columns)) for name in names), default=0
    )


def _add_axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a position in inches from the lower left corner."""
    total_width, total_height = figure.get_size_inches()
    return figure.add_axes((x / total_width, y / total_height, width / total_width, height / total_height))


def _add_text(figure: Figure, y: float, text: str, **style: str | float) -> None:
    """A line of text at the left edge, at a height in inches."""
    width, height = figure.get_size_inches()
    figure.text(0.1 / width, y / height, text, va="center", parse_math=False, **style)  # type: ignore[arg-type]


def _draw_panel(
    axis: Axes, panel: Panel, scale: ColorScale, layout: PanelLayout, inches: tuple[float, float], *, is_first: bool
) -> int:
    """Draw a panel with labels below and, for the first of a row, on the left; returns the number of tokens per label."""
    draw_matrix(axis, panel.values, scale)
    axis.set_title(panel.title, fontsize=7, pad=2, parse_math=False)
    rows, tokens_per_row_label = _thin_labels(panel.row_names, inches[0], layout)
    columns, tokens_per_column_label = _thin_labels(panel.column_names, inches[1], layout)
    set_tick_labels(axis, rows if is_first else [], columns, rotation=90, font_size=layout.font_points)
    axis.tick_params(length=0, pad=2)
    return max(tokens_per_row_label, tokens_per_column_label)


def _thin_labels(names: Sequence[str], inches: float, layout: PanelLayout) -> tuple[list[tuple[int, str]], int]:
    """The labels that fit next to each other, with their positions, and how many tokens there are per label."""
    step = max(1, math.ceil(len(names) * layout.label_spacing / inches))
    labels = [(i, clean_label(name, layout.label_columns)) for i, name in enumerate(names) if i % step == 0]
    are_numbers = all(name == str(i) for i, name in enumerate(names))  # 0, 4, 8 needs no note about 1, 2, 3
    return labels, 1 if are_numbers else step


def clean_label(name: str, width: int = FEW_PANELS.label_columns) -> str:
    """A token as on pages, without the direction marks that matplotlib would draw as boxes."""
    return "".join(c for c in format_token(name, width) if c not in BIDI_ISOLATES)


def _draw_color_bars(figure: Figure, scales: Sequence[ColorScale], x: float) -> None:
    """A color bar for each scale, one below the other, `x` inches from the left edge."""
    figure_height = figure.get_size_inches()[1]
    height = min(1.3, (figure_height - 0.8) / len(scales) - 0.35)
    for number, scale in enumerate(scales):
        bar_axes = _add_axes(
            figure, x + 0.35, figure_height - TITLE_INCHES - height - number * (height + 0.5), 0.12, height
        )
        bar = figure.colorbar(ScalarMappable(Normalize(scale.vmin, scale.vmax), scale.colormap()), cax=bar_axes)
        bar.ax.tick_params(labelsize=6.5)
        bar.ax.set_title(scale.name, fontsize=6.5, loc="center")
