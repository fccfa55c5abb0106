"""Learning curves with confidence intervals: runs with the same number of labels become a point, points a table and a plot."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from saccade.render.charts import LINE_COLORS
from saccade.render.plot import draw_errorbar, save_figure
from saccade.studies.study import Record, StudyTable, format_score

# the 97.5 % quantiles of Student's distribution for 1, 2, ... degrees of freedom
STUDENT_T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
INITIALIZATION_LABELS = {
    "from_scratch": "from scratch",
    "masked_lm": "masked LM",
    "replaced_token_detection": "replaced token detection (ELECTRA)",
}
GAIN_NOTE = (
    "Paired differences over samples of labels, on one test set. The interval covers the samples (Student's t); for a single "
    "sample, the two test scores."
)


@dataclass(frozen=True)
class CurvePoint:
    """The mean score of runs with the same number of labels, its confidence interval, and the gain over the baseline."""

    label_count: int
    value: float
    low: float
    high: float
    scores: list[float]
    gain: dict[str, float] | None  # value, low and high; None for the baseline


def make_points(scores: Mapping[str, Sequence[Record]], label_count: int, *, baseline: str) -> dict[str, CurvePoint]:
    """A point for each name; the scores are of the same samples of labels in the same order, so that gains are paired."""
    points = {}
    for name, name_scores in scores.items():
        values = [score["value"] for score in name_scores]
        half = math.hypot(
            confidence_half_width(values), statistics.fmean((score["high"] - score["low"]) / 2 for score in name_scores)
        )
        mean = statistics.fmean(values)
        gained = None if name == baseline else _mean_gain(name_scores, scores[baseline])
        points[name] = CurvePoint(label_count, mean, max(0.0, mean - half), min(1.0, mean + half), values, gained)
    return points


def _mean_gain(scores: Sequence[Record], baseline_scores: Sequence[Record]) -> dict[str, float]:
    """The mean paired difference; for one sample the interval is that of two independent test scores, which is conservative."""
    differences = [score["value"] - other["value"] for score, other in zip(scores, baseline_scores, strict=True)]
    half = confidence_half_width(differences)
    if len(differences) == 1:
        half = math.hypot(*((score["high"] - score["low"]) / 2 for score in (scores[0], baseline_scores[0])))
    value = statistics.fmean(differences)
    return {"value": value, "low": value - half, "high": value + half}


def confidence_half_width(values: Sequence[float]) -> float:
    """Half the width of Student's 95 % confidence interval of a mean; 0 for a single value.

    >>> round(confidence_half_width([0.5, 0.6, 0.7]), 4)
    0.2484
    """
    if len(values) < 2:
        return 0.0
    quantile = STUDENT_T_QUANTILES[min(len(values) - 2, len(STUDENT_T_QUANTILES) - 1)]
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def make_tables(record: Record) -> list[StudyTable]:
    """Accuracy by initialization and number of labels, the gain over training from scratch, and the pretraining runs."""
    curves: dict[str, list[dict[str, Any]]] = record["curves"]
    counts = [point["label_count"] for point in next(iter(curves.values()))]
    heads = ("initialization", *(f"{count:,} labels" for count in counts))
    rows = [
        [INITIALIZATION_LABELS[name], *(format_score(point, scale=100) for point in line)]
        for name, line in curves.items()
    ]
    gains = [
        [INITIALIZATION_LABELS[name], *(format_score(point["gain"], scale=100) for point in line)]
        for name, line in curves.items()
        if line[0]["gain"] is not None
    ]
    samples = ", ".join(str(len(point["scores"])) for point in next(iter(curves.values())))
    note = (
        f"Test accuracy in per cent, mean of {samples} samples of labels; the majority class has {record['majority']:.1%}. "
        "The interval covers the samples of labels (Student's t) and the test set (bootstrap)."
    )
    return [
        StudyTable("Accuracy", heads, rows, (note,)),
        StudyTable("Gain over training from scratch, in points", heads, gains, (GAIN_NOTE,)),
        StudyTable(
            "Pretraining",
            ("objective", "minutes of training", "steps", "held-out score"),
            _pretraining_rows(record),
            _early_stop_notes(record),
        ),
    ]


def _pretraining_rows(record: Record) -> list[list[str]]:
    return [
        [name, f"{run['minutes']:g}", f"{run['steps']:,}", _format_heldout_scores(run["scores"])]
        for name, run in record["pretraining"].items()
    ]


def _format_heldout_scores(scores: Sequence[Record]) -> str:
    """The scores of a pretrained model on held-out text: of masked tokens, or of replaced token detection."""
    values = {score["name"]: score["value"] for score in scores}
    if "majority" in values:
        return f"detection accuracy {values['accuracy']:.1%} (majority class {values['majority']:.1%})"
    return f"accuracy of masked tokens {values['accuracy']:.1%}, perplexity {values['perplexity']:.1f}"


def _early_stop_notes(record: Record) -> tuple[str, ...]:
    """A note on runs whose schedule the time limit ended or shortened, if any."""
    if not record["stopped_early"]:
        return ()
    return (f"The time limit ended or shortened the schedules of {', '.join(record['stopped_early'])}.",)


def draw_plot(record: Record, path: Path) -> None:
    """Write the plot: accuracy over the number of labels, a line with intervals for each initialization."""
    figure = Figure(figsize=(7.5, 5), layout="constrained")  # without pyplot, as there may be no display
    axis = figure.subplots()
    for index, (name, line) in enumerate(record["curves"].items()):
        positions = [
            point["label_count"] * 1.04 ** (index - 1) for point in line
        ]  # shifted, so that intervals do not overlap
        style = {"fmt": "o-", "color": LINE_COLORS[index], "label": INITIALIZATION_LABELS[name]}
        draw_errorbar(axis, line, positions, scale=100, orientation="vertical", **style)
        for x, point in zip(positions, line, strict=True):
            if len(point["scores"]) > 1:
                axis.plot([x] * len(point["scores"]), [100 * s for s in point["scores"]], "_", color=LINE_COLORS[index])
    axis.axhline(100 * record["majority"], color="0.5", linestyle=":", label="majority class")
    axis.set_xscale("log")
    labels = [point["label_count"] for point in next(iter(record["curves"].values()))]
    axis.set_xticks(labels, [f"{count:,}" for count in labels])
    axis.minorticks_off()
    axis.set(xlabel="training labels", ylabel="test accuracy, %", title="Fine-tuning with and without pretraining")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    save_figure(figure, path)
