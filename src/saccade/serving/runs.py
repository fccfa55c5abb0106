"""The training runs of a folder, for comparison on the page: scores, curves, reports, model cards and predictions."""

import os
from pathlib import Path
from typing import Any

from saccade.errors import UsageError
from saccade.render.page import CodeBlock, Section, render_page
from saccade.serving.report_parser import parse_samples
from saccade.training.runs import RunInfo, find_runs, list_runs
from saccade.training.runs.curves import (
    METRICS_FILE,
    collect_curves,
    find_last_loss,
    find_last_scores,
    is_inside_run,
    is_step,
    read_metrics,
)

MAX_RUNS = 200  # per folder
CARD_FILES = ("card.html", "model/README.md")
MAX_PAGE_BYTES = 2**26  # of a report or model card


class RunFolder:
    """A folder of runs; other entries of the folder are ignored."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def list_runs(self) -> list[dict[str, Any]]:
        """All runs with name, task, model, scores and curves, the newest first."""
        if self.folder is None or not self.folder.is_dir():
            return []
        return [_describe_run(info) for info in list_runs(self.folder)[:MAX_RUNS]]

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
        paths = self._find_runs()
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

    def _find_runs(self) -> dict[str, Path]:
        return {} if self.folder is None or not self.folder.is_dir() else find_runs(self.folder)


def _describe_run(info: RunInfo) -> dict[str, Any]:
    """A run as the page shows it: what `saccade.list_runs` knows of it, with its curves, loss and pages."""
    path, records = info.path, list(read_metrics(info.path / METRICS_FILE))
    facts = info.as_dict()
    del facts["path"], facts["settings"]
    return {
        **facts,
        "task": info.task or None,
        "model": info.model or None,
        "score": info.describe_score(),
        "size": info.describe_size(),
        "state": info.describe_state(),
        "steps": max((row["step"] for row in records if is_step(row.get("step"))), default=info.step),
        "last_loss": find_last_loss(records),
        "curves": collect_curves(records),
        "last_scores": find_last_scores(records),
        "has_report": os.path.isfile(path / "report.html") and is_inside_run(path / "report.html", path),
        "has_card": any(os.path.isfile(path / name) and is_inside_run(path / name, path) for name in CARD_FILES),
    }
