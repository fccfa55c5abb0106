"""The runs of a folder, for the page that compares them: their curves, reports, cards and answers."""

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

MAX_RUNS = 200  # runs of a folder
MAX_CURVE_POINTS = 300  # of a curve
MAX_CURVES = 100  # of a run
METRICS_FILE = "metrics.jsonl"
CARD_FILES = ("card.html", "model/README.md")
MAX_METRICS_BYTES = 2**28  # bytes of a metrics.jsonl; a step takes about a hundred
MAX_LINE_BYTES = 2**20  # bytes of a line of it that are read at once
MAX_PAGE_BYTES = 2**26  # bytes of a report or a card


class RunFolder:
    """One folder; what is not a run in it is passed over."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def list_runs(self) -> list[dict[str, Any]]:
        """Every run: its name, task, model, scores and curves, the newest first."""
        return [_describe_run(path) for path in self._list_run_paths()[:MAX_RUNS]]

    def read_report(self, name: str) -> bytes:
        """The page of a run that a training has written."""
        return self._find_file(name, "report.html").read_bytes()

    def read_samples(self, name: str) -> dict[str, Any]:
        """Answers of a run, as its report has them: heads, and rows of text."""
        return parse_samples(self._find_file(name, "report.html").read_text(encoding="utf-8", errors="replace"))

    def read_card(self, name: str) -> str:
        """The card of a run as a page: the one that `saccade card` wrote, or else the text beside its weights."""
        if os.path.isfile(self._find_run(name) / "card.html"):
            return self._find_file(name, "card.html").read_text(encoding="utf-8", errors="replace")
        text = self._find_file(name, "model/README.md").read_text(encoding="utf-8", errors="replace")
        return render_page(f"The card of {name}", [Section("README.md", [CodeBlock(text)])])

    def _find_run(self, name: str) -> Path:
        path = {display_name(one): one for one in self._list_run_paths()}.get(name)
        if path is None:
            raise UsageError(f"There is no run {name!r} here.")
        return path

    def _find_file(self, name: str, file: str) -> Path:
        run = self._find_run(name)
        path = run / file
        if not os.path.isfile(path):
            raise UsageError(f"The run {name!r} has no {file}.")
        if not os.access(path, os.R_OK):
            raise UsageError(f"{file} of the run {name!r} cannot be read: permission denied.")
        if not is_inside_run(path, run):
            raise UsageError(f"{file} of the run {name!r} is a link that leads out of the run, so it is not shown.")
        if path.stat().st_size > MAX_PAGE_BYTES:
            raise UsageError(
                f"{file} of the run {name!r} is larger than {MAX_PAGE_BYTES // 2**20} MB, so it is not shown."
            )
        return path

    def _list_run_paths(self) -> list[Path]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = [
            (path, state) for path, state in stat_files(path / METRICS_FILE for path in self.folder.iterdir()).items()
        ]
        found = [(path, state) for path, state in found if state is not None and os.path.isfile(path)]
        return [path.parent for path, state in sorted(found, key=lambda one: -one[1][1])]


def display_name(path: Path) -> str:
    """The name of a directory as text; bytes that are no UTF-8 become a question mark."""
    return path.name.encode("utf-8", "replace").decode()


def is_inside_run(path: Path, run: Path) -> bool:
    """Whether a file of a run is one: no link, of it or of a directory on the way, leads out of the run."""
    try:
        return path.resolve(strict=True).is_relative_to(run.resolve())
    except (OSError, RuntimeError):  # a link to itself
        return False


def _describe_run(path: Path) -> dict[str, Any]:
    """A run as the page shows it; whatever is odd about its files hides itself and nothing else."""
    run: dict[str, Any] = {}
    with suppress(ValueError, OSError):
        run = Run(path).settings.get("run", {})
    noted = list(read_metrics(path / METRICS_FILE))
    return {
        "name": display_name(path),
        "task": run.get("task") or None,
        "model": run.get("model") or run.get("family") or None,
        "steps": max((row["step"] for row in noted if _is_step(row.get("step"))), default=None),
        "last_loss": find_last_loss(noted),
        "curves": collect_curves(noted),
        "last_scores": find_last_scores(noted),
        "has_report": os.path.isfile(path / "report.html") and is_inside_run(path / "report.html", path),
        "has_card": any(os.path.isfile(path / name) and is_inside_run(path / name, path) for name in CARD_FILES),
    }


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a metrics.jsonl; lines that are no record are passed over, as the last of a run that is being written."""
    if not is_inside_run(path, path.parent):
        return
    with suppress(OSError), path.open("rb") as file:
        while file.tell() < MAX_METRICS_BYTES and (line := file.readline(MAX_LINE_BYTES)):
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict):
                    yield row


def collect_curves(records: Iterable[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """Of every number that was noted, the points (step, value); of many, a few hundred that look the same.

    Scores on held-out data stand in records of their own, {"step": 400, "dev": {"accuracy": 0.9}}; their curves are called
    "dev accuracy". The first and the last point of a curve are always among those that are kept.

    >>> collect_curves([{"step": 1, "loss": 2.0}, {"step": 1, "dev": {"accuracy": 0.5}}])
    {'loss': [[1, 2.0]], 'dev accuracy': [[1, 0.5]]}
    """
    found: dict[str, dict[int, float]] = {}
    for row in records:
        if not _is_step(row.get("step")):
            continue
        for name, value in _flatten(row).items():
            if (
                name != "step"
                and _is_number(value)
                and name.isprintable()
                and (name in found or len(found) < MAX_CURVES)
            ):
                found.setdefault(name, {})[row["step"]] = float(value)  # a run that went on writes some steps again
    points = {name: sorted(line.items()) for name, line in found.items()}
    return {name: [[int(x), y] for x, y in downsample(line, MAX_CURVE_POINTS)] for name, line in points.items()}


def find_last_loss(records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The loss of the last step that noted one; its value is None where it was no number, as in a run that diverged."""
    noted = [row for row in records if "loss" in row and _is_step(row.get("step"))]
    if not noted:
        return None
    last = max(reversed(noted), key=lambda row: row["step"])
    return {"step": last["step"], "value": last["loss"] if _is_number(last["loss"]) else None}


def find_last_scores(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scores of the last evaluation on held-out data, the task's main score first, each with its step."""
    dev = [row for row in records if isinstance(row.get("dev"), dict) and _is_step(row.get("step"))]
    if not dev:
        return []
    last = max(
        reversed(dev), key=lambda row: row["step"]
    )  # a step that was written again counts as it was written last
    return [{"name": n, "value": v, "step": last["step"]} for n, v in last["dev"].items() if _is_number(v)]


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    """A record without nesting: {"dev": {"accuracy": 1}} has the number "dev accuracy"."""
    out = {}
    for name, value in row.items():
        inner = {f"{name} {key}": x for key, x in value.items()} if isinstance(value, dict) else {name: value}
        out |= inner
    return out


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    )  # neither infinite nor nan
