"""The plot of the cost of attention: time and memory over sequence length, with logarithmic axes."""

from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from saccade.render.plot import save_figure

MARKERS = "osv^DPX"
LINE_DASHES = ("-", "--", "-.")
QUANTITIES: list[tuple[str, str, Callable[[dict], float | None]]] = [
    ("time", "milliseconds", lambda case: case["ms"] and case["ms"]["median"]),
    ("memory", "peak, MB", lambda case: case["peak_mb"]),
]


def draw_plot(report: dict, path: Path) -> None:
    """Write the plot of a report as PNG: forward above, training below, time on the left, memory on the right."""
    figure = Figure(figsize=(14, 10), layout="constrained")  # without pyplot, as there may be no display
    axes = figure.subplots(2, 2, sharex=True, squeeze=False)
    styles = choose_line_styles(report["mechanisms"])
    for row, mode in zip(axes, ("forward", "training"), strict=True):
        for axis, (kind, unit, value) in zip(row, QUANTITIES, strict=True):
            axis.set_title(f"{kind}, {'forward' if mode == 'forward' else 'forward and backward'}")
            axis.set_ylabel(unit)
            draw_panel(axis, [case for case in report["cases"] if case["mode"] == mode], value, styles)
    for axis in axes[1]:
        axis.set_xlabel("n, tokens")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", title="time forward ~ n to the power", frameon=False)
    figure.suptitle(format_title(report))
    save_figure(figure, path)


def choose_line_styles(mechanisms: list[dict]) -> dict[str, dict]:
    """Line styles by mechanism: dense ones thin in shades of blue, with different markers and dashes; others warm and thick."""
    dense = [line["name"] for line in mechanisms if line["cost"] == "n² d"]
    others = [line["name"] for line in mechanisms if line["cost"] != "n² d"]
    blues, warm = matplotlib.colormaps["Blues"], ["#d62728", "#ff7f0e", "#8c1a6a", "#b8860b", "#e377c2", "#7f3b08"]
    styles: dict[str, dict] = {}
    for i, name in enumerate(dense):
        styles[name] = {"color": blues(0.45 + 0.55 * i / len(dense)), "linewidth": 1.1, "markersize": 6}
        styles[name] |= {
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": LINE_DASHES[i // len(MARKERS) % len(LINE_DASHES)],
        }
    for i, name in enumerate(others):
        styles[name] = {"color": warm[i % len(warm)], "linewidth": 2.4, "markersize": 7}
        styles[name] |= {"marker": MARKERS[i % len(MARKERS)], "linestyle": "-"}
    if "scaled_dot" in styles:  # the reference
        styles["scaled_dot"] |= {"color": "black", "linewidth": 2.4}
    for line in mechanisms:
        growth = line["time"]["forward"]
        styles[line["name"]]["label"] = line["name"] + (f"  {growth['exponent']:.2f}" if growth else "")
    return styles


def draw_panel(axis: Axes, cases: list[dict], value: Callable[[dict], float | None], styles: dict[str, dict]) -> None:
    """Draw one panel: a line for each mechanism, and reference slopes in gray."""
    for name, style in styles.items():
        points = [(case["length"], value(case)) for case in cases if case["mechanism"] == name]
        points = [(n, y) for n, y in points if y]
        axis.plot([n for n, _ in points], [y for _, y in points], markeredgecolor="white", markeredgewidth=0.5, **style)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.grid(alpha=0.25)
    lengths = sorted({case["length"] for case in cases})
    axis.xaxis.set_major_locator(FixedLocator(lengths))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda n, _: f"{n:,.0f}")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
    draw_reference_slopes(axis, lengths)


def draw_reference_slopes(axis: Axes, lengths: list[int]) -> None:
    """Draw reference lines for n and n² from the lower left corner."""
    low, high = axis.get_ylim()
    start, end = lengths[0], lengths[-1]
    if start == end:
        return
    for power, name in ((1, "n"), (2, "n²")):
        axis.plot([start, end], [low, low * (end / start) ** power], color="grey", linestyle=":", linewidth=1, zorder=0)
        reach = (
            min(end / start, (high / low) ** (1 / power)) ** 0.7
        )  # position of the label, before the end of the line
        label_box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        position = (start * reach, low * reach**power)
        axis.annotate(name, position, color="dimgrey", ha="center", va="center", bbox=label_box)
    axis.set_ylim(low, high)


def format_title(report: dict) -> str:
    plan, facts = report["plan"], report["machine"]
    setup = f"Attention: {plan['heads']} heads of {plan['width'] // plan['heads']}, batch {plan['batch_size']}, float32"
    machine = f"{facts['cpu']}, threads: {facts['threads']}, torch {facts['torch']}, {facts['date'][:10]}"
    legend = "dense mechanisms blue, scaled_dot black; lines end at the time or memory limit"
    return f"{setup}{', causal' if plan['causal'] else ''}\n{machine}; {legend}"
