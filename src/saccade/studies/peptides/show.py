"""Tables and plot of the study `peptides`: fractions classified as active, and statistics of the peptides."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from saccade.render.plot import draw_errorbar, save_figure
from saccade.studies.peptides.stats import HISTOGRAM_BIN, RESIDUES
from saccade.studies.study import Record, StudyTable, format_score

SET_LABELS = {
    "generated": "generated, novel only",
    "shuffled": "generated, residues shuffled",
    "held-out active": "active, held out",
    "held-out others": "others, held out",
}
SET_COLORS = {"training": "0.6", "generated": "#0067a3", "held-out others": "#b84a00"}


def make_tables(record: Record) -> list[StudyTable]:
    """Two tables: the predictions of the classifier, and statistics of the peptides."""
    return [make_classifier_table(record), make_stats_table(record)]


def make_classifier_table(record: Record) -> StudyTable:
    report, mcc = record["validity_report"], record["classifier"]
    rows = [
        [SET_LABELS[name], f"{fraction['count']:,}", format_score(fraction, scale=100)]
        for name, fraction in record["active_fractions"].items()
    ]
    similarities = {name: f"{estimate['value']:.0%}" for name, estimate in record["nearest_similarity"].items()}
    generated = (
        f"Of {report['count']:,} generated peptides {report['validity']:.1%} are valid, {report['uniqueness']:.1%} of these "
        f"are unique, and {report['novelty']:.1%} of those are novel, that is, not in the training data."
    )
    similarity = (
        f"Mean similarity to the nearest training peptide: {similarities['generated']} for generated peptides, "
        f"{similarities['held-out active']} for held-out active ones."
    )
    gain = (
        f"Generated minus shuffled: {format_score(record['gain'], scale=100)} points. The classifier has a test MCC of "
        f"{format_score(mcc, digits=3)}; it was trained on the same active peptides as the generator, and no peptide was "
        "tested in a laboratory."
    )
    notes = (generated, similarity, gain)
    headers = ("peptides", "count", "classified as active, %")
    return StudyTable("Peptides that the classifier predicts to be active", headers, rows, notes)


def make_stats_table(record: Record) -> StudyTable:
    rows = []
    for name, stats in record["stats"].items():
        distance = record["composition_distance"].get(name)
        rows.append(
            [
                SET_LABELS.get(name, "active, training"),
                f"{stats['mean_length']:.1f} ({stats['length_q05']:.0f} to {stats['length_q95']:.0f})",
                f"{stats['mean_charge']:+.1f}",
                f"{stats['hydrophobic_fraction']:.1%}",
                "-" if distance is None else f"{distance:.1%}",
            ]
        )
    headers = (
        "peptides",
        "length (5 % to 95 % quantile)",
        "charge",
        "hydrophobic residues",
        "distance from training composition",
    )
    return StudyTable("Statistics of the peptides", headers, rows)


def draw_plot(record: Record, path: Path) -> None:
    """Write the plot: active fractions with confidence intervals, lengths, and composition."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")  # without pyplot, as there may be no display
    fractions, lengths, residues = figure.subplots(1, 3, width_ratios=[1, 1, 1.4])
    _draw_fractions(fractions, record["active_fractions"])
    _draw_lengths(lengths, record["lengths"])
    _draw_residues(residues, record["stats"])
    figure.suptitle("Generated peptides, scored by a classifier")
    save_figure(figure, path)


def _draw_fractions(axis: Axes, fractions: dict[str, Any]) -> None:
    positions = range(len(fractions))
    draw_errorbar(axis, list(fractions.values()), positions, scale=100, fmt="o", color=SET_COLORS["generated"])
    axis.set_yticks(range(len(fractions)), [SET_LABELS[name] for name in fractions])
    axis.set(xlabel="classified as active, %", xlim=(-2, 102), ylim=(len(fractions) - 0.5, -0.5))
    axis.grid(alpha=0.25)


def _draw_lengths(axis: Axes, lengths: dict[str, list[float]]) -> None:
    for name, fractions in lengths.items():
        edges = [HISTOGRAM_BIN * index for index in range(len(fractions) + 1)]
        axis.stairs(
            [100 * fraction for fraction in fractions], edges, linewidth=1.6, label=name, color=SET_COLORS[name]
        )
    axis.set(xlabel="length, residues", ylabel="% of peptides")
    axis.legend(frameon=False)
    axis.grid(alpha=0.25)


def _draw_residues(axis: Axes, stats: dict[str, Any]) -> None:
    width = 0.8 / len(SET_COLORS)
    for index, (name, color) in enumerate(SET_COLORS.items()):
        heights = [100 * stats[name]["composition"][letter] for letter in RESIDUES]
        axis.bar(np.arange(len(RESIDUES)) + (index - 1) * width, heights, width, label=name, color=color)
    axis.set_xticks(range(len(RESIDUES)), RESIDUES)
    axis.set(xlabel="residue", ylabel="% of residues")
    axis.legend(frameon=False)
    axis.grid(alpha=0.25, axis="y")
