"""The training runs of a folder, for comparison on the page: curves, reports, model cards and predictions."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from saccade.errors import UsageError
from saccade.models.io.model_dir import stat_files
from saccade.render.charts import downsample
from saccade.render.page import CodeBlock, Section, render_page
from saccade.serving.report_parser import parse_samples
from saccade.tasks.runs.run import Run

MAX_RUNS = 200  # per folder
MAX_CURVE_POINTS = 300  # per curve
MAX_CURVES = 100  # per run
METRICS_FILE = "metrics.jsonl"
CARD_FILES = ("card.html", "model/README.md")
MAX_METRICS_BYTES = 2**28  # of a metrics.jsonl that are read; a step takes about a hundred
MAX_LINE_BYTES = 2**20  # of a line in it
MAX_PAGE_BYTES = 2**26  # of a report or model card


class RunFolder:
    """A folder of runs; other entries of the folder are ignored."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def list_runs(self) -> list[dict[str, Any]]:
        """All runs with name, task, model, scores and curves, the newest first."""
        return [_describe_run(path) for path in self._list_run_paths()[:MAX_RUNS]]

    def read_report(self, name: str) -> bytes:
        """The HTML report that training wrote."""
        return self._find_file(name, "report.html").read_bytes()

    def read_samples(self, name: str) -> dict[str, Any]:
        """The worst predictions of a run, from its report: headers and rows of text."""
        return parse_samples(self._find_file(name, "report.html").read_text(encoding="utf-8", errors="replace"))

    def read_card(self, name: str) -> str:
        """The model card of a run as a page: the one of `saccade card`, or the README.md of the model."""
        if os.path.isfile(self._find_run(name) / "card.html"):
            return self._find_file(name, "card.html").read_text(encoding="utf-8", errors="replace")
        text = self._find_file(name, "model/README.md").read_text(encoding="utf-8", errors="replace")
        return render_page(f"Model card of {name}", [Section("README.md", [CodeBlock(text)])])

    def _find_run(self, name: str) -> Path:
        paths = {display_name(path): path for path in self._list_run_paths()}
        if name not in paths:
            raise UsageError(f"There is no run {name!r} in the folder.")
        return paths[name]

    def _find_file(self, name: str, file: str) -> Path:
        run = self._find_run(name)
        path = run / file
        if not os.path.isfile(path):
            raise UsageError(f"The run {name!r} has no {file}.")
        if not os.access(path, os.R_OK):
            raise UsageError(f"{file} of the run {name!r} cannot be read: permission denied.")
        if not is_inside_run(path, run):
            raise UsageError(f"{file} of the run {name!r} is a symbolic link out of the run, so it is not shown.")
        if path.stat().st_size > MAX_PAGE_BYTES:
            raise UsageError(
                f"{file} of the run {name!r} is larger than {MAX_PAGE_BYTES // 2**20} MB, so it is not shown."
            )
        return path

    def _list_run_paths(self) -> list[Path]:
        if self.folder is None or not self.folder.is_dir():
            return []
        states = stat_files(path / METRICS_FILE for path in self.folder.iterdir())
        files = [(path, state) for path, state in states.items() if state is not None and os.path.isfile(path)]
        return [path.parent for path, state in sorted(files, key=lambda file: -file[1][1])]


def display_name(path: Path) -> str:
    """The name of a directory; bytes that are not valid UTF-8 become question marks."""
    return path.name.encode("utf-8", "replace").decode()


def is_inside_run(path: Path, run: Path) -> bool:
    """Whether a path is inside the directory of a run after all symbolic links are resolved."""
    try:
        return path.resolve(strict=True).is_relative_to(run.resolve())
    except (OSError, RuntimeError):  # such as a link to itself
        return False


def _describe_run(path: Path) -> dict[str, Any]:
    """A run as the page shows it; an unreadable file leaves out only what it contains."""
    settings: dict[str, Any] = {}
    with suppress(ValueError, OSError):
        settings = Run(path).settings.get("run", {})
    records = list(read_metrics(path / METRICS_FILE))
    return {
        "name": display_name(path),
        "task": settings.get("task") or None,
        "model": settings.get("model") or settings.get("family") or None,
        "steps": max((row["step"] for row in records if _is_step(row.get("step"))), default=None),
        "last_loss": find_last_loss(records),
        "curves": collect_curves(records),
        "last_scores": find_last_scores(records),
        "has_report": os.path.isfile(path / "report.html") and is_inside_run(path / "report.html", path),
        "has_card": any(os.path.isfile(path / name) and is_inside_run(path / name, path) for name in CARD_FILES),
    }


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
        if not _is_step(row.get("step")):
            continue
        for name, value in _flatten(row).items():
            is_curve = name != "step" and _is_number(value) and name.isprintable()
            if is_curve and (name in curves or len(curves) < MAX_CURVES):
                curves.setdefault(name, {})[row["step"]] = float(value)  # a resumed run logs some steps again
    points = {name: sorted(line.items()) for name, line in curves.items()}
    return {name: [[int(x), y] for x, y in downsample(line, MAX_CURVE_POINTS)] for name, line in points.items()}


def find_last_loss(records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The loss of the last step that logged one; its value is None if it is not finite, as in a diverged run."""
    losses = [row for row in records if "loss" in row and _is_step(row.get("step"))]
    if not losses:
        return None
    last = max(reversed(losses), key=lambda row: row["step"])
    return {"step": last["step"], "value": last["loss"] if _is_number(last["loss"]) else None}


def find_last_scores(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scores of the last evaluation on held-out data, the task's main score first, each with its step."""
    dev = [row for row in records if isinstance(row.get("dev"), dict) and _is_step(row.get("step"))]
    if not dev:
        return []
    last = max(reversed(dev), key=lambda row: row["step"])  # of a step that was logged twice, the later record
    return [{"name": n, "value": v, "step": last["step"]} for n, v in last["dev"].items() if _is_number(v)]


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    """A record without nesting: {"dev": {"accuracy": 1}} becomes {"dev accuracy": 1}."""
    flat = {}
    for name, value in row.items():
        flat |= {f"{name} {key}": x for key, x in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    )  # false for inf and nan
