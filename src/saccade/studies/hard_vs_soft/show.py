"""How the study `hard_vs_soft` is shown: a table, a plot of both kinds, and the pictures with the light of each look on them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from saccade.explain.overlay import ImageOverlay
from saccade.render.charts import LINE_COLORS
from saccade.render.plot import save_figure
from saccade.studies.study import Record, StudyTable

METRIC_FORMATS = {  # what is measured -> (in words, times, digits)
    "exact_match": ("captions exactly right, %", 100, 1),
    "true_captions": ("captions that are true, %", 100, 1),
    "mass_named_object": ("looks on what the word names, %", 100, 1),
    "mass_other_object": ("looks on the other thing, %", 100, 1),
    "mass_chance": ("the same by chance, %", 100, 1),
    "noise_of_one_batch": ("noise of the gradient, one batch repeated", 1, 3),
    "noise_over_batches": ("noise of the gradient, batch to batch", 1, 3),
    "steps": ("steps in the time", 1, 0),
}


def make_tables(record: Record) -> list[StudyTable]:
    """A line for each thing measured, a column for each kind."""
    kinds = record["kinds"]
    rows = [
        [words, *(_format_mean(kind[name], times, digits) for kind in kinds)]
        for name, (words, times, digits) in METRIC_FORMATS.items()
        if all(name in kind for kind in kinds)
    ]
    over = f"{kinds[0]['seeds']} seeds, {record['images']} pictures"
    title = f"Hard against soft attention: mean ± standard deviation over {over}"
    note = (
        "Noise is the variance of the gradient over its squared length, of "
        f"{record['repeats']} gradients; the mass of a look counts on all cells that the box of a thing touches."
    )
    return [StudyTable(title, ("", *(kind["kind"] for kind in kinds)), rows, (note,))]


def _format_mean(statistic: Record, scale: float, digits: int) -> str:
    mean = f"{scale * statistic['mean']:,.{digits}f}"
    return mean if statistic["std"] is None else f"{mean} ± {scale * statistic['std']:,.{digits}f}"


def draw_plot(record: Record, path: Path) -> None:
    """Score, looks and noise of both kinds side by side, a dot for each seed."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")  # never shown, so no window system is asked
    axes = figure.subplots(1, 3)
    panels = {
        "captions exactly right, %": lambda line: 100 * line["scores"]["exact_match"]["value"],
        "looks on what the word names, % (dotted: chance)": lambda line: (
            100 * line["attention_mass"]["named_object"]["value"]
        ),
        "noise of the gradient (x: one batch repeated)": lambda line: line["noise_over_batches"],
    }
    kinds = [kind["kind"] for kind in record["kinds"]]
    for axis, (title, value) in zip(axes, panels.items(), strict=True):
        for place, kind in enumerate(kinds):
            found = [value(line) for line in record["runs"] if line["kind"] == kind]
            axis.bar(place, sum(found) / len(found), width=0.5, color=LINE_COLORS[place], alpha=0.35)
            axis.plot([place] * len(found), found, "o", color=LINE_COLORS[place])
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(len(kinds)), kinds)
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", alpha=0.25)
    for place, kind in enumerate(record["kinds"]):
        axes[1].plot([place - 0.25, place + 0.25], [100 * kind["mass_chance"]["mean"]] * 2, "k:")
        axes[2].plot(place, kind["noise_of_one_batch"]["mean"], "x", color="black")
    figure.suptitle(f"Soft and hard attention of one captioner; {record['machine']['cpu']}, {record['date']}")
    save_figure(figure, path)


def draw_overlays(
    overlays: Mapping[str, Sequence[Sequence[ImageOverlay]]], captions: Sequence[str], path: Path
) -> None:
    """For some pictures a row of each kind: the picture under its look, word by word."""
    wide = max(len(words) for rows in overlays.values() for words in rows)
    rows = [(kind, number) for number in range(len(captions)) for kind in overlays]
    figure = Figure(figsize=(1.25 * wide, 1.5 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), wide, squeeze=False)
    for line, (kind, number) in zip(axes, rows, strict=True):
        for axis in line:
            axis.axis("off")
        for axis, view in zip(line, overlays[kind][number], strict=False):
            axis.imshow(view.image)
            axis.set_title(view.name, fontsize=8)
        line[0].text(-0.12, 0.5, kind, transform=line[0].transAxes, rotation=90, va="center", ha="right", fontsize=9)
    figure.suptitle("Where each looks as it writes the right caption", fontsize=10)
    save_figure(figure, path)
