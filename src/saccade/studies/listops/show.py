"""How the study `listops` is shown: a table, and accuracy, speed and memory side by side."""

from pathlib import Path

from matplotlib.figure import Figure

from saccade.render.charts import LINE_COLORS
from saccade.render.plot import draw_errorbar, save_figure
from saccade.studies.study import Record, StudyTable, format_score

HEADERS = ("reader", "trained on", "accuracy, %", "steps", "s a step", "tokens/s", "peak, MB", "parameters")


def make_tables(record: Record) -> list[StudyTable]:
    """A line for each reader and set; the commonest answer stands below, as what nobody should fall short of."""
    sets = record["sets"]
    beyond = len(sets) > 1
    far = (f"on {sets[-1]['name']}, %",) if beyond else ()
    rows = []
    for line in record["models"]:
        rows.append([line["model"], line["set"], format_score(line["accuracy"], scale=100), f"{line['steps']:,}"])
        rows[-1] += [f"{line['seconds_per_step']:.3f}", f"{line['tokens_per_second']:,}", _format_peak(line)]
        rows[-1] += [f"{line['parameters']:,}", *([_format_longer(line)] if beyond else [])]
    for one in sets:
        dashes = ["-"] * (len(HEADERS) + len(far) - 3)
        rows.append(
            [f"always {one['majority']['label']}", one["name"], format_score(one["majority"], scale=100), *dashes]
        )
    minutes = record["models"][0]["minutes"]
    title = f"ListOps: {minutes:.3g} minutes of training each, accuracy on held-out lists with 95 % intervals"
    refused = {
        line["model"]: line["longer_lists"]["refused"]
        for line in record["models"]
        if "refused" in line.get("longer_lists", {})
    }
    notes = tuple(f"{name} on {sets[-1]['name']}: {said}" for name, said in refused.items())
    return [StudyTable(title, (*HEADERS, *far), rows, notes)]


def _format_peak(line: Record) -> str:
    return "-" if line["peak_mb"] is None else f"{line['peak_mb']:,.0f}"


def _format_longer(line: Record) -> str:
    found = line.get("longer_lists")
    if found is None:
        return "-"
    return "refuses" if "refused" in found else format_score(found, scale=100)


def draw_plot(record: Record, path: Path) -> None:
    """Three panels with a row for each reader: accuracy with its interval, tokens a second, and peak memory."""
    figure = Figure(figsize=(14, 4.8), layout="constrained")  # never shown, so no window system is asked
    axes = figure.subplots(1, 3, sharey=True)
    names = list(dict.fromkeys(line["model"] for line in record["models"]))
    for number, one in enumerate(record["sets"]):
        lines = [line for line in record["models"] if line["set"] == one["name"]]
        places = [names.index(line["model"]) + 0.18 * (number - (len(record["sets"]) - 1) / 2) for line in lines]
        style = {"color": LINE_COLORS[number], "label": one["name"]}
        draw_errorbar(axes[0], [line["accuracy"] for line in lines], places, scale=100, fmt="o", **style)
        axes[0].axvline(100 * one["majority"]["value"], color=LINE_COLORS[number], linestyle=":", linewidth=1)
        axes[1].barh(places, [line["tokens_per_second"] for line in lines], height=0.17, **style)
        axes[2].barh(places, [line["peak_mb"] or 0 for line in lines], height=0.17, **style)
    far = [line for line in record["models"] if "value" in line.get("longer_lists", {})]
    if far:
        draw_errorbar(
            axes[0],
            [line["longer_lists"] for line in far],
            [names.index(line["model"]) + 0.3 for line in far],
            scale=100,
            fmt="x",
            color=LINE_COLORS[2],
            label=f"trained on {far[0]['set']}, asked about {record['sets'][-1]['name']}",
        )
    titles = ("accuracy, % (dotted: the commonest answer)", "tokens a second in training", "peak memory of a step, MB")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title)
        axis.grid(axis="x", alpha=0.25)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    facts = record["machine"]
    figure.suptitle(
        f"ListOps at equal parameters and equal time; {facts['cpu']}, torch {facts['torch']}, {record['date']}"
    )
    save_figure(figure, path)
