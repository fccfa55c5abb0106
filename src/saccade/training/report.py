"""The HTML report of a training run: settings, scores, training curves, confusion matrix, worst examples, attention maps."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
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

HeatmapData = tuple[str, Matrix, Sequence[str], Sequence[str]]  # title, weights, row names, column names
MAX_MAPS = 8  # attention maps in a report
MAX_CONFUSION_CLASSES = 40  # classes in the confusion matrix
MAX_CLASS_ROWS = 200  # rows in the table of classes
MAX_EXAMPLES_SHOWN = 50
MAX_DEV_CURVES = 6  # charts of dev scores
HEATMAP_HELP = (
    "Each row is a query token, each column a key token; the stronger the color of a cell, the larger the attention weight. "
    "Hover over a cell for the number. A weight is the share of a token's value vector in the output at the query. It does not "
    "show how large that vector is, nor that the prediction depends on it."
)


def write_report(
    path: Path,
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    metrics: Sequence[Mapping[str, Any]],
    scores: Sequence[str],
    warnings: Sequence[str] = (),
    calibration_curves: Mapping[str, Sequence[Point]] = MappingProxyType({}),
    confusion: tuple[Sequence[str], Sequence[Sequence[int]]] | None = None,
    examples: Sequence[Mapping[str, str]] = (),
    maps: Sequence[HeatmapData] = (),
) -> None:
    """Write the report as one self-contained HTML file, which loads nothing from other hosts.

    `warnings`, such as that the model is no better than a baseline, come first. `metrics` are the rows of metrics.jsonl: `step`
    with `loss`, `lr` and `tokens_per_second`, or with `dev`, a number or numbers by name. `calibration_curves` holds named
    curves of accuracy over confidence; `confusion` the class names and, for each gold class, how often each was predicted.
    """
    sections = [
        Section("Warnings", [Paragraph(line) for line in warnings]),
        Section("Run", [FactList(facts)] if facts else []),
        Section("Scores", [ScoreList(scores)] if scores else []),
        Section("Training curves", _curve_blocks(metrics)),
        Section("Calibration", _calibration_blocks(calibration_curves)),
        Section("Classes", _class_blocks(*confusion) if confusion and confusion[0] else []),
        Section("Worst examples", _example_blocks(examples)),
        Section("Attention maps", _map_blocks(maps)),
    ]
    write_page(path, render_page(title, sections))


def metric_points(metrics: Sequence[Mapping[str, Any]], key: str) -> list[Point]:
    """The values of one metric over the steps; if a resumed run logged a step again, the later row counts."""
    rows = ((row.get("step"), row.get(key)) for row in metrics)
    return sorted({float(s): float(v) for s, v in rows if _is_number(s) and _is_number(v)}.items())


def dev_metric_points(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """The values of each dev score over the steps, by name."""
    rows = [
        {"step": row.get("step"), **(row["dev"] if isinstance(row["dev"], Mapping) else {"score": row["dev"]})}
        for row in metrics
        if "dev" in row
    ]
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    curves = {str(name): metric_points(rows, name) for name in names}
    return {name: points for name, points in curves.items() if points}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def smooth_points(points: Sequence[Point], width: int) -> list[Point]:
    """Centered moving average over `width` points, over fewer near the ends; non-finite values are dropped.

    An average of past values alone lags behind a falling curve and lies above it; a centered one does not.

    >>> smooth_points([(1, 4.0), (2, 3.0), (3, 5.0), (4, 1.0)], width=3)
    [(1, 4.0), (2, 4.0), (3, 3.0), (4, 1.0)]
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    sums = [0.0, *accumulate(value for _, value in finite)]
    smoothed = []
    for index, (step, _) in enumerate(finite):
        reach = min(width // 2, index, len(finite) - 1 - index)
        smoothed.append((step, (sums[index + reach + 1] - sums[index - reach]) / (2 * reach + 1)))
    return smoothed


def _curve_blocks(metrics: Sequence[Mapping[str, Any]]) -> list[Block]:
    steps = [float(row["step"]) for row in metrics if _is_number(row.get("step"))]
    step_range = (0.0, max(steps, default=0.0))  # all charts share the same x axis
    rendered = [_render_smoothed_curve(metric_points(metrics, "loss"), "Training loss", "loss", step_range)]
    for name, points in list(dev_metric_points(metrics).items())[:MAX_DEV_CURVES]:
        rendered.append(_render_curve(points, f"Dev: {name}", name, step_range))
    rendered.append(_render_curve(metric_points(metrics, "lr"), "Learning rate", "lr", step_range))
    rendered.append(
        _render_smoothed_curve(
            metric_points(metrics, "tokens_per_second"), "Throughput", "tokens per second", step_range
        )
    )
    charts = [chart for chart in rendered if chart is not None]
    help_text = "Hover over a point for its values. Long curves show the minimum and maximum of each interval."
    return [Paragraph(help_text, "soft"), ChartGrid(charts)] if charts else []


def _render_curve(points: list[Point], title: str, name: str, steps: tuple[float, float]) -> Markup | None:
    if not _has_drawable_point(points):
        return None
    values = {value for _, value in points}
    # a single value has no range, so a score between 0 and 1 is drawn on an axis from 0 to 1
    y_limits = (0.0, 1.0) if len(values) == 1 and title.startswith("Dev: ") and 0 <= min(values) <= 1 else ()
    return render_line_chart({name: points}, title=title, x="step", y=name, axis_limits=(steps, y_limits))


def _render_smoothed_curve(points: list[Point], title: str, name: str, steps: tuple[float, float]) -> Markup | None:
    """A curve smoothed over 1/25 of the run, with the raw values as a faint line."""
    width = len(points) // 25
    if width < 3 or not _has_drawable_point(points):
        return _render_curve(points, title, name, steps)
    lines = {"raw": points, "smoothed": smooth_points(points, width)}
    return render_line_chart(lines, title=title, x="step", y=name, secondary_lines={"raw"}, axis_limits=(steps, ()))


def _has_drawable_point(points: list[Point]) -> bool:
    return any(abs(value) < 1e300 for _, value in points)


def _calibration_blocks(curves: Mapping[str, Sequence[Point]]) -> list[Block]:
    """The reliability diagram: on the diagonal, a probability is the share of predictions that are right."""
    if not any(curves.values()):
        return []
    lines = {"perfect calibration": [(0.0, 0.0), (1.0, 1.0)], **{name: line for name, line in curves.items() if line}}
    limits = ((0.0, 1.0), (0.0, 1.0))
    chart = render_line_chart(
        lines,
        title="Reliability diagram (dev)",
        x="probability of the prediction",
        y="share of right predictions",
        secondary_lines={"perfect calibration"},
        axis_limits=limits,
    )
    return [
        ChartGrid([chart]),
        Paragraph("Below the diagonal the model is overconfident, above it underconfident.", "soft"),
    ]


def _class_blocks(names: Sequence[str], counts: Sequence[Sequence[int]]) -> list[Block]:
    """The confusion matrix, and a table with precision, recall and F1 of each class, lowest F1 first."""
    values = matrix_to_lists(counts, len(names), len(names))
    errors = [sum(line) - line[i] + sum(other[i] for other in values) - line[i] for i, line in enumerate(values)]
    indices = sorted(sorted(range(len(names)), key=lambda i: -errors[i])[:MAX_CONFUSION_CLASSES])
    shown = [[int(values[i][j]) for j in indices] for i in indices]
    title = "Confusion matrix"
    matrix_svg = render_confusion_matrix(shown, [names[i] for i in indices], title=title)
    caption = "A row for each gold class, a column for each predicted class; correct predictions are on the diagonal."
    if len(indices) < len(names):
        caption += (
            f" Shows the {len(indices)} of {len(names):,} classes with the most errors; shares are of these alone."
        )
    rows = sorted((_class_row(i, names, values) for i in range(len(names))), key=lambda row: row[0])
    headers = ["class", "examples", "predicted", "precision", "recall", "F1", "most often confused with"]
    blocks: list[Block] = [
        Figure(matrix_svg, title, caption),
        Table(headers, [row for _, row in rows[:MAX_CLASS_ROWS]], label="classes"),
    ]
    if len(names) > MAX_CLASS_ROWS:
        blocks.append(Paragraph(f"Shows the {MAX_CLASS_ROWS} of {len(names):,} classes with the lowest F1.", "soft"))
    return blocks


def _class_row(i: int, names: Sequence[str], values: list[list[float]]) -> tuple[float, list[str]]:
    """The F1 of a class, and its row in the table."""
    correct, gold, predicted = values[i][i], sum(values[i]), sum(line[i] for line in values)
    f1 = 2 * correct / (gold + predicted) if gold + predicted else 0.0
    count, negative_index = max(((n, -j) for j, n in enumerate(values[i]) if j != i), default=(0, 0))
    confused_with = f"{names[-negative_index]} ({count:,.0f})" if count else ""
    ratios = [f"{correct / total:.3f}" if total else "–" for total in (predicted, gold)]
    return f1, [names[i], f"{gold:,.0f}", f"{predicted:,.0f}", *ratios, f"{f1:.3f}", confused_with]


def _example_blocks(examples: Sequence[Mapping[str, str]]) -> list[Block]:
    headers = list(dict.fromkeys(key for row in examples for key in row))
    if not headers:
        return []
    rows = [[row.get(header, "") for header in headers] for row in examples[:MAX_EXAMPLES_SHOWN]]
    blocks: list[Block] = [Table(headers, rows, css_class="cards")]
    if len(examples) > MAX_EXAMPLES_SHOWN:
        blocks.append(Paragraph(f"Shows {MAX_EXAMPLES_SHOWN} of {len(examples):,} examples.", "soft"))
    return blocks


def _map_blocks(maps: Sequence[HeatmapData]) -> list[Block]:
    nonempty = [heatmap for heatmap in maps if len(heatmap[2]) and len(heatmap[3])]
    if not nonempty:
        return []
    blocks: list[Block] = [Paragraph(HEATMAP_HELP)]
    for title, weights, rows, columns in nonempty[:MAX_MAPS]:
        svg = render_vector_heatmap(weights, rows, columns, title=title)
        blocks.append(Figure(svg, title, _describe_row_sums(weights, rows, columns)))
    if len(nonempty) > MAX_MAPS:
        blocks.append(Paragraph(f"Shows {MAX_MAPS} of {len(nonempty)} attention maps.", "soft"))
    return blocks


def _describe_row_sums(weights: Matrix, rows: Sequence[str], columns: Sequence[str]) -> str:
    sums = [sum(line) for line in matrix_to_lists(weights, len(rows), len(columns))]
    return "Every row sums to 1." if all(abs(s - 1) < 1e-3 for s in sums) else ""
