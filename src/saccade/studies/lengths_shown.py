"""How the study `lengths` is shown: BLEU by length as tables and as lines with their intervals."""

from pathlib import Path

from matplotlib.figure import Figure

from saccade.explain.curve import COLOURS
from saccade.studies.study import Grid, Record, shown

AXES = {"by_words": "words of the source", "by_sentences": "sentences of the source"}


def tables(record: Record) -> list[Grid]:
    """A table by words and one by sentences; the last line is of all texts."""
    return [_grid(record, key, words) for key, words in AXES.items()]


def _grid(record: Record, key: str, words: str) -> Grid:
    rows = [
        [group["name"], f"{group['texts']:,}", *(shown(group["bleu"][run]) for run in record["runs"])]
        for group in record[key]
    ]
    rows.append(["all", f"{record['texts']:,}", *(shown(record["whole"][run]) for run in record["runs"])])
    title = f"BLEU with 95 % intervals by {words}"
    return Grid(title, (words, "texts", *record["runs"]), rows)


def draw(record: Record, path: Path) -> None:
    """Two panels, by words and by sentences, with a line for each run and its interval around it."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")  # never shown, so no window system is asked
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (key, words) in zip(axes, AXES.items(), strict=True):
        at = [group["middle"] for group in record[key]]
        for number, run in enumerate(record["runs"]):
            scores = [group["bleu"][run] for group in record[key]]
            low, high = ([score[end] for score in scores] for end in ("low", "high"))
            axis.plot(at, [score["value"] for score in scores], "o-", color=COLOURS[number], label=run)
            axis.fill_between(at, low, high, color=COLOURS[number], alpha=0.15, linewidth=0)
        axis.set_xlabel(words)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("BLEU")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    figure.suptitle(f"Attention against one fixed vector, {record['texts']:,} texts, {record['date']}")
    figure.savefig(path, dpi=120)
