"""Line charts as inline SVG for a page, such as the loss and learning rate curves of a training run."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from saccade.render.svg import (
    FONT_CSS,
    escape,
    format_coordinate,
    format_number,
    render_svg_document,
    render_text,
    shorten,
    text_width,
)

Point = tuple[float, float]
MAX_POINTS_PER_LINE = 500  # more could not be distinguished at this width
MAX_DOTS_PER_LINE = 40  # a line with at most this many points draws a dot for each
CHART_WIDTH, CHART_HEIGHT, LEFT_MARGIN, RIGHT_MARGIN, FONT_SIZE = 440, 190, 62, 24, 11
PLOT_WIDTH = CHART_WIDTH - LEFT_MARGIN - RIGHT_MARGIN
LEGEND_ROW_HEIGHT = 16
LINE_COLORS = ("#0067a3", "#b84a00", "#00795a", "#9c3d78", "#6b5b00")  # on a light page
DARK_LINE_COLORS = ("#63b7ee", "#f2a25f", "#4fcfa5", "#e59ac8", "#d3c04f")  # on a dark page
LINE_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "12 4")
CHART_CSS = (
    f".curve{{{FONT_CSS};font-size:{FONT_SIZE}px;--ink:#1d2025;--soft:#5c6068;--grid:#dcdcd8}}"
    ".curve text{fill:var(--ink)}.curve .soft{fill:var(--soft)}.curve .name{font-size:13px;font-weight:600}"
    ".curve .end{text-anchor:end}.curve .mid{text-anchor:middle}.curve .grid{stroke:var(--grid);fill:none}"
    ".curve polyline,.curve .key{fill:none;stroke-width:1.6px;stroke-linejoin:round}"
    ".curve .faint{color:var(--soft);stroke:var(--soft);stroke-opacity:.45;stroke-width:1px}"
    ".curve circle{fill:currentColor;fill-opacity:0}.curve .dot{fill-opacity:1}.curve circle:hover{fill-opacity:1}"
    + "".join(
        f".curve .l{i}{{color:{c};stroke:{c};stroke-dasharray:{LINE_DASHES[i]}}}" for i, c in enumerate(LINE_COLORS)
    )
    + ".curve circle{stroke:none!important}"
    + "@media screen and (prefers-color-scheme:dark){.curve{--ink:#e6e3dd;--soft:#a3a5aa;--grid:#3a3d42}"
    + "".join(f".curve .l{i}{{color:{c};stroke:{c}}}" for i, c in enumerate(DARK_LINE_COLORS))
    + "}"
)


@dataclass(frozen=True)
class AxisScale:
    """An axis from `low` to `high` with a tick at every `step`."""

    low: float
    high: float
    step: float

    def to_fraction(self, value: float) -> float:
        """The position of a value on the axis, 0 at `low` and 1 at `high`."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        first, last = round(self.low / self.step), round(self.high / self.step)
        return [i * self.step for i in range(first, last + 1)]


def fit_axis(values: Collection[float], *, max_steps: int) -> AxisScale:
    """An axis with round ends around all values and at most `max_steps` steps of 1, 2 or 5 times a power of ten.

    >>> fit_axis([0.13, 0.92], max_steps=5)
    AxisScale(low=0.0, high=1.0, step=0.2)
    """
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a constant line is drawn on an axis from zero
        low, high = min(2 * low, 0.0), max(2 * high, 0.0) or float(not low)
    power = 10.0 ** math.floor(math.log10((high - low) / max_steps))
    for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first <= max_steps:
            break
    return AxisScale(first * step, last * step, step)


def downsample(points: Sequence[Point], max_points: int = MAX_POINTS_PER_LINE) -> list[Point]:
    """At most `max_points` points that look the same: the first, the last, and the minimum and maximum of each bin between."""
    return [points[i] for i in _indices_to_keep([y for _, y in points], max_points)]


def _indices_to_keep(heights: Sequence[float], max_points: int) -> list[int]:
    """The indices of the points that `downsample` keeps."""
    count = len(heights)
    if count <= max_points:
        return list(range(count))
    indices, bins = {0, count - 1}, (max_points - 2) // 2
    for i in range(bins):
        inside = range(1 + i * (count - 2) // bins, 1 + (i + 1) * (count - 2) // bins)
        indices |= {min(inside, key=heights.__getitem__), max(inside, key=heights.__getitem__)}
    return sorted(indices)


def render_line_chart(
    points: Mapping[str, Sequence[Point]],
    *,
    title: str,
    x: str,
    y: str,
    secondary_lines: Collection[str] = frozenset(),
    axis_limits: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> Markup:
    """Named lines with axes, a legend, and the values of each point as tooltips.

    A point that is not a finite number leaves a gap, and a note below counts them. Long lines are downsampled. `secondary_lines`
    are drawn in gray. `axis_limits` are values of x and of y that the axes include whatever the points are.
    """
    segments = {name: parts for name, line in points.items() if (parts := _split_at_gaps(line))}
    if not segments:
        count = sum(map(len, points.values()))
        raise ValueError(f"{title}: no point to draw, because none of {count} is finite; leave the chart out.")
    visible = [point for parts in segments.values() for segment in parts for point in segment]
    x_axis, y_axis = (fit_axis([*(p[i] for p in visible), *axis_limits[i]], max_steps=5) for i in (0, 1))
    classes = _line_classes(list(segments), secondary_lines)
    legend, extra_rows = _render_legend(classes, LEFT_MARGIN + text_width(y, FONT_SIZE) + 20)
    top = 44 + LEGEND_ROW_HEIGHT * extra_rows
    bottom = top + CHART_HEIGHT
    body = [
        render_text(0, 14, shorten(title, 54), css_class="name"),
        render_text(LEFT_MARGIN, 34, y, css_class="soft"),
        *legend,
        *_render_axes(x_axis, y_axis, top),
        render_text(CHART_WIDTH - RIGHT_MARGIN, bottom + 34, x, css_class="soft end"),
    ]
    for name, parts in segments.items():
        for segment in parts:
            coordinates = [
                (LEFT_MARGIN + x_axis.to_fraction(a) * PLOT_WIDTH, top + (1 - y_axis.to_fraction(b)) * CHART_HEIGHT)
                for a, b in segment
            ]
            body += [
                _render_polyline(coordinates, classes[name]),
                _render_tooltips(segment, coordinates, name, classes[name], x),
            ]
    finite = {name: [point for point in line if _is_finite(point)] for name, line in points.items()}
    gap_count = sum(len(line) - len(finite[name]) for name, line in points.items())
    note = f"{gap_count:,} points are not finite numbers and left out." if gap_count else ""
    body.append(render_text(LEFT_MARGIN, bottom + 34, note, css_class="soft"))
    description = " ".join(_describe_line(name, finite[name], x) for name in segments)
    return render_svg_document(
        body,
        css_class="curve",
        title=title,
        description=description,
        width=CHART_WIDTH,
        height=bottom + 42,
        style=CHART_CSS,
    )


def _is_finite(point: Point) -> bool:
    return abs(point[0]) < 1e300 and abs(point[1]) < 1e300  # also false for nan


def _split_at_gaps(line: Sequence[Point]) -> list[list[Point]]:
    """The downsampled line in segments, split at points that are not finite numbers."""
    finite, segment_numbers, gaps = [], [], 0
    for point in line:
        if _is_finite(point):
            finite.append(point)
            segment_numbers.append(gaps)
        else:
            gaps += 1
    segments: dict[int, list[Point]] = {}
    for i in _indices_to_keep([y for _, y in finite], MAX_POINTS_PER_LINE):
        segments.setdefault(segment_numbers[i], []).append(finite[i])
    return list(segments.values())


def _line_classes(names: list[str], secondary_lines: Collection[str]) -> dict[str, str]:
    """The CSS class of each line: `faint`, or the next color."""
    primary = [name for name in names if name not in secondary_lines]
    return {name: f"l{primary.index(name) % len(LINE_COLORS)}" if name in primary else "faint" for name in names}


def _render_legend(line_classes: dict[str, str], x: float) -> tuple[list[str], int]:
    """A legend entry for each line, side by side, and the number of rows after the first; none for a single line."""
    if len(line_classes) < 2:
        return [], 0
    elements, row = [], 0
    for name, css_class in line_classes.items():
        label = shorten(name, 28)
        width = 26 + text_width(label, FONT_SIZE) + 14
        if x + width > CHART_WIDTH and x > LEFT_MARGIN:
            x, row = float(LEFT_MARGIN), row + 1
        y = 30 + LEGEND_ROW_HEIGHT * row
        elements.append(f'<path class="key {css_class}" d="M{format_coordinate(x)} {y}h20"/>')
        elements.append(render_text(x + 26, y + 4, label))
        x += width
    return elements, row


def _render_axes(x_axis: AxisScale, y_axis: AxisScale, top: float) -> list[str]:
    """The tick labels of both axes, with grid lines for y."""
    elements = []
    for value in y_axis.ticks():
        y = top + (1 - y_axis.to_fraction(value)) * CHART_HEIGHT
        elements.append(f'<path class="grid" d="M{LEFT_MARGIN} {format_coordinate(y)}h{PLOT_WIDTH}"/>')
        elements.append(render_text(LEFT_MARGIN - 7, y + 4, format_number(value), css_class="end"))
    bottom = top + CHART_HEIGHT
    for value in x_axis.ticks():
        x = LEFT_MARGIN + x_axis.to_fraction(value) * PLOT_WIDTH
        elements.append(f'<path class="grid" d="M{format_coordinate(x)} {format_coordinate(bottom)}v4"/>')
        elements.append(render_text(x, bottom + 17, format_number(value), css_class="mid"))
    return elements


def _render_polyline(coordinates: Sequence[Point], css_class: str) -> str:
    path = " ".join(f"{format_coordinate(x)},{format_coordinate(y)}" for x, y in coordinates)
    return f'<polyline class="{css_class}" points="{path}"/>'


def _render_tooltips(
    points: Sequence[Point], coordinates: Sequence[Point], name: str, css_class: str, x_label: str
) -> str:
    """A circle with a tooltip for each point; circles of long lines show only on hover."""
    css_class = f"{css_class} dot" if len(points) <= MAX_DOTS_PER_LINE else css_class
    label = f"{escape(shorten(name, 28))}, {escape(shorten(x_label, 28))}"
    return "".join(
        f'<circle class="{css_class}" cx="{format_coordinate(cx)}" cy="{format_coordinate(cy)}" r="2.5">'
        f"<title>{label} {x:,.10g}: {y:.6g}</title></circle>"
        for (x, y), (cx, cy) in zip(points, coordinates, strict=True)
    )


def _describe_line(name: str, line: Sequence[Point], x: str) -> str:
    """The line in words, for screen readers."""
    heights = [height for _, height in line]
    low, high = line[heights.index(min(heights))], line[heights.index(max(heights))]
    return (
        f"{name}: {line[0][1]:.4g} at the start, {line[-1][1]:.4g} at the end; "
        f"lowest {low[1]:.4g} at {x} {low[0]:,.10g}, highest {high[1]:.4g} at {x} {high[0]:,.10g}."
    )
