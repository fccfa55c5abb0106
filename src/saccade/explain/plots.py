"""Looks as PNG, SVG or PDF by matplotlib: one head with all names, all heads and gates on one sheet, a picture word by word."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from saccade.errors import UsageError
from saccade.explain.maps import ATTENTION_KINDS, AttentionMap, AttentionMaps
from saccade.explain.overlay import render_overlays
from saccade.explain.panel_grid import ColorScale, Panel, PanelGroup, clean_label, make_shared_scale, plot_panels
from saccade.explain.word_alignment import Alignment
from saccade.render.colors import diverging_colormap, sequential_colormap
from saccade.render.plot import save_figure
from saccade.render.svg import display_width

IMAGE_SUFFIXES = (".png", ".svg", ".pdf")
CELL_INCHES = 0.17  # of a cell that has a name, so that letters of eight points do not touch
MAX_TICK_LABELS = 240  # names beyond this are left out: a picture has to open
MAX_LABEL_COLUMNS = 24  # columns of a name


def save_attention_plot(attention_maps: AttentionMaps, path: Path) -> Path:
    """Write the figure of `plot_attention` as PNG, SVG or PDF, by the suffix of the file."""
    return save_figure(plot_attention(attention_maps), path)


def plot_attention(attention_maps: AttentionMaps) -> Figure:
    """Draw what tells most: the image under each row of weights, one head with its names, or all heads and gates."""
    shown = [m for m in attention_maps.maps if m.kind in ATTENTION_KINDS]
    gates = [m for m in attention_maps.maps if m.kind in ("gate", "channel")]
    if not shown and not gates:
        raise UsageError("There is nothing to draw: every map was left out.")
    if render_overlays(attention_maps):
        return _plot_image_overlays(attention_maps)
    if len(shown) == 1 and len(shown[0].heads) == 1 and not gates:
        one = shown[0]
        return plot_heatmap(one.to_dense()[0], one.query_names, one.key_names, f"{one.title}, {one.head_name(0)}")
    return plot_panels([*make_attention_groups(shown), *make_gate_groups(gates)])


def save_alignment_plot(alignment: Alignment, path: Path) -> Path:
    """The matrix of an alignment, words on both sides, a ring around each link."""
    if not alignment.links:
        raise UsageError("There is no alignment to draw: no word was read, or none was written.")
    figure = plot_heatmap(
        alignment.weights, list(alignment.target), list(alignment.source), f"alignment, {alignment.alignment_head}"
    )
    for source, target in alignment.links:
        figure.axes[0].plot(source, target, "o", markersize=7, markerfacecolor="none", markeredgecolor="#0b7bc1")
    return save_figure(figure, path)


def plot_heatmap(weights: Tensor, row_names: list[str], column_names: list[str], title: str) -> Figure:
    """One matrix, as large as its names need it to be."""
    up, across = _tick_labels(row_names), _tick_labels(column_names)
    left, top = (0.3 + 0.068 * max((display_width(name) for name in side), default=0) for side in (up, across))
    wide, high = max(1.4, CELL_INCHES * weights.size(1)), max(1.2, CELL_INCHES * weights.size(0))
    if not up:  # too many for names
        wide = high = 9.0
    size = (max(left + wide + 0.9, 0.085 * display_width(title)), top + high + 0.6)
    figure = Figure(figsize=size)
    axis = figure.add_axes((left / size[0], 0.15 / size[1], wide / size[0], high / size[1]))
    image = _draw_image(axis, weights)
    _set_ticks(axis, up, across)
    bar = figure.add_axes(((left + wide + 0.15) / size[0], 0.15 / size[1], 0.12 / size[0], min(high, 2.4) / size[1]))
    figure.colorbar(image, cax=bar).ax.tick_params(labelsize=7)
    figure.text(0.1 / size[0], 1 - 0.25 / size[1], title, fontsize=10, parse_math=False)
    return figure


def _tick_labels(names: list[str]) -> list[str]:
    """Names that matplotlib can draw: as pages have them, but for marks that it would draw as boxes."""
    if len(names) > MAX_TICK_LABELS:
        return []
    return [clean_label(name, MAX_LABEL_COLUMNS) for name in names]


def _draw_image(axis: Axes, weights: Tensor):
    values = weights.detach().float().cpu().numpy()
    most = max(abs(values).max(), 1e-9)
    scale = (
        {"cmap": diverging_colormap(), "vmin": -most}
        if values.min() < 0
        else {"cmap": sequential_colormap(), "vmin": 0}
    )
    return axis.imshow(values, aspect="auto", interpolation="nearest", vmax=most, **scale)


def _set_ticks(axis: Axes, row_names: list[str], column_names: list[str]) -> None:
    axis.set_yticks(range(len(row_names)), row_names, fontsize=8)
    axis.set_xticks(range(len(column_names)), column_names, fontsize=8, rotation=90)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    for text in [*axis.get_xticklabels(), *axis.get_yticklabels()]:
        text.set_parse_math(False)  # a token may well be a dollar


def make_attention_groups(attention_maps: list[AttentionMap]) -> list[PanelGroup]:
    """A band for each map, with a panel for each head; all heads of all maps share one scale."""
    dense = [one.to_dense() for one in attention_maps]
    scale = make_shared_scale("weight", dense, max((one.vmax for one in attention_maps), default=None))
    return [
        PanelGroup(
            one.title,
            [Panel(one.head_name(head), weights[head], one.query_names, one.key_names) for head in range(len(weights))],
            scale,
        )
        for one, weights in zip(attention_maps, dense, strict=True)
    ]


def make_gate_groups(gate_maps: list[AttentionMap]) -> list[PanelGroup]:
    """A band for each recurrent layer, with a panel for each gate over time, or a row of channels; from 0 to 1 in all."""
    scale = ColorScale("gate", 1.0)
    bands = []
    for one in gate_maps:
        values = one.weights.transpose(1, 2) if one.gates else one.weights  # units as rows, time as columns
        rows, names = (one.key_names, one.query_names) if one.gates else ([], one.key_names)
        panels = [Panel(one.head_name(at) if one.gates else "", values[at], rows, names) for at in range(len(values))]
        bands.append(PanelGroup(f"{one.title}{': a row for each unit' if one.gates else 's'}", panels, scale))
    return bands


def _plot_image_overlays(attention_maps: AttentionMaps) -> Figure:
    """The picture, and then the picture under each row of weights."""
    found = render_overlays(attention_maps)
    across = min(6, len(found) + 1)
    lines = -(-(len(found) + 1) // across)
    figure = Figure(figsize=(1.9 * across, 2.1 * lines), layout="constrained")
    grid = figure.subplots(lines, across, squeeze=False).flatten()
    assert attention_maps.image is not None
    plain = attention_maps.image[..., 0] if attention_maps.image.shape[-1] == 1 else attention_maps.image
    grid[0].imshow(plain, cmap="gray", vmin=0, vmax=255)
    grid[0].set_title("the picture", fontsize=9)
    for axis, view in zip(grid[1:], found, strict=False):
        axis.imshow(view.image)
        axis.set_title(clean_label(view.name, MAX_LABEL_COLUMNS), fontsize=9, parse_math=False)
    for axis in grid:
        axis.set_axis_off()
    return figure
