"""Lines over a common axis as inline SVG for a page: the curves of a training run."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

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
MAX_POINTS_PER_LINE = 500  # points of a line; more could not be told apart
MAX_DOTS_PER_LINE = 40  # a line with at most so many points shows each of them
CHART_WIDTH, CHART_HEIGHT, LEFT_MARGIN, RIGHT_MARGIN, FONT_SIZE = 440, 190, 62, 24, 11
LINE_COLORS = ("#0067a3", "#b84a00", "#00795a", "#9c3d78", "#6b5b00")  # on a light page
DARK_LINE_COLORS = ("#63b7ee", "#f2a25f", "#4fcfa5", "#e59ac8", "#d3c04f")  # on a dark one
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
    """The numbers from `low` to `high`, marked at every `step`."""

    low: float
    high: float
    step: float

    def to_fraction(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        first, last = round(self.low / self.step), round(self.high / self.step)
        return [i * self.step for i in range(first, last + 1)]


def fit_axis(values: Collection[float], *, max_steps: int) -> AxisScale:
    """Round numbers around all values, at most `most` steps of 1, 2 or 5 times a power of ten.

    >>> fit_axis([0.13, 0.92], max_steps=5)
    AxisScale(low=0.0, high=1.0, step=0.2)
    """
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a flat line is measured from zero
        low, high = min(2 * low, 0.0), max(2 * high, 0.0) or float(not low)
    power = 10.0 ** math.floor(math.log10((high - low) / max_steps))
    for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first <= max_steps:
            break
    return AxisScale(first * step, last * step, step)


def downsample(points: Sequence[Point], max_points: int = MAX_POINTS_PER_LINE) -> list[Point]:
    """At most `most` points that look the same: the first, the last, and the lowest and highest of each bin between them."""
    return [points[i] for i in _points_to_keep([height for _, height in points], max_points)]


def _points_to_keep(heights: Sequence[float], max_points: int) -> list[int]:
    """The numbers of the points that `thin` keeps."""
    count = len(heights)
    if count <= max_points:
        return list(range(count))
    kept, bins = {0, count - 1}, (max_points - 2) // 2
    for i in range(bins):
        inside = range(1 + i * (count - 2) // bins, 1 + (i + 1) * (count - 2) // bins)
        kept |= {min(inside, key=heights.__getitem__), max(inside, key=heights.__getitem__)}
    return sorted(kept)


def render_line_chart(
    points: Mapping[str, Sequence[Point]],
    *,
    title: str,
    x: str,
    y: str,
    secondary_lines: Collection[str] = frozenset(),
    axis_limits: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> str:
    """Lines by name as a picture with axes, a legend, and the numbers of each point on hovering.

    A point that is no number leaves a gap and is counted below; of a long line the extremes are kept. `ends` are numbers that the
    axes reach, across and up, whatever the points are.
    """
    pieces = {name: runs for name, line in points.items() if (runs := _split_at_gaps(line))}
    if not pieces:
        raise ValueError(f"{title}: there is no point to draw among {sum(map(len, points.values()))}; leave it out.")
    drawn = [point for runs in pieces.values() for run in runs for point in run]
    across, up = (fit_axis([*(p[i] for p in drawn), *axis_limits[i]], max_steps=5) for i in (0, 1))
    kinds = _line_classes(list(pieces), secondary_lines)
    legend, lines = _render_legend(kinds, LEFT_MARGIN + text_width(y, FONT_SIZE) + 20)
    top = 44 + 16 * lines
    body = [
        render_text(0, 14, shorten(title, 54), css_class="name"),
        render_text(LEFT_MARGIN, 34, y, css_class="soft"),
        *legend,
    ]
    body += _render_axes(across, up, top)
    body.append(render_text(CHART_WIDTH - RIGHT_MARGIN, top + CHART_HEIGHT + 34, x, css_class="soft end"))
    for name, runs in pieces.items():
        for run in runs:
            at = [
                (
                    LEFT_MARGIN + across.to_fraction(a) * (CHART_WIDTH - LEFT_MARGIN - RIGHT_MARGIN),
                    top + (1 - up.to_fraction(b)) * CHART_HEIGHT,
                )
                for a, b in run
            ]
            body.append(
                f'<polyline class="{kinds[name]}" points="{" ".join(f"{format_coordinate(a)},{format_coordinate(b)}" for a, b in at)}"/>'
            )
            body.append(_render_hover_points(run, at, name, kinds[name], x))
    sound = {name: [point for point in line if _is_finite(point)] for name, line in points.items()}
    gone = sum(len(line) - len(sound[name]) for name, line in points.items())
    note = f"{gone:,} points are no finite numbers: a gap." if gone else ""
    body.append(render_text(LEFT_MARGIN, top + CHART_HEIGHT + 34, note, css_class="soft"))
    height = top + CHART_HEIGHT + 42
    about = " ".join(_describe_line(name, sound[name], x) for name in pieces)
    return render_svg_document(
        body, css_class="curve", title=title, description=about, width=CHART_WIDTH, height=height, style=CHART_CSS
    )


def _is_finite(point: Point) -> bool:
    return abs(point[0]) < 1e300 and abs(point[1]) < 1e300  # which is false of nan, too


def _split_at_gaps(line: Sequence[Point]) -> list[list[Point]]:
    """The line thinned, and broken where a point is no number."""
    sound, stretch, holes = [], [], 0
    for point in line:
        if _is_finite(point):
            sound.append(point)
            stretch.append(holes)
        else:
            holes += 1
    runs: dict[int, list[Point]] = {}
    for i in _points_to_keep([height for _, height in sound], MAX_POINTS_PER_LINE):
        runs.setdefault(stretch[i], []).append(sound[i])
    return list(runs.values())


def _line_classes(names: list[str], secondary_lines: Collection[str]) -> dict[str, str]:
    """The class of each line: faint, or the next colour."""
    strong = [name for name in names if name not in secondary_lines]
    return {name: f"l{strong.index(name) % len(LINE_COLORS)}" if name in strong else "faint" for name in names}


def _render_legend(line_classes: dict[str, str], at: float) -> tuple[list[str], int]:
    """A key for each line, side by side, and how many rows more than one they need; none where there is only one."""
    if len(line_classes) < 2:
        return [], 0
    drawn, line = [], 0
    for name, kind in line_classes.items():
        called = shorten(name, 28)
        need = 26 + text_width(called, FONT_SIZE) + 14
        if at + need > CHART_WIDTH and at > LEFT_MARGIN:
            at, line = float(LEFT_MARGIN), line + 1
        y = 30 + 16 * line
        drawn.append(
            f'<path class="key {kind}" d="M{format_coordinate(at)} {y}h20"/>{render_text(at + 26, y + 4, called)}'
        )
        at += need
    return drawn, line


def _render_axes(x_axis: AxisScale, y_axis: AxisScale, top: float) -> list[str]:
    """The ticks of both axes, with lines across the field."""
    drawn = []
    for value in y_axis.ticks():
        y = top + (1 - y_axis.to_fraction(value)) * CHART_HEIGHT
        drawn.append(f'<path class="grid" d="M{LEFT_MARGIN} {format_coordinate(y)}H{CHART_WIDTH - RIGHT_MARGIN}"/>')
        drawn.append(render_text(LEFT_MARGIN - 7, y + 4, format_number(value), css_class="end"))
    for value in x_axis.ticks():
        x = LEFT_MARGIN + x_axis.to_fraction(value) * (CHART_WIDTH - LEFT_MARGIN - RIGHT_MARGIN)
        drawn.append(f'<path class="grid" d="M{format_coordinate(x)} {format_coordinate(top + CHART_HEIGHT)}v4"/>')
        drawn.append(render_text(x, top + CHART_HEIGHT + 17, format_number(value), css_class="mid"))
    return drawn


def _render_hover_points(points: list[Point], coordinates: list[Point], name: str, css_class: str, x: str) -> str:
    """A place to hover for every point."""
    css_class = f"{css_class} dot" if len(points) <= MAX_DOTS_PER_LINE else css_class
    said = f"{escape(shorten(name, 28))}, {escape(shorten(x, 28))}"
    return "".join(
        f'<circle class="{css_class}" cx="{format_coordinate(a)}" cy="{format_coordinate(b)}" r="2.5"><title>{said} {p:,.10g}: {q:.6g}</title></circle>'
        for (p, q), (a, b) in zip(points, coordinates, strict=True)
    )


def _describe_line(name: str, line: Sequence[Point], x: str) -> str:
    heights = [q for _, q in line]
    low, high = line[heights.index(min(heights))], line[heights.index(max(heights))]
    return (
        f"{name}: {line[0][1]:.4g} at the start, {line[-1][1]:.4g} at the end; "
        f"lowest {low[1]:.4g} at {x} {low[0]:,.10g}, highest {high[1]:.4g} at {x} {high[0]:,.10g}."
    )
