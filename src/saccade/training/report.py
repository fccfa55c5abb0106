"""The page that ends every training run: what was trained, how well it does, how it got there, where it fails and looks."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

from markupsafe import Markup

from saccade.render.charts import Point, render_line_chart
from saccade.render.heatmap import Matrix, matrix_to_lists, render_confusion_matrix, render_vector_heatmap
from saccade.render.page import (
    Block,
    ChartGrid,
    FactList,
    Figure,
    Paragraph,
    ScoreList,
    Section,
    Table,
    render_page,
    write_page,
)

HeatmapData = tuple[
    str, Matrix, Sequence[str], Sequence[str]
]  # title, weights, names of the rows, names of the columns
MAX_MAPS = 8  # pictures of attention on a page
MAX_CONFUSION_CLASSES = 40  # of a confusion matrix that are drawn
MAX_CLASS_ROWS = 200  # of the table of classes
MAX_EXAMPLES_SHOWN = 50
MAX_DEV_CURVES = 6  # curves of dev scores
HEATMAP_HELP = (
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
    maps: Sequence[HeatmapData] = (),
) -> None:
    """Write one HTML file that opens anywhere and asks no other host for anything.

    `metrics` are the rows of metrics.jsonl: `step` with `loss`, `rate` and `tokens_per_second`, or with `dev`, a number or
    numbers by name. `confusion` is the names of the classes and, for each gold class, how often each was answered.
    """
    sections = [
        Section("What was trained", [FactList(facts)] if facts else []),
        Section("Score", [ScoreList(scores)] if scores else []),
        Section("Training", _curve_blocks(metrics)),
        Section("Classes", _class_blocks(*confusion) if confusion and confusion[0] else []),
        Section("Worst examples", _example_blocks(examples)),
        Section("Where it looked", _map_blocks(maps)),
    ]
    write_page(path, render_page(title, sections))


def metric_points(metrics: Sequence[Mapping[str, Any]], key: str) -> list[Point]:
    """The points of one number over the steps; where a resumed run wrote a step again, the later one counts."""
    rows = ((row.get("step"), row.get(key)) for row in metrics)
    return sorted({float(s): float(v) for s, v in rows if _is_number(s) and _is_number(v)}.items())


def dev_metric_points(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """The points of each dev score by its name."""
    rows = [
        {"step": row.get("step"), **(row["dev"] if isinstance(row["dev"], Mapping) else {"score": row["dev"]})}
        for row in metrics
        if "dev" in row
    ]
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    found = {str(name): metric_points(rows, name) for name in names}
    return {name: points for name, points in found.items() if points}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def smooth_points(points: Sequence[Point], width: int) -> list[Point]:
    """The mean of each point with as many on either side, `width` in all or fewer near the ends; what is no number is left out.

    A mean of the past alone lies above a falling curve, since it is late; this one lies on it.

    >>> smooth_points([(1, 4.0), (2, 3.0), (3, 5.0), (4, 1.0)], width=3)
    [(1, 4.0), (2, 4.0), (3, 3.0), (4, 1.0)]
    """
    known = [(step, value) for step, value in points if math.isfinite(value)]
    sums = [0.0, *accumulate(value for _, value in known)]
    line = []
    for at, (step, _) in enumerate(known):
        near = min(width // 2, at, len(known) - 1 - at)
        line.append((step, (sums[at + near + 1] - sums[at - near]) / (2 * near + 1)))
    return line


def _curve_blocks(metrics: Sequence[Mapping[str, Any]]) -> list[Block]:
    steps = [float(row["step"]) for row in metrics if _is_number(row.get("step"))]
    whole = (0.0, max(steps, default=0.0))  # all curves run over the same steps
    drawn = [_render_smoothed_curve(metric_points(metrics, "loss"), "Training loss", "loss", whole)]
    for name, points in list(dev_metric_points(metrics).items())[:MAX_DEV_CURVES]:
        drawn.append(_render_curve(points, f"Dev: {name}", name, whole))
    drawn.append(_render_curve(metric_points(metrics, "lr"), "Learning rate", "lr", whole))
    drawn.append(
        _render_smoothed_curve(metric_points(metrics, "tokens_per_second"), "Throughput", "tokens per second", whole)
    )
    charts = [chart for chart in drawn if chart is not None]
    said = "Hover over a point for its numbers. Long curves keep the lowest and the highest of every stretch."
    return [Paragraph(said, "soft"), ChartGrid(charts)] if charts else []


def _render_curve(points: list[Point], title: str, name: str, steps: tuple[float, float]) -> Markup | None:
    if not _has_drawable_point(points):
        return None
    heights = {value for _, value in points}
    # one score has no range of its own: a share is shown between nothing and all
    share = (0.0, 1.0) if len(heights) == 1 and title.startswith("Dev: ") and 0 <= min(heights) <= 1 else ()
    return render_line_chart({name: points}, title=title, x="step", y=name, axis_limits=(steps, share))


def _render_smoothed_curve(points: list[Point], title: str, name: str, steps: tuple[float, float]) -> Markup | None:
    """As it was measured, faint, and smoothed over a twenty-fifth of the run."""
    width = len(points) // 25
    if width < 3 or not _has_drawable_point(points):
        return _render_curve(points, title, name, steps)
    lines = {"raw": points, "smoothed": smooth_points(points, width)}
    return render_line_chart(lines, title=title, x="step", y=name, secondary_lines={"raw"}, axis_limits=(steps, ()))


def _has_drawable_point(points: list[Point]) -> bool:
    return any(abs(value) < 1e300 for _, value in points)


def _class_blocks(names: Sequence[str], counts: Sequence[Sequence[int]]) -> list[Block]:
    """The matrix, and for each class how well it is found, the worst first."""
    values = matrix_to_lists(counts, len(names), len(names))
    wrong = [sum(line) - line[i] + sum(other[i] for other in values) - line[i] for i, line in enumerate(values)]
    drawn = sorted(sorted(range(len(names)), key=lambda i: -wrong[i])[:MAX_CONFUSION_CLASSES])
    chosen = [[int(values[i][j]) for j in drawn] for i in drawn]
    title = "Which class was taken for which"
    picture = render_confusion_matrix(chosen, [names[i] for i in drawn], title=title)
    said = "A row for each class, a column for each answer; what is right stands on the diagonal."
    if len(drawn) < len(names):
        said += f" The {len(drawn)} of {len(names):,} classes with the most mistakes are drawn; shares are among them."
    rows = sorted((_class_row(i, names, values) for i in range(len(names))), key=lambda row: row[0])
    heads = ["class", "examples", "answers", "precision", "recall", "F1", "most often taken for"]
    blocks: list[Block] = [
        Figure(picture, title, said),
        Table(heads, [row for _, row in rows[:MAX_CLASS_ROWS]], label="classes"),
    ]
    if len(names) > MAX_CLASS_ROWS:
        blocks.append(Paragraph(f"The worst {MAX_CLASS_ROWS} of {len(names):,} classes.", "soft"))
    return blocks


def _class_row(i: int, names: Sequence[str], values: list[list[float]]) -> tuple[float, list[str]]:
    """F1 of a class, and its line of the table."""
    right, gold, answered = values[i][i], sum(values[i]), sum(line[i] for line in values)
    f1 = 2 * right / (gold + answered) if gold + answered else 0.0
    count, other = max(((n, -j) for j, n in enumerate(values[i]) if j != i), default=(0, 0))
    taken = f"{names[-other]} ({count:,.0f})" if count else ""
    shares = [f"{right / whole:.3f}" if whole else "–" for whole in (answered, gold)]
    return f1, [names[i], f"{gold:,.0f}", f"{answered:,.0f}", *shares, f"{f1:.3f}", taken]


def _example_blocks(examples: Sequence[Mapping[str, str]]) -> list[Block]:
    heads = list(dict.fromkeys(key for row in examples for key in row))
    if not heads:
        return []
    rows = [[row.get(head, "") for head in heads] for row in examples[:MAX_EXAMPLES_SHOWN]]
    blocks: list[Block] = [Table(heads, rows, css_class="cards")]
    if len(examples) > MAX_EXAMPLES_SHOWN:
        blocks.append(Paragraph(f"{MAX_EXAMPLES_SHOWN} of {len(examples):,} are shown.", "soft"))
    return blocks


def _map_blocks(maps: Sequence[HeatmapData]) -> list[Block]:
    drawn = [drawing for drawing in maps if len(drawing[2]) and len(drawing[3])]
    if not drawn:
        return []
    blocks: list[Block] = [Paragraph(HEATMAP_HELP)]
    for title, weights, rows, columns in drawn[:MAX_MAPS]:
        svg = render_vector_heatmap(weights, rows, columns, title=title)
        blocks.append(Figure(svg, title, _describe_row_sums(weights, rows, columns)))
    if len(drawn) > MAX_MAPS:
        blocks.append(Paragraph(f"{MAX_MAPS} of {len(drawn)} pictures are shown.", "soft"))
    return blocks


def _describe_row_sums(weights: Matrix, rows: Sequence[str], columns: Sequence[str]) -> str:
    sums = [sum(line) for line in matrix_to_lists(weights, len(rows), len(columns))]
    return "Every row sums to one." if all(abs(s - 1) < 1e-3 for s in sums) else ""
