"""Tables and plot of the study `grammar`: accuracy by phenomenon, with confidence intervals."""

from pathlib import Path

from matplotlib.figure import Figure

from saccade.render.charts import LINE_COLORS
from saccade.render.plot import draw_errorbar, save_figure
from saccade.studies.study import Record, StudyTable, format_score

CHANCE_PERCENT = 50


def make_tables(record: Record) -> list[StudyTable]:
    """One table; its last row is over all pairs."""
    rows = [
        [
            phenomenon["name"].replace("_", " "),
            f"{phenomenon['pairs']:,}",
            *(format_score(phenomenon["accuracy"][run], scale=100) for run in record["runs"]),
        ]
        for phenomenon in record["phenomena"]
    ]
    rows.append(
        ["all", f"{record['pairs']:,}", *(format_score(record["overall"][run], scale=100) for run in record["runs"])]
    )
    sizes = ", ".join(f"{run} has {count:,} parameters" for run, count in record["parameters"].items())
    notes = (f"Guessing has an accuracy of {CHANCE_PERCENT} %. {sizes}.",)
    title = "Pairs in which the grammatical sentence is more likely, %, with 95 % intervals"
    return [StudyTable(title, ("phenomenon", "pairs", *record["runs"]), rows, notes)]


def draw_plot(record: Record, path: Path) -> None:
    """A row for each phenomenon, a dot for each run, and a line at chance level."""
    phenomena = [*record["phenomena"], {"name": "all", "accuracy": record["overall"]}]
    figure = Figure(figsize=(9, 1.5 + 0.4 * len(phenomena)), layout="constrained")  # no pyplot: maybe no display
    axis = figure.subplots()
    gap = 0.5 / max(1, len(record["runs"]))
    for index, run in enumerate(record["runs"]):
        accuracies = [phenomenon["accuracy"][run] for phenomenon in phenomena]
        positions = [row + gap * (index - (len(record["runs"]) - 1) / 2) for row in range(len(phenomena))]
        draw_errorbar(
            axis, accuracies, positions, scale=100, fmt="o", color=LINE_COLORS[index % len(LINE_COLORS)], label=run
        )
    axis.axvline(CHANCE_PERCENT, color="0.5", linewidth=1, linestyle="--", label="guessing")
    axis.set_yticks(range(len(phenomena)), [phenomenon["name"].replace("_", " ") for phenomenon in phenomena])
    axis.set(xlabel="the grammatical sentence is more likely, %", ylim=(len(phenomena) - 0.5, -0.5))
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, loc="best")
    figure.suptitle(f"Acceptability of minimal pairs, {record['pairs']:,} pairs, {record['date']}")
    save_figure(figure, path)
