"""The page that ends every training run: what was trained, how well it does, how it got there, where it fails and looks."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

from saccade.explain.curve import Point, curve
from saccade.explain.heatmap import Matrix, confusion_matrix, heatmap, numbers
from saccade.explain.page import figure, page, pairs, prose, table, write_page
from saccade.explain.svg import escape

Drawn = tuple[str, Matrix, Sequence[str], Sequence[str]]  # title, weights, names of the rows, names of the columns
MAPS = 8  # pictures of attention on a page
CLASSES = 40  # of a confusion matrix that are drawn
LINES = 200  # of the table of classes
EXAMPLES = 50
DEV = 6  # curves of dev scores
READING = (
    "Each row is a token that looks, each column a token that is looked at; the further a cell stands out from the page, "
    "the larger the weight, and hovering over it gives the number. A weight is the share that the value of a token has in "
    "the sum at this place. It does not say how large that value is, nor that the answer depends on it."
)


def write_report(
    path: Path,
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    metrics: Sequence[Mapping[str, Any]],
    scores: Sequence[str],
    confusion: tuple[Sequence[str], Sequence[Sequence[int]]] | None = None,
    examples: Sequence[Mapping[str, str]] = (),
    maps: Sequence[Drawn] = (),
) -> None:
    """Write one HTML file that opens anywhere and asks no other host for anything.

    `metrics` are the rows of metrics.jsonl: `step` with `loss`, `rate` and `tokens_per_second`, or with `dev`, a number or
    numbers by name. `confusion` is the names of the classes and, for each gold class, how often each was answered.
    """
    sections = [
        ("What was trained", pairs(facts)),
        ("Score", _scores(scores)),
        ("Training", _curves(metrics)),
        ("Classes", _classes(*confusion) if confusion and confusion[0] else ""),
        ("Worst examples", _examples(examples)),
        ("Where it looked", _maps(maps)),
    ]
    write_page(path, page(title, sections))


def _scores(scores: Sequence[str]) -> str:
    lines = "".join(f"<li>{escape(score)}</li>\n" for score in scores)
    return f'<ul class="scores">\n{lines}</ul>' if scores else ""


def series(metrics: Sequence[Mapping[str, Any]], key: str) -> list[Point]:
    """The points of one number over the steps; where a resumed run wrote a step again, the later one counts."""
    rows = ((row.get("step"), row.get(key)) for row in metrics)
    return sorted({float(s): float(v) for s, v in rows if _number(s) and _number(v)}.items())


def dev_series(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """The points of each dev score by its name."""
    rows = [
        {"step": row.get("step"), **(row["dev"] if isinstance(row["dev"], Mapping) else {"score": row["dev"]})}
        for row in metrics
        if "dev" in row
    ]
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    found = {str(name): series(rows, name) for name in names}
    return {name: points for name, points in found.items() if points}


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def smooth(points: Sequence[Point], width: int) -> list[Point]:
    """The mean of each point with as many on either side, `width` in all or fewer near the ends; what is no number is left out.

    A mean of the past alone lies above a falling curve, since it is late; this one lies on it.

    >>> smooth([(1, 4.0), (2, 3.0), (3, 5.0), (4, 1.0)], width=3)
    [(1, 4.0), (2, 4.0), (3, 3.0), (4, 1.0)]
    """
    known = [(step, value) for step, value in points if math.isfinite(value)]
    sums = [0.0, *accumulate(value for _, value in known)]
    line = []
    for at, (step, _) in enumerate(known):
        near = min(width // 2, at, len(known) - 1 - at)
        line.append((step, (sums[at + near + 1] - sums[at - near]) / (2 * near + 1)))
    return line


def _curves(metrics: Sequence[Mapping[str, Any]]) -> str:
    steps = [float(row["step"]) for row in metrics if _number(row.get("step"))]
    whole = (0.0, max(steps, default=0.0))  # all curves run over the same steps
    drawn = [_noisy(series(metrics, "loss"), "Training loss", "loss", whole)]
    for name, points in list(dev_series(metrics).items())[:DEV]:
        drawn.append(_line(points, f"Dev: {name}", name, whole))
    drawn.append(_line(series(metrics, "rate"), "Learning rate", "rate", whole))
    drawn.append(_noisy(series(metrics, "tokens_per_second"), "Throughput", "tokens per second", whole))
    figures = "\n".join(f"<figure>{drawing}</figure>" for drawing in drawn if drawing)
    said = "Hover over a point for its numbers. Long curves keep the lowest and the highest of every stretch."
    return f'{prose(said, kind="soft")}\n<div class="curves">\n{figures}\n</div>' if figures else ""


def _line(points: list[Point], title: str, name: str, steps: tuple[float, float]) -> str:
    if not _any(points):
        return ""
    heights = {value for _, value in points}
    # one score has no range of its own: a share is shown between nothing and all
    share = (0.0, 1.0) if len(heights) == 1 and title.startswith("Dev: ") and 0 <= min(heights) <= 1 else ()
    return curve({name: points}, title=title, x="step", y=name, ends=(steps, share))


def _noisy(points: list[Point], title: str, name: str, steps: tuple[float, float]) -> str:
    """As it was measured, faint, and smoothed over a twenty-fifth of the run."""
    width = len(points) // 25
    if width < 3 or not _any(points):
        return _line(points, title, name, steps)
    lines = {"raw": points, "smoothed": smooth(points, width)}
    return curve(lines, title=title, x="step", y=name, faint={"raw"}, ends=(steps, ()))


def _any(points: list[Point]) -> bool:
    return any(abs(value) < 1e300 for _, value in points)


def _classes(names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """The matrix, and for each class how well it is found, the worst first."""
    values = numbers(counts, len(names), len(names))
    wrong = [sum(line) - line[i] + sum(other[i] for other in values) - line[i] for i, line in enumerate(values)]
    drawn = sorted(sorted(range(len(names)), key=lambda i: -wrong[i])[:CLASSES])
    chosen = [[int(values[i][j]) for j in drawn] for i in drawn]
    title = "Which class was taken for which"
    picture = confusion_matrix(chosen, [names[i] for i in drawn], title=title)
    said = "A row for each class, a column for each answer; what is right stands on the diagonal."
    if len(drawn) < len(names):
        said += f" The {len(drawn)} of {len(names):,} classes with the most mistakes are drawn; shares are among them."
    rows = sorted((_class(i, names, values) for i in range(len(names))), key=lambda row: row[0])
    heads = ["class", "examples", "answers", "precision", "recall", "F1", "most often taken for"]
    more = prose(f"The worst {LINES} of {len(names):,} classes.", kind="soft") if len(names) > LINES else ""
    lines = table(heads, [row for _, row in rows[:LINES]])
    scrolling = f'<div class="scroll" tabindex="0" role="group" aria-label="classes">{lines}</div>'
    return f"{figure(picture, name=title, caption=said)}\n{scrolling}{more}"


def _class(i: int, names: Sequence[str], values: list[list[float]]) -> tuple[float, list[str]]:
    """F1 of a class, and its line of the table."""
    right, gold, answered = values[i][i], sum(values[i]), sum(line[i] for line in values)
    f1 = 2 * right / (gold + answered) if gold + answered else 0.0
    count, other = max(((n, -j) for j, n in enumerate(values[i]) if j != i), default=(0, 0))
    taken = f"{names[-other]} ({count:,.0f})" if count else ""
    shares = [f"{right / whole:.3f}" if whole else "–" for whole in (answered, gold)]
    return f1, [names[i], f"{gold:,.0f}", f"{answered:,.0f}", *shares, f"{f1:.3f}", taken]


def _examples(examples: Sequence[Mapping[str, str]]) -> str:
    heads = list(dict.fromkeys(key for row in examples for key in row))
    rows = [[row.get(head, "") for head in heads] for row in examples[:EXAMPLES]]
    more = prose(f"{EXAMPLES} of {len(examples):,} are shown.", kind="soft") if len(examples) > EXAMPLES else ""
    return table(heads, rows, kind="cards") + more if heads else ""


def _maps(maps: Sequence[Drawn]) -> str:
    drawn = [drawing for drawing in maps if len(drawing[2]) and len(drawing[3])]
    figures = [
        figure(heatmap(weights, rows, columns, title=title), name=title, caption=_sums(weights, rows, columns))
        for title, weights, rows, columns in drawn[:MAPS]
    ]
    more = [prose(f"{MAPS} of {len(drawn)} pictures are shown.", kind="soft")] if len(drawn) > MAPS else []
    return "\n".join([prose(READING), *figures, *more]) if figures else ""


def _sums(weights: Matrix, rows: Sequence[str], columns: Sequence[str]) -> str:
    sums = [sum(line) for line in numbers(weights, len(rows), len(columns))]
    return "Every row sums to one." if all(abs(s - 1) < 1e-3 for s in sums) else ""
