"""Attention maps as PNG, SVG or PDF files: one head, all heads and gates in a grid, or overlays on an image."""

from pathlib import Path

from matplotlib.figure import Figure

from saccade.errors import UsageError
from saccade.explain.maps import ATTENTION_KINDS, AttentionMap, AttentionMaps
from saccade.explain.overlay import render_overlays
from saccade.explain.word_alignment import Alignment
from saccade.render.panel_grid import Panel, PanelGroup, clean_label, make_shared_scale, plot_heatmap, plot_panels
from saccade.render.plot import ColorScale, save_figure

IMAGE_SUFFIXES = (".png", ".svg", ".pdf")
MAX_OVERLAY_NAME_COLUMNS = 24
OVERLAYS_PER_ROW = 6


def save_attention_plot(attention_maps: AttentionMaps, path: Path) -> Path:
    """Write the figure of `plot_attention` as PNG, SVG or PDF, by the suffix of the file."""
    return save_figure(plot_attention(attention_maps), path)


def plot_attention(attention_maps: AttentionMaps) -> Figure:
    """Plot overlays on the image if the model reads one, else one head as a heat map or all heads and gates as a grid."""
    attention = [m for m in attention_maps.maps if m.kind in ATTENTION_KINDS]
    gates = [m for m in attention_maps.maps if m.kind in ("gate", "channel")]
    if not attention and not gates:
        raise UsageError("There is no attention map to plot: the selection left out all of them.")
    if render_overlays(attention_maps):
        return _plot_image_overlays(attention_maps)
    if len(attention) == 1 and len(attention[0].heads) == 1 and not gates:
        (only,) = attention
        return plot_heatmap(only.to_dense()[0], only.query_names, only.key_names, f"{only.title}, {only.head_name(0)}")
    return plot_panels([*make_attention_groups(attention), *make_gate_groups(gates)])


def save_alignment_plot(alignment: Alignment, path: Path) -> Path:
    """Plot the matrix of a word alignment, with a circle around each aligned pair."""
    if not alignment.links:
        raise UsageError("There is no word alignment to plot: the source or the target has no words.")
    title = f"alignment, {alignment.alignment_head}"
    figure = plot_heatmap(alignment.weights, list(alignment.target), list(alignment.source), title)
    for source, target in alignment.links:
        figure.axes[0].plot(source, target, "o", markersize=7, markerfacecolor="none", markeredgecolor="#0b7bc1")
    return save_figure(figure, path)


def make_attention_groups(attention_maps: list[AttentionMap]) -> list[PanelGroup]:
    """A group for each map, with a panel for each head; all heads of all maps share one color scale."""
    dense = [m.to_dense() for m in attention_maps]
    scale = make_shared_scale("weight", dense, max((m.vmax for m in attention_maps), default=None))
    return [
        PanelGroup(
            m.title,
            [Panel(m.head_name(head), weights[head], m.query_names, m.key_names) for head in range(len(weights))],
            scale,
        )
        for m, weights in zip(attention_maps, dense, strict=True)
    ]


def make_gate_groups(gate_maps: list[AttentionMap]) -> list[PanelGroup]:
    """A group for each recurrent layer, with a panel for each gate over time, or a row of channels; the scale is 0 to 1."""
    scale = ColorScale("gate", 1.0)
    groups = []
    for m in gate_maps:
        values = m.weights.transpose(1, 2) if m.gates else m.weights  # units as rows, time as columns
        rows, columns = (m.key_names, m.query_names) if m.gates else ([], m.key_names)
        panels = [Panel(m.head_name(i) if m.gates else "", values[i], rows, columns) for i in range(len(values))]
        groups.append(PanelGroup(f"{m.title}{': a row for each unit' if m.gates else 's'}", panels, scale))
    return groups


def _plot_image_overlays(attention_maps: AttentionMaps) -> Figure:
    """The image, and then the image under each row of weights."""
    overlays = render_overlays(attention_maps)
    columns = min(OVERLAYS_PER_ROW, len(overlays) + 1)
    rows = -(-(len(overlays) + 1) // columns)
    figure = Figure(figsize=(1.9 * columns, 2.1 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    assert attention_maps.image is not None
    image = attention_maps.image[..., 0] if attention_maps.image.shape[-1] == 1 else attention_maps.image
    grid[0].imshow(image, cmap="gray", vmin=0, vmax=255)
    grid[0].set_title("the image", fontsize=9)
    for axis, overlay in zip(grid[1:], overlays, strict=False):
        axis.imshow(overlay.image)
        axis.set_title(clean_label(overlay.name, MAX_OVERLAY_NAME_COLUMNS), fontsize=9, parse_math=False)
    for axis in grid:
        axis.set_axis_off()
    return figure
