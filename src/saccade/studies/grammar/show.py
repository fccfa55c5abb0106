"""How the study `grammar` is shown: shares by kind of grammar, as a table and as dots with their intervals."""

from pathlib import Path

from matplotlib.figure import Figure

from saccade.render.charts import LINE_COLORS
from saccade.render.plot import draw_errorbar, save_figure
from saccade.studies.study import Record, StudyTable, format_score

CHANCE_PERCENT = 50


def make_tables(record: Record) -> list[StudyTable]:
    """One table; its last line is of all pairs."""
    rows = [
        [
            kind["name"].replace("_", " "),
            f"{kind['pairs']:,}",
            *(format_score(kind["accuracy"][run], scale=100) for run in record["runs"]),
        ]
        for kind in record["phenomena"]
    ]
    rows.append(
        ["all", f"{record['pairs']:,}", *(format_score(record["overall"][run], scale=100) for run in record["runs"])]
    )
    sizes = ", ".join(f"{run} has {count:,} parameters" for run, count in record["parameters"].items())
    notes = (f"Who guesses is right in {CHANCE_PERCENT} %. {sizes}.",)
    heads = ("kind of grammar", "pairs", *record["runs"])
    return [
        StudyTable(
            "Pairs in which the grammatical sentence is the likelier, %, with 95 % intervals", heads, rows, notes
        )
    ]


def draw_plot(record: Record, path: Path) -> None:
    """A line for each kind, a dot for each run, and where guessing stands."""
    kinds = [*record["phenomena"], {"name": "all", "accuracy": record["overall"]}]
    figure = Figure(figsize=(9, 1.5 + 0.4 * len(kinds)), layout="constrained")  # never shown: no window system is asked
    axis = figure.subplots()
    gap = 0.5 / max(1, len(record["runs"]))
    for turn, run in enumerate(record["runs"]):
        some = [kind["accuracy"][run] for kind in kinds]
        at = [row + gap * (turn - (len(record["runs"]) - 1) / 2) for row in range(len(kinds))]
        draw_errorbar(axis, some, at, scale=100, fmt="o", color=LINE_COLORS[turn % len(LINE_COLORS)], label=run)
    axis.axvline(CHANCE_PERCENT, color="0.5", linewidth=1, linestyle="--", label="guessing")
    axis.set_yticks(range(len(kinds)), [kind["name"].replace("_", " ") for kind in kinds])
    axis.set(xlabel="the grammatical sentence is the likelier, %", ylim=(len(kinds) - 0.5, -0.5))
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, loc="best")
    figure.suptitle(f"Which of two sentences is the likelier, {record['pairs']:,} pairs, {record['date']}")
    save_figure(figure, path)
