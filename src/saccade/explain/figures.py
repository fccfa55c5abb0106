"""Looks as PNG, SVG or PDF by matplotlib: one head with all names, all heads side by side, a picture word by word, gates."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from saccade.explain.align import Alignment
from saccade.explain.colors import signed_scale, weight_scale
from saccade.explain.looks import ATTENTION, Looks, Seen
from saccade.explain.overlay import views
from saccade.explain.picture import save_figure
from saccade.explain.svg import ISOLATES, columns, label, readable

INCH = 0.17  # of a cell that has a name, so that letters of eight points do not touch
NAMED = 240  # names beyond this are left out: a picture has to open
WIDE = 24  # columns of a name
SMALL = 1.5  # inches of a head among others
ACROSS = 12  # heads on a line


def write_figure(looks: Looks, path: Path) -> Path:
    """Draw what tells most, by the suffix of the file: what the picture showed, one head with names, gates, or all heads."""
    shown = [m for m in looks.maps if m.kind in ATTENTION]
    if views(looks):
        figure = _views(looks)
    elif len(shown) == 1 and len(shown[0].heads) == 1:
        one = shown[0]
        figure = heat(one.dense()[0], one.rows, one.columns, f"{one.title}, {one.called(0)}")
    elif shown:
        figure = _small(shown)
    else:
        figure = _strips([m for m in looks.maps if m.kind in ("gate", "channel")])
    return save_figure(figure, path)


def write_alignment(found: Alignment, path: Path) -> Path:
    """The matrix of an alignment, words on both sides, a ring around each link."""
    if not found.links:
        raise ValueError("There is no alignment to draw: no word was read, or none was written.")
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
    return [_plain(readable(name, WIDE)) for name in names]


def _plain(name: str) -> str:
    return "".join(c for c in name if c not in ISOLATES)


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


def _small(shown: list[Seen]) -> Figure:
    """Every head of every map, a line or more for each."""
    across = min(ACROSS, max(len(m.heads) for m in shown))
    lines = [(m, start) for m in shown for start in range(0, len(m.heads), across)]
    figure = Figure(figsize=(SMALL * across + 0.6, (SMALL + 0.34) * len(lines) + 0.2), layout="constrained")
    grid = figure.subplots(len(lines), across, squeeze=False)
    for (seen, start), axes in zip(lines, grid, strict=True):
        weights = seen.dense()
        for place, axis in enumerate(axes, start=start):
            axis.set_xticks([])
            axis.set_yticks([])
            if place >= len(weights):
                axis.set_axis_off()
                continue
            _paint(axis, weights[place])
            axis.set_title(seen.called(place), fontsize=7, pad=2)
        axes[0].set_ylabel(seen.title, fontsize=7)
    return figure


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
        axis.set_title(_plain(label(view.name, WIDE)), fontsize=9, parse_math=False)
    for axis in grid:
        axis.set_axis_off()
    return figure


def _strips(shown: list[Seen]) -> Figure:
    """Gates over time, or channels: a line for each map, units as rows."""
    if not shown:
        raise ValueError("There is nothing to draw: every map was left out.")
    across = max(len(m.heads) for m in shown)
    time = max(len(m.query) for m in shown)
    size = (max(3.0, min(INCH * time, 24.0)) * across + 0.8, 3.2 * len(shown) + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(shown), across, squeeze=False)
    for seen, axes in zip(shown, grid, strict=True):
        for place, axis in enumerate(axes):
            if place >= len(seen.heads):
                axis.set_axis_off()
                continue
            axis.imshow(
                seen.weights[place].T.numpy(),
                aspect="auto",
                interpolation="nearest",
                cmap=weight_scale(),
                vmin=0,
                vmax=1,
            )
            axis.set_title(f"{seen.title}, {seen.called(place)}" if seen.gates else seen.title, fontsize=9)
            axis.set_ylabel(seen.key.of, fontsize=8)
            names = _names(seen.rows) if seen.gates and INCH * len(seen.query) <= 24 else []
            axis.set_xticks(range(len(names)), names, fontsize=8, rotation=90)
            for text in axis.get_xticklabels():
                text.set_parse_math(False)
    return figure
