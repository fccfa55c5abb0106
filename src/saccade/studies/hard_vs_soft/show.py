"""Table, plot and attention overlays of the study `hard_vs_soft`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from saccade.explain.overlay import ImageOverlay
from saccade.render.charts import LINE_COLORS
from saccade.render.plot import save_figure
from saccade.studies.study import Record, StudyTable

METRIC_FORMATS = {  # metric -> (description, scale, digits)
    "exact_match": ("exact match of captions, %", 100, 1),
    "true_captions": ("true captions, %", 100, 1),
    "mass_named_object": ("attention on the named object, %", 100, 1),
    "mass_other_object": ("attention on the other object, %", 100, 1),
    "mass_chance": ("attention on the named object by chance, %", 100, 1),
    "noise_of_one_batch": ("gradient noise, one batch repeated", 1, 3),
    "noise_over_batches": ("gradient noise, over batches", 1, 3),
    "steps": ("training steps", 1, 0),
}


def make_tables(record: Record) -> list[StudyTable]:
    """A row for each metric, a column for each kind of attention."""
    kinds = record["kinds"]
    rows = [
        [description, *(_format_mean(kind[name], scale, digits) for kind in kinds)]
        for name, (description, scale, digits) in METRIC_FORMATS.items()
        if all(name in kind for kind in kinds)
    ]
    title = (
        f"Hard and soft attention: mean ± standard deviation over {kinds[0]['seeds']} seeds, {record['images']} images"
    )
    note = (
        f"Gradient noise is the variance of {record['repeats']} gradients relative to the squared norm of their mean; "
        "attention on an object is summed over all cells that its bounding box overlaps."
    )
    return [StudyTable(title, ("", *(kind["kind"] for kind in kinds)), rows, (note,))]


def _format_mean(statistic: Record, scale: float, digits: int) -> str:
    mean = f"{scale * statistic['mean']:,.{digits}f}"
    return mean if statistic["std"] is None else f"{mean} ± {scale * statistic['std']:,.{digits}f}"


def draw_plot(record: Record, path: Path) -> None:
    """Score, attention mass and gradient noise of both kinds side by side, a dot for each seed."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")  # without pyplot, as there may be no display
    axes = figure.subplots(1, 3)
    panels = {
        "exact match of captions, %": lambda line: 100 * line["scores"]["exact_match"]["value"],
        "attention on the named object, % (dotted: chance)": lambda line: (
            100 * line["attention_mass"]["named_object"]["value"]
        ),
        "gradient noise (x: one batch repeated)": lambda line: line["noise_over_batches"],
    }
    kinds = [kind["kind"] for kind in record["kinds"]]
    for axis, (title, value) in zip(axes, panels.items(), strict=True):
        for position, kind in enumerate(kinds):
            values = [value(line) for line in record["runs"] if line["kind"] == kind]
            axis.bar(position, sum(values) / len(values), width=0.5, color=LINE_COLORS[position], alpha=0.35)
            axis.plot([position] * len(values), values, "o", color=LINE_COLORS[position])
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(len(kinds)), kinds)
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", alpha=0.25)
    for position, kind in enumerate(record["kinds"]):
        axes[1].plot([position - 0.25, position + 0.25], [100 * kind["mass_chance"]["mean"]] * 2, "k:")
        axes[2].plot(position, kind["noise_of_one_batch"]["mean"], "x", color="black")
    figure.suptitle(f"Soft and hard attention of one captioner; {record['machine']['cpu']}, {record['date']}")
    save_figure(figure, path)


def draw_overlays(
    overlays: Mapping[str, Sequence[Sequence[ImageOverlay]]], captions: Sequence[str], path: Path
) -> None:
    """For some images a row for each kind of attention: the image under the attention map of each word."""
    column_count = max(len(words) for rows in overlays.values() for words in rows)
    rows = [(kind, image_index) for image_index in range(len(captions)) for kind in overlays]
    figure = Figure(figsize=(1.25 * column_count, 1.5 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), column_count, squeeze=False)
    for line, (kind, image_index) in zip(axes, rows, strict=True):
        for axis in line:
            axis.axis("off")
        for axis, view in zip(line, overlays[kind][image_index], strict=False):
            axis.imshow(view.image)
            axis.set_title(view.name, fontsize=8)
        line[0].text(-0.12, 0.5, kind, transform=line[0].transAxes, rotation=90, va="center", ha="right", fontsize=9)
    figure.suptitle("Attention for each word of the gold caption", fontsize=10)
    save_figure(figure, path)
