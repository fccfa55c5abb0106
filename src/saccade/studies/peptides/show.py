"""What the study of peptides found, as tables and as a picture: who is taken for active, and what the peptides are like."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from saccade.render.plot import draw_errorbar, save_figure
from saccade.studies.peptides.stats import HISTOGRAM_BIN, RESIDUES
from saccade.studies.study import Record, StudyTable, format_score

SET_LABELS = {
    "generated": "invented, new ones only",
    "shuffled": "the same, residues shuffled",
    "held-out active": "active, held out",
    "held-out others": "others, held out",
}
SET_COLORS = {"training": "0.6", "generated": "#0067a3", "held-out others": "#b84a00"}


def make_tables(record: Record) -> list[StudyTable]:
    """Two tables: what the judge says, and lengths and residues."""
    return [make_classifier_table(record), make_stats_table(record)]


def make_classifier_table(record: Record) -> StudyTable:
    verdict, sure = record["validity_report"], record["classifier"]
    rows = [
        [SET_LABELS[name], f"{share['count']:,}", format_score(share, scale=100)]
        for name, share in record["active_fractions"].items()
    ]
    near = {name: f"{figure['value']:.0%}" for name, figure in record["nearest_similarity"].items()}
    written = (
        f"Of {verdict['count']:,} peptides that were written {verdict['validity']:.1%} are valid, {verdict['uniqueness']:.1%} of "
        f"those differ, and {verdict['novelty']:.1%} of these are not among the peptides that were learnt from."
    )
    like = (
        f"An invented peptide is {near['generated']} like the most like of those, a held-out active one "
        f"{near['held-out active']}."
    )
    more = (
        f"Invented over shuffled: {format_score(record['gain'], scale=100)} points. The judge's mcc on its test is "
        f"{format_score(sure, digits=3)}; it learnt from the same active peptides as the writer, and it is no laboratory."
    )
    notes = (written, like, more)
    return StudyTable("What the judge takes for active", ("peptides", "count", "taken for active, %"), rows, notes)


def make_stats_table(record: Record) -> StudyTable:
    rows = []
    for name, look in record["stats"].items():
        away = record["composition_distance"].get(name)
        rows.append(
            [
                SET_LABELS.get(name, "active, learnt from"),
                f"{look['mean_length']:.1f} ({look['length_q05']:.0f} to {look['length_q95']:.0f})",
                f"{look['mean_charge']:+.1f}",
                f"{look['hydrophobic_fraction']:.1%}",
                "-" if away is None else f"{away:.1%}",
            ]
        )
    heads = ("peptides", "length (middle 90 %)", "charge", "greasy residues", "residues that differ from the learnt")
    return StudyTable("What the peptides are like", heads, rows)


def draw_plot(record: Record, path: Path) -> None:
    """Write the plot: shares with their intervals, lengths, and composition."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")  # never shown, so no window system is asked
    shares, lengths, residues = figure.subplots(1, 3, width_ratios=[1, 1, 1.4])
    _draw_fractions(shares, record["active_fractions"])
    _draw_lengths(lengths, record["lengths"])
    _draw_residues(residues, record["stats"])
    figure.suptitle("Peptides that a language model invents, judged by a classifier")
    save_figure(figure, path)


def _draw_fractions(axis: Axes, fractions: dict[str, Any]) -> None:
    positions = range(len(fractions))
    draw_errorbar(axis, list(fractions.values()), positions, scale=100, fmt="o", color=SET_COLORS["generated"])
    axis.set_yticks(range(len(fractions)), [SET_LABELS[name] for name in fractions])
    axis.set(xlabel="taken for active, %", xlim=(-2, 102), ylim=(len(fractions) - 0.5, -0.5))
    axis.grid(alpha=0.25)


def _draw_lengths(axis: Axes, lengths: dict[str, list[float]]) -> None:
    for name, shares in lengths.items():
        edges = [HISTOGRAM_BIN * place for place in range(len(shares) + 1)]
        axis.stairs([100 * share for share in shares], edges, linewidth=1.6, label=name, color=SET_COLORS[name])
    axis.set(xlabel="length, residues", ylabel="% of peptides")
    axis.legend(frameon=False)
    axis.grid(alpha=0.25)


def _draw_residues(axis: Axes, stats: dict[str, Any]) -> None:
    width = 0.8 / len(SET_COLORS)
    for turn, (name, colour) in enumerate(SET_COLORS.items()):
        heights = [100 * stats[name]["composition"][letter] for letter in RESIDUES]
        axis.bar(np.arange(len(RESIDUES)) + (turn - 1) * width, heights, width, label=name, color=colour)
    axis.set_xticks(range(len(RESIDUES)), RESIDUES)
    axis.set(xlabel="residue", ylabel="% of residues")
    axis.legend(frameon=False)
    axis.grid(alpha=0.25, axis="y")
