"""Table and plots of the study `listops`: accuracy, speed and memory side by side."""

from pathlib import Path

from matplotlib.figure import Figure

from saccade.render.charts import LINE_COLORS
from saccade.render.plot import draw_errorbar, save_figure
from saccade.studies.study import Record, StudyTable, format_score

HEADERS = ("model", "trained on", "accuracy, %", "steps", "s/step", "tokens/s", "peak memory, MB", "parameters")


def make_tables(record: Record) -> list[StudyTable]:
    """A row for each model and dataset, and below them the majority-class baseline of each dataset."""
    sets = record["sets"]
    has_longer = len(sets) > 1
    longer_header = (f"on {sets[-1]['name']}, %",) if has_longer else ()
    rows = []
    for model in record["models"]:
        rows.append([model["model"], model["set"], format_score(model["accuracy"], scale=100), f"{model['steps']:,}"])
        rows[-1] += [f"{model['seconds_per_step']:.3f}", f"{model['tokens_per_second']:,}", _format_peak(model)]
        rows[-1] += [f"{model['parameters']:,}", *([_format_longer(model)] if has_longer else [])]
    for dataset in sets:
        dashes = ["-"] * (len(HEADERS) + len(longer_header) - 3)
        rows.append(
            [
                f"always {dataset['majority']['label']}",
                dataset["name"],
                format_score(dataset["majority"], scale=100),
                *dashes,
            ]
        )
    minutes = record["models"][0]["minutes"]
    title = f"ListOps: {minutes:.3g} minutes of training per model, test accuracy with 95 % intervals"
    refused = {
        model["model"]: model["longer_lists"]["refused"]
        for model in record["models"]
        if "refused" in model.get("longer_lists", {})
    }
    notes = tuple(f"{name} on {sets[-1]['name']}: {error}" for name, error in refused.items())
    return [StudyTable(title, (*HEADERS, *longer_header), rows, notes)]


def _format_peak(model: Record) -> str:
    return "-" if model["peak_mb"] is None else f"{model['peak_mb']:,.0f}"


def _format_longer(model: Record) -> str:
    longer = model.get("longer_lists")
    if longer is None:
        return "-"
    return "not supported" if "refused" in longer else format_score(longer, scale=100)


def draw_plot(record: Record, path: Path) -> None:
    """Three panels with a row for each model: accuracy with its interval, tokens per second, and peak memory."""
    figure = Figure(figsize=(14, 4.8), layout="constrained")  # without pyplot, as there may be no display
    axes = figure.subplots(1, 3, sharey=True)
    names = list(dict.fromkeys(line["model"] for line in record["models"]))
    for index, dataset in enumerate(record["sets"]):
        lines = [line for line in record["models"] if line["set"] == dataset["name"]]
        positions = [names.index(line["model"]) + 0.18 * (index - (len(record["sets"]) - 1) / 2) for line in lines]
        style = {"color": LINE_COLORS[index], "label": dataset["name"]}
        draw_errorbar(axes[0], [line["accuracy"] for line in lines], positions, scale=100, fmt="o", **style)
        axes[0].axvline(100 * dataset["majority"]["value"], color=LINE_COLORS[index], linestyle=":", linewidth=1)
        axes[1].barh(positions, [line["tokens_per_second"] for line in lines], height=0.17, **style)
        axes[2].barh(positions, [line["peak_mb"] or 0 for line in lines], height=0.17, **style)
    longer = [line for line in record["models"] if "value" in line.get("longer_lists", {})]
    if longer:
        draw_errorbar(
            axes[0],
            [line["longer_lists"] for line in longer],
            [names.index(line["model"]) + 0.3 for line in longer],
            scale=100,
            fmt="x",
            color=LINE_COLORS[2],
            label=f"trained on {longer[0]['set']}, evaluated on {record['sets'][-1]['name']}",
        )
    titles = ("accuracy, % (dotted: majority class)", "training tokens per second", "peak memory of a step, MB")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title)
        axis.grid(axis="x", alpha=0.25)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    machine = record["machine"]
    figure.suptitle(
        f"ListOps at equal parameters and equal training time; {machine['cpu']}, torch {machine['torch']}, {record['date']}"
    )
    save_figure(figure, path)
