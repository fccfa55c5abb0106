"""Learning curves with intervals: trainings with equally many labels become a point, points a table and a plot."""

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
    "from_scratch": "from nothing",
    "masked_lm": "after masked words",
    "replaced_token_detection": "after replaced words (ELECTRA)",
}


GAIN_NOTE = (
    "Differences draw by draw, on one test. The interval holds the draws (Student); of a single draw, two tests."
)


@dataclass(frozen=True)
class CurvePoint:
    """The mean score of some trainings with so many labels, its interval, and what it gains over the beginning from nothing."""

    label_count: int
    value: float
    low: float
    high: float
    scores: list[float]
    gain: dict[str, float] | None  # value, low and high; None where it is what others are compared with


def make_points(scores: Mapping[str, Sequence[Record]], label_count: int, *, baseline: str) -> dict[str, CurvePoint]:
    """A point for each name; its scores are of the same draws of labels in the same order, so gains are compared draw by draw."""
    found = {}
    for name, some in scores.items():
        values = [score["value"] for score in some]
        half = math.hypot(
            confidence_half_width(values), statistics.fmean((score["high"] - score["low"]) / 2 for score in some)
        )
        mean = statistics.fmean(values)
        gained = None
        if name != baseline:
            gained = _mean_gain(some, scores[baseline])
        found[name] = CurvePoint(label_count, mean, max(0.0, mean - half), min(1.0, mean + half), values, gained)
    return found


def _mean_gain(scores: Sequence[Record], baseline_scores: Sequence[Record]) -> dict[str, float]:
    """The mean difference; of one draw the interval is that of two independent tests, which is too wide if anything."""
    differences = [one["value"] - other["value"] for one, other in zip(scores, baseline_scores, strict=True)]
    half = confidence_half_width(differences)
    if len(differences) == 1:
        half = math.hypot(*((score["high"] - score["low"]) / 2 for score in (scores[0], baseline_scores[0])))
    value = statistics.fmean(differences)
    return {"value": value, "low": value - half, "high": value + half}


def confidence_half_width(values: Sequence[float]) -> float:
    """Half of Student's 95 % interval of a mean; of one value nothing is known, and nothing is added.

    >>> round(confidence_half_width([0.5, 0.6, 0.7]), 4)
    0.2484
    """
    if len(values) < 2:
        return 0.0
    return (
        STUDENT_T_QUANTILES[min(len(values) - 2, len(STUDENT_T_QUANTILES) - 1)]
        * statistics.stdev(values)
        / math.sqrt(len(values))
    )


def make_tables(record: Record) -> list[StudyTable]:
    """Accuracy by beginning and number of labels, what is gained over nothing, and what the readings came to."""
    curves: dict[str, list[dict[str, Any]]] = record["curves"]
    counts = [point["label_count"] for point in next(iter(curves.values()))]
    heads = ("beginning", *(f"{count:,} labels" for count in counts))
    rows = [
        [INITIALIZATION_LABELS[name], *(format_score(point, scale=100) for point in line)]
        for name, line in curves.items()
    ]
    gains = [
        [INITIALIZATION_LABELS[name], *(format_score(point["gain"], scale=100) for point in line)]
        for name, line in curves.items()
        if line[0]["gain"] is not None
    ]
    draws = ", ".join(str(len(point["scores"])) for point in next(iter(curves.values())))
    note = (
        f"Accuracy on the test data in per cent, the mean of {draws} draws of labels; the largest class alone has "
        f"{record['majority']:.1%}. The interval holds both the draws (Student) and the test (drawn again)."
    )
    return [
        StudyTable("What each reaches", heads, rows, (note,)),
        StudyTable("What is gained over nothing, in points", heads, gains, (GAIN_NOTE,)),
        StudyTable(
            "What was read before",
            ("objective", "minutes of steps", "steps", "held out"),
            _pretraining_rows(record),
            _early_stop_notes(record),
        ),
    ]


def _pretraining_rows(record: Record) -> list[list[str]]:
    return [
        [name, f"{one['minutes']:g}", f"{one['steps']:,}", _format_heldout_scores(one["scores"])]
        for name, one in record["pretraining"].items()
    ]


def _format_heldout_scores(scores: Sequence[Record]) -> str:
    """What a reader knows of held-out text: hidden words, or whether a word was replaced."""
    of = {score["name"]: score["value"] for score in scores}
    if "majority" in of:
        return f"{of['accuracy']:.1%} of the words told apart; doubting nothing: {of['majority']:.1%}"
    return f"{of['accuracy']:.1%} of the hidden words named, perplexity {of['perplexity']:.1f}"


def _early_stop_notes(record: Record) -> tuple[str, ...]:
    """Which schedules the clock has cut or shortened, if any."""
    if not record["stopped_early"]:
        return ()
    return (f"The clock ended or shortened the schedules of these: {', '.join(record['stopped_early'])}.",)


def draw_plot(record: Record, path: Path) -> None:
    """Write the plot: accuracy over the number of labels, a line with intervals for each beginning."""
    figure = Figure(figsize=(7.5, 5), layout="constrained")  # never shown, so no window system is asked
    axis = figure.subplots()
    for turn, (name, line) in enumerate(record["curves"].items()):
        at = [
            point["label_count"] * 1.04 ** (turn - 1) for point in line
        ]  # side by side, or intervals would hide each other
        style = {"fmt": "o-", "color": LINE_COLORS[turn], "label": INITIALIZATION_LABELS[name]}
        draw_errorbar(axis, line, at, scale=100, orientation="vertical", **style)
        for x, point in zip(at, line, strict=True):
            if len(point["scores"]) > 1:
                axis.plot([x] * len(point["scores"]), [100 * s for s in point["scores"]], "_", color=LINE_COLORS[turn])
    axis.axhline(100 * record["majority"], color="0.5", linestyle=":", label="the largest class")
    axis.set_xscale("log")
    labels = [point["label_count"] for point in next(iter(record["curves"].values()))]
    axis.set_xticks(labels, [f"{count:,}" for count in labels])
    axis.minorticks_off()
    axis.set(
        xlabel="labels learnt from", ylabel="accuracy on the test data, %", title="What reading without labels is worth"
    )
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    save_figure(figure, path)
