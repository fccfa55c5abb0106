"""What the study of peptides found, as tables and as a picture: who is taken for active, and what the peptides are like."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from saccade.studies.residues import RESIDUES, STEP
from saccade.studies.study import Grid, Record, shown

SAID = {
    "invented": "invented, new ones only",
    "shuffled": "the same, residues shuffled",
    "held-out active": "active, held out",
    "held-out others": "others, held out",
}
COLOURS = {"learnt": "0.6", "invented": "#0067a3", "held-out others": "#b84a00"}


def tables(record: Record) -> list[Grid]:
    """Two tables: what the judge says, and lengths and residues."""
    return [judged(record), compared(record)]


def judged(record: Record) -> Grid:
    verdict, sure = record["verdict"], record["judge"]
    rows = [[SAID[name], f"{share['count']:,}", shown(share, times=100)] for name, share in record["shares"].items()]
    near = {name: f"{figure['value']:.0%}" for name, figure in record["nearest"].items()}
    written = (
        f"Of {verdict['count']:,} peptides that were written {verdict['validity']:.1%} are valid, {verdict['uniqueness']:.1%} of "
        f"those differ, and {verdict['novelty']:.1%} of these are not among the peptides that were learnt from."
    )
    like = (
        f"An invented peptide is {near['invented']} like the most like of those, a held-out active one "
        f"{near['held-out active']}."
    )
    more = (
        f"Invented over shuffled: {shown(record['gain'], times=100)} points. The judge's mcc on its test is "
        f"{shown(sure, digits=3)}; it learnt from the same active peptides as the writer, and it is no laboratory."
    )
    notes = (written, like, more)
    return Grid("What the judge takes for active", ("peptides", "count", "taken for active, %"), rows, notes)


def compared(record: Record) -> Grid:
    rows = []
    for name, look in record["looks"].items():
        away = record["apart"].get(name)
        rows.append(
            [
                SAID.get(name, "active, learnt from"),
                f"{look['length']:.1f} ({look['shortest']:.0f} to {look['longest']:.0f})",
                f"{look['charge']:+.1f}",
                f"{look['greasy']:.1%}",
                "-" if away is None else f"{away:.1%}",
            ]
        )
    heads = ("peptides", "length (middle 90 %)", "charge", "greasy residues", "residues that differ from the learnt")
    return Grid("What the peptides are like", heads, rows)


def draw(record: Record, path: Path) -> None:
    """Write the plot: shares with their intervals, lengths, and composition."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")  # never shown, so no window system is asked
    shares, lengths, residues = figure.subplots(1, 3, width_ratios=[1, 1, 1.4])
    _shares(shares, record["shares"])
    _lengths(lengths, record["lengths"])
    _residues(residues, record["looks"])
    figure.suptitle("Peptides that a language model invents, judged by a classifier")
    figure.savefig(path, dpi=120)


def _shares(axis: Axes, shares: dict[str, Any]) -> None:
    values = [100 * share["value"] for share in shares.values()]
    errors = [
        [100 * (share["value"] - share["low"]) for share in shares.values()],
        [100 * (share["high"] - share["value"]) for share in shares.values()],
    ]
    axis.errorbar(values, range(len(shares)), xerr=errors, fmt="o", capsize=4, color=COLOURS["invented"])
    axis.set_yticks(range(len(shares)), [SAID[name] for name in shares])
    axis.set(xlabel="taken for active, %", xlim=(-2, 102), ylim=(len(shares) - 0.5, -0.5))
    axis.grid(alpha=0.25)


def _lengths(axis: Axes, lengths: dict[str, list[float]]) -> None:
    for name, shares in lengths.items():
        edges = [STEP * place for place in range(len(shares) + 1)]
        axis.stairs([100 * share for share in shares], edges, linewidth=1.6, label=name, color=COLOURS[name])
    axis.set(xlabel="length, residues", ylabel="% of peptides")
    axis.legend(frameon=False)
    axis.grid(alpha=0.25)


def _residues(axis: Axes, looks: dict[str, Any]) -> None:
    width = 0.8 / len(COLOURS)
    for turn, (name, colour) in enumerate(COLOURS.items()):
        heights = [100 * looks[name]["composition"][letter] for letter in RESIDUES]
        axis.bar(np.arange(len(RESIDUES)) + (turn - 1) * width, heights, width, label=name, color=colour)
    axis.set_xticks(range(len(RESIDUES)), RESIDUES)
    axis.set(xlabel="residue", ylabel="% of residues")
    axis.legend(frameon=False)
    axis.grid(alpha=0.25, axis="y")
