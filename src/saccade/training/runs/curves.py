"""The metrics of a run while it trains and afterwards: its metrics.jsonl as curves, with the last loss and the last scores."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from saccade.render.charts import downsample

MAX_CURVE_POINTS = 300  # per curve
MAX_CURVES = 100  # per run
METRICS_FILE = "metrics.jsonl"
MAX_METRICS_BYTES = 2**28  # of a metrics.jsonl that are read; a step takes about a hundred
MAX_LINE_BYTES = 2**20  # of a line in it


def is_inside_run(path: Path, run: Path) -> bool:
    """Whether a path is inside the directory of a run after all symbolic links are resolved."""
    try:
        return path.resolve(strict=True).is_relative_to(run.resolve())
    except (OSError, RuntimeError):  # such as a link to itself
        return False


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a metrics.jsonl; invalid lines are skipped, such as an incomplete last line of a run in progress."""
    if not is_inside_run(path, path.parent):
        return
    with suppress(OSError), path.open("rb") as file:
        while file.tell() < MAX_METRICS_BYTES and (line := file.readline(MAX_LINE_BYTES)):
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict):
                    yield row


def collect_curves(records: Iterable[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """The curve of every logged number as points (step, value), downsampled to a few hundred.

    Scores on held-out data have their own records, {"step": 400, "dev": {"accuracy": 0.9}}; their curves are called "dev
    accuracy". The first and the last point of a curve are always kept.

    >>> collect_curves([{"step": 1, "loss": 2.0}, {"step": 1, "dev": {"accuracy": 0.5}}])
    {'loss': [[1, 2.0]], 'dev accuracy': [[1, 0.5]]}
    """
    curves: dict[str, dict[int, float]] = {}
    for row in records:
        if not is_step(row.get("step")):
            continue
        for name, value in _flatten(row).items():
            is_curve = name != "step" and is_number(value) and name.isprintable()
            if is_curve and (name in curves or len(curves) < MAX_CURVES):
                curves.setdefault(name, {})[row["step"]] = float(value)  # a resumed run logs some steps again
    points = {name: sorted(line.items()) for name, line in curves.items()}
    return {name: [[int(x), y] for x, y in downsample(line, MAX_CURVE_POINTS)] for name, line in points.items()}


def find_last_loss(records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The loss of the last step that logged one; its value is None if it is not finite, as in a diverged run."""
    losses = [row for row in records if "loss" in row and is_step(row.get("step"))]
    if not losses:
        return None
    last = max(reversed(losses), key=lambda row: row["step"])
    return {"step": last["step"], "value": last["loss"] if is_number(last["loss"]) else None}


def find_last_scores(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scores of the last evaluation on held-out data, the task's main score first, each with its step."""
    dev = [row for row in records if isinstance(row.get("dev"), dict) and is_step(row.get("step"))]
    if not dev:
        return []
    last = max(reversed(dev), key=lambda row: row["step"])  # of a step that was logged twice, the later record
    return [{"name": n, "value": v, "step": last["step"]} for n, v in last["dev"].items() if is_number(v)]


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    """A record without nesting: {"dev": {"accuracy": 1}} becomes {"dev accuracy": 1}."""
    flat = {}
    for name, value in row.items():
        flat |= {f"{name} {key}": x for key, x in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    )  # false for inf and nan
