"""The runs of a folder, for the page that compares them: their curves, reports, cards and answers."""

import json
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

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
                rows.append(json.loads(line))
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
        "curves": curves(rows),
        "report": (path / "report.html").is_file(),
        "card": any((path / name).is_file() for name in ("card.html", "model/README.md")),
    }


def curves(rows: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """Of every number that was noted, the points (step, value), thinned to a few hundred."""
    found: dict[str, list[list[float]]] = {}
    for row in rows:
        step = row.get("step")
        if not isinstance(step, int):
            continue
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(name, []).append([step, float(value)])
    return {name: points[:: max(1, len(points) // POINTS)] for name, points in found.items()}
