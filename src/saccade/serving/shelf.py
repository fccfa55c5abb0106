"""The runs of a folder, for the page that compares them: their curves, reports, cards and answers."""

import json
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from saccade.explain.curve import thin
from saccade.explain.page import page
from saccade.explain.svg import escape
from saccade.serving.samples import samples

MOST = 200  # runs of a folder
POINTS = 300  # of a curve


class Shelf:
    """One folder; what is not a run in it is passed over."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def runs(self) -> list[dict[str, Any]]:
        """Every run: its name, task, model, scores and curves, the newest first."""
        return [_told(path) for path in self._found()[:MOST]]

    def report(self, name: str) -> bytes:
        """The page of a run that a training has written."""
        return self._file(name, "report.html").read_bytes()

    def samples(self, name: str) -> dict[str, Any]:
        """Answers of a run, as its report has them: heads, and rows of text."""
        return samples(self._file(name, "report.html").read_text(encoding="utf-8", errors="replace"))

    def card(self, name: str) -> str:
        """The card of a run as a page: the one that `saccade card` wrote, or else the text beside its weights."""
        if (self._run(name) / "card.html").is_file():
            return self._file(name, "card.html").read_text(encoding="utf-8", errors="replace")
        text = self._file(name, "model/README.md").read_text(encoding="utf-8", errors="replace")
        return page(f"The card of {name}", [("README.md", f"<pre>{escape(text)}</pre>")])

    def _run(self, name: str) -> Path:
        path = {one.name: one for one in self._found()}.get(name)
        if path is None:
            raise ValueError(f"There is no run {name!r} here.")
        return path

    def _file(self, name: str, file: str) -> Path:
        path = self._run(name) / file
        if not path.is_file():
            raise ValueError(f"The run {name!r} has no {file}.")
        return path

    def _found(self) -> list[Path]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if (path / "metrics.jsonl").is_file()]
        return sorted(found, key=lambda path: -(path / "metrics.jsonl").stat().st_mtime)


def _told(path: Path) -> dict[str, Any]:
    rows = []
    with (path / "metrics.jsonl").open(encoding="utf-8") as file:
        for line in file:
            try:
                row = json.loads(line)
                rows += [row] if isinstance(row, dict) else []
            except ValueError:  # the last line of a run that is being written
                continue
    config: dict[str, Any] = {}
    if (path / "config.toml").is_file():
        with suppress(ValueError):  # one that is broken hides nothing but itself
            config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    run = config.get("run", {})
    return {
        "name": path.name,
        "task": run.get("task"),
        "model": run.get("model") or run.get("family"),
        "steps": max((row["step"] for row in rows if _is_step(row.get("step"))), default=None),
        "loss": last_loss(rows),
        "curves": curves(rows),
        "scores": scores(rows),
        "report": (path / "report.html").is_file(),
        "card": any((path / name).is_file() for name in ("card.html", "model/README.md")),
    }


def curves(rows: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """Of every number that was noted, the points (step, value); of many, a few hundred that look the same.

    Scores on held-out data stand in records of their own, {"step": 400, "dev": {"accuracy": 0.9}}; their curves are called
    "dev accuracy". The first and the last point of a curve are always among those that are kept.

    >>> curves([{"step": 1, "loss": 2.0}, {"step": 1, "dev": {"accuracy": 0.5}}])
    {'loss': [[1, 2.0]], 'dev accuracy': [[1, 0.5]]}
    """
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if not _is_step(row.get("step")):
            continue
        for name, value in _flat(row).items():
            if name != "step" and _is_number(value):
                found.setdefault(name, {})[row["step"]] = float(value)  # a run that went on writes some steps again
    points = {name: sorted(line.items()) for name, line in found.items()}
    return {name: [[int(x), y] for x, y in thin(line, POINTS)] for name, line in points.items()}


def last_loss(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The loss of the last step that noted one; its value is None where it was no number, as in a run that diverged."""
    noted = [row for row in rows if "loss" in row and _is_step(row.get("step"))]
    if not noted:
        return None
    last = max(reversed(noted), key=lambda row: row["step"])
    return {"step": last["step"], "value": last["loss"] if _is_number(last["loss"]) else None}


def scores(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scores of the last evaluation on held-out data, the task's main score first, each with its step."""
    dev = [row for row in rows if isinstance(row.get("dev"), dict) and _is_step(row.get("step"))]
    if not dev:
        return []
    last = max(
        reversed(dev), key=lambda row: row["step"]
    )  # a step that was written again counts as it was written last
    return [{"name": n, "value": v, "step": last["step"]} for n, v in last["dev"].items() if _is_number(v)]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
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
