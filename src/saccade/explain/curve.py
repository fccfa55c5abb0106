"""Lines over a common axis as inline SVG for a page: the curves of a training run."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from saccade.explain.svg import TYPE, breadth, escape, frame, place, plain, shorten, write

Point = tuple[float, float]
MOST = 500  # points of a line; more could not be told apart
DOTS = 40  # a line with at most so many points shows each of them
WIDTH, HEIGHT, LEFT, RIGHT, SIZE = 440, 190, 62, 24, 11
COLOURS = ("#0067a3", "#b84a00", "#00795a", "#9c3d78", "#6b5b00")  # on a light page
BRIGHT = ("#63b7ee", "#f2a25f", "#4fcfa5", "#e59ac8", "#d3c04f")  # on a dark one
DASHES = ("none", "7 3", "2 3", "9 3 2 3", "12 4")
STYLE = (
    f".curve{{{TYPE};font-size:{SIZE}px;--ink:#1d2025;--soft:#5c6068;--grid:#dcdcd8}}"
    ".curve text{fill:var(--ink)}.curve .soft{fill:var(--soft)}.curve .name{font-size:13px;font-weight:600}"
    ".curve .end{text-anchor:end}.curve .mid{text-anchor:middle}.curve .grid{stroke:var(--grid);fill:none}"
    ".curve polyline,.curve .key{fill:none;stroke-width:1.6px;stroke-linejoin:round}"
    ".curve .faint{color:var(--soft);stroke:var(--soft);stroke-opacity:.45;stroke-width:1px}"
    ".curve circle{fill:currentColor;fill-opacity:0}.curve .dot{fill-opacity:1}.curve circle:hover{fill-opacity:1}"
    + "".join(f".curve .l{i}{{color:{c};stroke:{c};stroke-dasharray:{DASHES[i]}}}" for i, c in enumerate(COLOURS))
    + ".curve circle{stroke:none!important}"
    + "@media screen and (prefers-color-scheme:dark){.curve{--ink:#e6e3dd;--soft:#a3a5aa;--grid:#3a3d42}"
    + "".join(f".curve .l{i}{{color:{c};stroke:{c}}}" for i, c in enumerate(BRIGHT))
    + "}"
)


@dataclass(frozen=True)
class Axis:
    """The numbers from `low` to `high`, marked at every `step`."""

    low: float
    high: float
    step: float

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        first, last = round(self.low / self.step), round(self.high / self.step)
        return [i * self.step for i in range(first, last + 1)]


def axis(values: Collection[float], *, most: int) -> Axis:
    """Round numbers around all values, at most `most` steps of 1, 2 or 5 times a power of ten.

    >>> axis([0.13, 0.92], most=5)
    Axis(low=0.0, high=1.0, step=0.2)
    """
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a flat line is measured from zero
        low, high = min(2 * low, 0.0), max(2 * high, 0.0) or float(not low)
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first <= most:
            break
    return Axis(first * step, last * step, step)


def thin(points: Sequence[Point], most: int = MOST) -> list[Point]:
    """At most `most` points that look the same: the first, the last, and the lowest and highest of each bin between them."""
    return [points[i] for i in _kept([height for _, height in points], most)]


def _kept(heights: Sequence[float], most: int) -> list[int]:
    """The numbers of the points that `thin` keeps."""
    count = len(heights)
    if count <= most:
        return list(range(count))
    kept, bins = {0, count - 1}, (most - 2) // 2
    for i in range(bins):
        inside = range(1 + i * (count - 2) // bins, 1 + (i + 1) * (count - 2) // bins)
        kept |= {min(inside, key=heights.__getitem__), max(inside, key=heights.__getitem__)}
    return sorted(kept)


def curve(
    points: Mapping[str, Sequence[Point]],
    *,
    title: str,
    x: str,
    y: str,
    faint: Collection[str] = frozenset(),
    ends: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> str:
    """Lines by name as a picture with axes, a legend, and the numbers of each point on hovering.

    A point that is no number leaves a gap and is counted below; of a long line the extremes are kept. `ends` are numbers that the
    axes reach, across and up, whatever the points are.
    """
    pieces = {name: runs for name, line in points.items() if (runs := _runs(line))}
    if not pieces:
        raise ValueError(f"{title}: there is no point to draw among {sum(map(len, points.values()))}; leave it out.")
    drawn = [point for runs in pieces.values() for run in runs for point in run]
    across, up = (axis([*(p[i] for p in drawn), *ends[i]], most=5) for i in (0, 1))
    kinds = _kinds(list(pieces), faint)
    legend, lines = _legend(kinds, LEFT + breadth(y, SIZE) + 20)
    top = 44 + 16 * lines
    body = [write(0, 14, shorten(title, 54), kind="name"), write(LEFT, 34, y, kind="soft"), *legend]
    body += _frame(across, up, top)
    body.append(write(WIDTH - RIGHT, top + HEIGHT + 34, x, kind="soft end"))
    for name, runs in pieces.items():
        for run in runs:
            at = [(LEFT + across.share(a) * (WIDTH - LEFT - RIGHT), top + (1 - up.share(b)) * HEIGHT) for a, b in run]
            body.append(
                f'<polyline class="{kinds[name]}" points="{" ".join(f"{place(a)},{place(b)}" for a, b in at)}"/>'
            )
            body.append(_spots(run, at, name, kinds[name], x))
    sound = {name: [point for point in line if _finite(point)] for name, line in points.items()}
    gone = sum(len(line) - len(sound[name]) for name, line in points.items())
    note = f"{gone:,} points are no finite numbers: a gap." if gone else ""
    body.append(write(LEFT, top + HEIGHT + 34, note, kind="soft"))
    height = top + HEIGHT + 42
    about = " ".join(_summary(name, sound[name], x) for name in pieces)
    return frame(body, kind="curve", title=title, about=about, width=WIDTH, height=height, style=STYLE)


def _finite(point: Point) -> bool:
    return abs(point[0]) < 1e300 and abs(point[1]) < 1e300  # which is false of nan, too


def _runs(line: Sequence[Point]) -> list[list[Point]]:
    """The line thinned, and broken where a point is no number."""
    sound, stretch, holes = [], [], 0
    for point in line:
        if _finite(point):
            sound.append(point)
            stretch.append(holes)
        else:
            holes += 1
    runs: dict[int, list[Point]] = {}
    for i in _kept([height for _, height in sound], MOST):
        runs.setdefault(stretch[i], []).append(sound[i])
    return list(runs.values())


def _kinds(names: list[str], faint: Collection[str]) -> dict[str, str]:
    """The class of each line: faint, or the next colour."""
    strong = [name for name in names if name not in faint]
    return {name: f"l{strong.index(name) % len(COLOURS)}" if name in strong else "faint" for name in names}


def _legend(kinds: dict[str, str], at: float) -> tuple[list[str], int]:
    """A key for each line, side by side, and how many rows more than one they need; none where there is only one."""
    if len(kinds) < 2:
        return [], 0
    drawn, line = [], 0
    for name, kind in kinds.items():
        called = shorten(name, 28)
        need = 26 + breadth(called, SIZE) + 14
        if at + need > WIDTH and at > LEFT:
            at, line = float(LEFT), line + 1
        y = 30 + 16 * line
        drawn.append(f'<path class="key {kind}" d="M{place(at)} {y}h20"/>{write(at + 26, y + 4, called)}')
        at += need
    return drawn, line


def _frame(across: Axis, up: Axis, top: float) -> list[str]:
    """The ticks of both axes, with lines across the field."""
    drawn = []
    for value in up.ticks():
        y = top + (1 - up.share(value)) * HEIGHT
        drawn.append(f'<path class="grid" d="M{LEFT} {place(y)}H{WIDTH - RIGHT}"/>')
        drawn.append(write(LEFT - 7, y + 4, plain(value), kind="end"))
    for value in across.ticks():
        x = LEFT + across.share(value) * (WIDTH - LEFT - RIGHT)
        drawn.append(f'<path class="grid" d="M{place(x)} {place(top + HEIGHT)}v4"/>')
        drawn.append(write(x, top + HEIGHT + 17, plain(value), kind="mid"))
    return drawn


def _spots(run: list[Point], at: list[Point], name: str, kind: str, x: str) -> str:
    """A place to hover for every point."""
    kind = f"{kind} dot" if len(run) <= DOTS else kind
    said = f"{escape(shorten(name, 28))}, {escape(shorten(x, 28))}"
    return "".join(
        f'<circle class="{kind}" cx="{place(a)}" cy="{place(b)}" r="2.5"><title>{said} {p:,.10g}: {q:.6g}</title></circle>'
        for (p, q), (a, b) in zip(run, at, strict=True)
    )


def _summary(name: str, line: Sequence[Point], x: str) -> str:
    heights = [q for _, q in line]
    low, high = line[heights.index(min(heights))], line[heights.index(max(heights))]
    return (
        f"{name}: {line[0][1]:.4g} at the start, {line[-1][1]:.4g} at the end; "
        f"lowest {low[1]:.4g} at {x} {low[0]:,.10g}, highest {high[1]:.4g} at {x} {high[0]:,.10g}."
    )
