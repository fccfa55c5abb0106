"""Tables and plot of the study `lengths`: BLEU by source length, with confidence intervals."""

from pathlib import Path

from matplotlib.figure import Figure

from saccade.render.charts import LINE_COLORS
from saccade.render.plot import save_figure
from saccade.studies.study import Record, StudyTable, format_score

AXIS_LABELS = {"by_words": "source words", "by_sentences": "source sentences"}


def make_tables(record: Record) -> list[StudyTable]:
    """A table by words and one by sentences; the last row is over all texts."""
    return [_make_table(record, key, axis_label) for key, axis_label in AXIS_LABELS.items()]


def _make_table(record: Record, key: str, axis_label: str) -> StudyTable:
    rows = [
        [group["name"], f"{group['texts']:,}", *(format_score(group["bleu"][run]) for run in record["runs"])]
        for group in record[key]
    ]
    rows.append(["all", f"{record['texts']:,}", *(format_score(record["overall"][run]) for run in record["runs"])])
    title = f"BLEU with 95 % intervals by {axis_label}"
    return StudyTable(title, (axis_label, "texts", *record["runs"]), rows)


def draw_plot(record: Record, path: Path) -> None:
    """Two panels, by words and by sentences, with a line and a confidence band for each run."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")  # without pyplot, as there may be no display
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (key, axis_label) in zip(axes, AXIS_LABELS.items(), strict=True):
        lengths = [group["mean_length"] for group in record[key]]
        for index, run in enumerate(record["runs"]):
            scores = [group["bleu"][run] for group in record[key]]
            low, high = ([score[end] for score in scores] for end in ("low", "high"))
            axis.plot(lengths, [score["value"] for score in scores], "o-", color=LINE_COLORS[index], label=run)
            axis.fill_between(lengths, low, high, color=LINE_COLORS[index], alpha=0.15, linewidth=0)
        axis.set_xlabel(axis_label)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("BLEU")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    figure.suptitle(f"Attention and a fixed context vector, {record['texts']:,} texts, {record['date']}")
    save_figure(figure, path)
