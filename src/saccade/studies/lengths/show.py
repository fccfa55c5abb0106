"""How the study `lengths` is shown: BLEU by length as tables and as lines with their intervals."""

from pathlib import Path

from matplotlib.figure import Figure

from saccade.render.charts import LINE_COLORS
from saccade.render.plot import save_figure
from saccade.studies.study import Record, StudyTable, format_score

AXIS_LABELS = {"by_words": "words of the source", "by_sentences": "sentences of the source"}


def make_tables(record: Record) -> list[StudyTable]:
    """A table by words and one by sentences; the last line is of all texts."""
    return [_make_table(record, key, words) for key, words in AXIS_LABELS.items()]


def _make_table(record: Record, key: str, words: str) -> StudyTable:
    rows = [
        [group["name"], f"{group['texts']:,}", *(format_score(group["bleu"][run]) for run in record["runs"])]
        for group in record[key]
    ]
    rows.append(["all", f"{record['texts']:,}", *(format_score(record["overall"][run]) for run in record["runs"])])
    title = f"BLEU with 95 % intervals by {words}"
    return StudyTable(title, (words, "texts", *record["runs"]), rows)


def draw_plot(record: Record, path: Path) -> None:
    """Two panels, by words and by sentences, with a line for each run and its interval around it."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")  # never shown, so no window system is asked
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (key, words) in zip(axes, AXIS_LABELS.items(), strict=True):
        at = [group["mean_length"] for group in record[key]]
        for number, run in enumerate(record["runs"]):
            scores = [group["bleu"][run] for group in record[key]]
            low, high = ([score[end] for score in scores] for end in ("low", "high"))
            axis.plot(at, [score["value"] for score in scores], "o-", color=LINE_COLORS[number], label=run)
            axis.fill_between(at, low, high, color=LINE_COLORS[number], alpha=0.15, linewidth=0)
        axis.set_xlabel(words)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("BLEU")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    figure.suptitle(f"Attention against one fixed vector, {record['texts']:,} texts, {record['date']}")
    save_figure(figure, path)
