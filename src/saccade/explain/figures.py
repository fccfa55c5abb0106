"""Looks as PNG, SVG or PDF by matplotlib: one head with all names, all heads and gates on one sheet, a picture word by word."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from saccade.errors import UsageError
from saccade.explain.align import Alignment
from saccade.explain.colors import signed_scale, weight_scale
from saccade.explain.looks import ATTENTION, Looks, Seen
from saccade.explain.overlay import views
from saccade.explain.picture import save_figure
from saccade.explain.sheet import Band, Panel, Scale, clean, shared_scale, sheet
from saccade.explain.svg import columns

INCH = 0.17  # of a cell that has a name, so that letters of eight points do not touch
NAMED = 240  # names beyond this are left out: a picture has to open
WIDE = 24  # columns of a name


def write_figure(looks: Looks, path: Path) -> Path:
    """Draw what tells most, by the suffix of the file: what the picture showed, one head, or all heads and gates."""
    shown = [m for m in looks.maps if m.kind in ATTENTION]
    gates = [m for m in looks.maps if m.kind in ("gate", "channel")]
    if not shown and not gates:
        raise UsageError("There is nothing to draw: every map was left out.")
    if views(looks):
        figure = _views(looks)
    elif len(shown) == 1 and len(shown[0].heads) == 1 and not gates:
        one = shown[0]
        figure = heat(one.dense()[0], one.rows, one.columns, f"{one.title}, {one.called(0)}")
    else:
        figure = sheet([*attention_bands(shown), *gate_bands(gates)])
    return save_figure(figure, path)


def write_alignment(found: Alignment, path: Path) -> Path:
    """The matrix of an alignment, words on both sides, a ring around each link."""
    if not found.links:
        raise UsageError("There is no alignment to draw: no word was read, or none was written.")
    figure = heat(found.weights, list(found.target), list(found.source), f"alignment, {found.where}")
    for source, target in found.links:
        figure.axes[0].plot(source, target, "o", markersize=7, markerfacecolor="none", markeredgecolor="#0b7bc1")
    return save_figure(figure, path)


def heat(weights: Tensor, rows: list[str], names: list[str], title: str) -> Figure:
    """One matrix, as large as its names need it to be."""
    up, across = _names(rows), _names(names)
    left, top = (0.3 + 0.068 * max((columns(name) for name in side), default=0) for side in (up, across))
    wide, high = max(1.4, INCH * weights.size(1)), max(1.2, INCH * weights.size(0))
    if not up:  # too many for names
        wide = high = 9.0
    size = (max(left + wide + 0.9, 0.085 * columns(title)), top + high + 0.6)
    figure = Figure(figsize=size)
    axis = figure.add_axes((left / size[0], 0.15 / size[1], wide / size[0], high / size[1]))
    image = _paint(axis, weights)
    _ticks(axis, up, across)
    bar = figure.add_axes(((left + wide + 0.15) / size[0], 0.15 / size[1], 0.12 / size[0], min(high, 2.4) / size[1]))
    figure.colorbar(image, cax=bar).ax.tick_params(labelsize=7)
    figure.text(0.1 / size[0], 1 - 0.25 / size[1], title, fontsize=10, parse_math=False)
    return figure


def _names(names: list[str]) -> list[str]:
    """Names that matplotlib can draw: as pages have them, but for marks that it would draw as boxes."""
    if len(names) > NAMED:
        return []
    return [clean(name, WIDE) for name in names]


def _paint(axis: Axes, weights: Tensor):
    values = weights.detach().float().cpu().numpy()
    most = max(abs(values).max(), 1e-9)
    scale = {"cmap": signed_scale(), "vmin": -most} if values.min() < 0 else {"cmap": weight_scale(), "vmin": 0}
    return axis.imshow(values, aspect="auto", interpolation="nearest", vmax=most, **scale)


def _ticks(axis: Axes, rows: list[str], names: list[str]) -> None:
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.set_xticks(range(len(names)), names, fontsize=8, rotation=90)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    for text in [*axis.get_xticklabels(), *axis.get_yticklabels()]:
        text.set_parse_math(False)  # a token may well be a dollar


def attention_bands(shown: list[Seen]) -> list[Band]:
    """A band for each map, with a panel for each head; all heads of all maps share one scale."""
    dense = [one.dense() for one in shown]
    scale = shared_scale("weight", dense, max((one.top for one in shown), default=None))
    return [
        Band(
            one.title,
            [Panel(one.called(head), weights[head], one.rows, one.columns) for head in range(len(weights))],
            scale,
        )
        for one, weights in zip(shown, dense, strict=True)
    ]


def gate_bands(shown: list[Seen]) -> list[Band]:
    """A band for each recurrent layer, with a panel for each gate over time, or a row of channels; from 0 to 1 in all."""
    scale = Scale("gate", 1.0)
    bands = []
    for one in shown:
        values = one.weights.transpose(1, 2) if one.gates else one.weights  # units as rows, time as columns
        rows, names = (one.columns, one.rows) if one.gates else ([], one.columns)
        panels = [Panel(one.called(at) if one.gates else "", values[at], rows, names) for at in range(len(values))]
        bands.append(Band(f"{one.title}{': a row for each unit' if one.gates else 's'}", panels, scale))
    return bands


def _views(looks: Looks) -> Figure:
    """The picture, and then the picture under each row of weights."""
    found = views(looks)
    across = min(6, len(found) + 1)
    lines = -(-(len(found) + 1) // across)
    figure = Figure(figsize=(1.9 * across, 2.1 * lines), layout="constrained")
    grid = figure.subplots(lines, across, squeeze=False).flatten()
    assert looks.picture is not None
    plain = looks.picture[..., 0] if looks.picture.shape[-1] == 1 else looks.picture
    grid[0].imshow(plain, cmap="gray", vmin=0, vmax=255)
    grid[0].set_title("the picture", fontsize=9)
    for axis, view in zip(grid[1:], found, strict=False):
        axis.imshow(view.image)
        axis.set_title(clean(view.name, WIDE), fontsize=9, parse_math=False)
    for axis in grid:
        axis.set_axis_off()
    return figure
