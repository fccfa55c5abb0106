"""What is known of one run from its files, without loading its model: task, scores, time, size, state and settings."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from saccade.errors import ResourceError
from saccade.metrics import Score
from saccade.models.io.model_dir import find_tensor_files
from saccade.models.io.safetensors_header import read_header
from saccade.notebook import html_table
from saccade.tasks.runs.checkpoint_facts import read_checkpoint_facts, training_minutes
from saccade.tasks.runs.run import RESULT_FILE, Run
from saccade.tasks.runs.stored_config import CONFIG_FILE
from saccade.training.checkpoint.run_lock import check_unlocked
from saccade.training.runs.curves import (
    METRICS_FILE,
    find_last_scores,
    is_inside_run,
    is_step,
    read_metrics,
)

MAX_PROBLEM_CHARACTERS = 120
SETTINGS_TABLES = ("model", "task", "train")
READ_ERRORS = (ValueError, OSError, TypeError, KeyError, AttributeError, RecursionError)  # of files that others wrote
RunState = Literal["finished", "running", "stopped", "damaged"]


@dataclass(frozen=True)
class RunInfo:
    """One run: its task, scores, time, size, state and settings; what its files do not say is empty or None.

    >>> info = RunInfo(Path("runs/a"), "a", task="label", state="stopped", step=40)
    >>> print(info)
    a: label, stopped at step 40
    """

    path: Path
    name: str  # the path below the listed folder
    task: str = ""
    model: str = ""  # the pretrained model, or the family of a new one
    state: RunState = "stopped"
    step: int | None = None
    stop_reason: str = ""
    scores: Mapping[str, Sequence[Score]] = field(default_factory=dict)  # by split, the main score of the task first
    minutes: float | None = None  # of training
    parameters: int | None = None
    weight_bytes: int | None = None  # size of the weight files
    modified: datetime | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # such as train.lr, and the data
    problem: str = ""  # what is damaged

    @property
    def split(self) -> str:
        """The split of the main score: test, or dev if there is no test data; "" without a score."""
        return next((name for name in ("test", *self.scores) if self.scores.get(name)), "")

    @property
    def score(self) -> Score | None:
        """The main score on held-out data; its interval is not a number until training has finished."""
        return self.scores[self.split][0] if self.split else None

    def describe_state(self) -> str:
        """The state in words, such as `stopped at step 40`."""
        if self.state == "damaged":
            return f"damaged: {self.problem}"
        if self.state == "finished" or self.step is None:
            return self.state
        return f"{self.state}{' at' if self.state == 'stopped' else ','} step {self.step:,}"

    def describe_score(self) -> str:
        """The main score with its split, and its confidence interval once training has finished."""
        score = self.score
        if score is None:
            return ""
        _, value, interval, *_ = score.cells()
        known = f" ({interval})" if math.isfinite(score.low) and math.isfinite(score.high) else ""
        return f"{self.split} {score.name} {value}{known}"

    def describe_size(self) -> str:
        """The number of parameters and the size of the weight files, such as `1,204,736, 4.8 MB`."""
        count = "" if self.parameters is None else f"{self.parameters:,}"
        size = "" if self.weight_bytes is None else f"{self.weight_bytes / 1e6:,.1f} MB"
        return ", ".join(filter(None, (count, size)))

    def as_dict(self) -> dict[str, Any]:
        """All facts as plain values, as `saccade runs --json` prints them; numbers that are not finite are None."""
        score = self.score
        finite = lambda value: value if value is not None and math.isfinite(value) else None
        return {
            "name": self.name,
            "path": os.fsencode(self.path).decode("utf-8", "replace"),
            "task": self.task,
            "model": self.model,
            "state": self.state,
            "step": self.step,
            "stop_reason": self.stop_reason,
            "split": self.split,
            "metric": "" if score is None else score.name,
            "value": None if score is None else finite(score.value),
            "low": None if score is None else finite(score.low),
            "high": None if score is None else finite(score.high),
            "examples": None if score is None or not score.count else score.count,
            "minutes": None if self.minutes is None else round(self.minutes, 3),
            "parameters": self.parameters,
            "weight_bytes": self.weight_bytes,
            "modified": None if self.modified is None else self.modified.isoformat(timespec="seconds"),
            "problem": self.problem,
            "settings": dict(self.settings),
        }

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(filter(None, (self.task, self.describe_score(), self.describe_state())))}"

    def _repr_html_(self) -> str:
        return html_table(("", ""), list(self.as_dict().items()), caption=f"Run {self.name}")


def read_run_info(path: str | Path, name: str = "") -> RunInfo:
    """Read what the files of a run say; a damaged file is named in `problem` and hides only what it contains."""
    path, problems = Path(path), []
    settings, result, scores = {}, {}, {}
    run = Run(path)
    try:
        settings = run.settings
    except READ_ERRORS as error:
        problems.append(_shorten(error, path))
    try:
        result, scores = run.result, check_scores(run.scores)
    except READ_ERRORS as error:
        problems.append(_shorten(error, path))
    checkpoint_step, facts = read_checkpoint_facts(path)
    weight_bytes, parameters, problem = _read_weights(path, is_required=bool(result))
    problems += [problem] if problem else []
    is_finished = bool(result) and (checkpoint_step or 0) <= _whole_number(result.get("steps"))
    step = _whole_number(result.get("steps")) if is_finished else checkpoint_step
    if not is_finished:
        scores, last_step = _read_last_scores(path)
        step = last_step if step is None else step
    table = settings.get("run", {})
    return RunInfo(
        path,
        name or display_name(path),
        table.get("task", ""),
        table.get("model") or table.get("family") or "",
        "running" if _is_running(path) else "damaged" if problems else "finished" if is_finished else "stopped",
        step,
        str(result.get("stop_reason", "")) if is_finished else "",
        scores,
        training_minutes(facts),
        _whole_number(result.get("parameters")) or parameters,
        weight_bytes,
        _modified_at(path),
        flatten_settings(settings),
        "; ".join(problems),
    )


def display_name(path: Path) -> str:
    """The name of a directory; bytes that are not valid UTF-8 become question marks."""
    return path.name.encode("utf-8", "replace").decode()


def flatten_settings(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of a run by dotted name.

    >>> flatten_settings({"run": {"task": "label", "data": ["a/b.csv"]}, "train": {"lr": 0.001}})
    {'data': 'b.csv', 'train.lr': 0.001}
    """
    data = tables.get("run", {}).get("data", [])
    flat = {"data": ", ".join(Path(file).name for file in data)} if data else {}
    for table in SETTINGS_TABLES:
        flat |= {f"{table}.{name}": value for name, value in tables.get(table, {}).items() if name != "labels"}
    return flat


def check_scores(scores: Mapping[str, Sequence[Score]]) -> Mapping[str, Sequence[Score]]:
    """The scores unchanged; raises ValueError for a value of the wrong type."""
    for score in (score for split in scores.values() for score in split):
        numbers = (score.value, score.low, score.high, score.count)
        if not isinstance(score.name, str) or any(
            isinstance(x, bool) or not isinstance(x, int | float) for x in numbers
        ):
            raise ValueError(f"{RESULT_FILE}: {score.name!r:.40} is not a score")
    return scores


def _shorten(error: BaseException, path: Path) -> str:
    """The message of an error without the path of the run, cut to a line."""
    text = f"{error}".replace(f"{path.resolve()}{os.sep}", "").replace(f"{path}{os.sep}", "")
    text = " ".join(text.split()) or type(error).__name__
    text = text if isinstance(error, ValueError | OSError) else f"{RESULT_FILE} is not a result of training ({text})"
    return text if len(text) <= MAX_PROBLEM_CHARACTERS else text[: MAX_PROBLEM_CHARACTERS - 3] + "..."


def _whole_number(value: object) -> int:
    return value if is_step(value) and isinstance(value, int) else 0


def _is_running(path: Path) -> bool:
    try:
        check_unlocked(path)
    except ResourceError:
        return True
    return False


def _read_weights(path: Path, *, is_required: bool) -> tuple[int | None, int | None, str]:
    """Size in bytes and number of parameters of the weight files, and what is wrong with them."""
    directory = path / "model"
    if not directory.is_dir():
        return None, None, "model/ is missing, although training has finished" if is_required else ""
    try:
        files = find_tensor_files(directory)
        headers = [read_header(file) for file in files]
    except READ_ERRORS as error:
        return None, None, _shorten(error, path)
    count = sum(math.prod(entry.shape) for header in headers for entry in header.values())
    return sum(file.stat().st_size for file in files), count, ""


def _read_last_scores(path: Path) -> tuple[dict[str, Sequence[Score]], int | None]:
    """The scores of the last evaluation during training, which have no interval yet, and the last step."""
    rows = list(read_metrics(path / METRICS_FILE))
    last = [Score(row["name"], row["value"], math.nan, math.nan, 0) for row in find_last_scores(rows)]
    steps = [row["step"] for row in rows if is_step(row.get("step"))]
    return {"dev": last} if last else {}, max(steps, default=None)


def _modified_at(path: Path) -> datetime | None:
    """When the run was last written to: the newest of its settings, metrics and result."""
    times = []
    for name in (CONFIG_FILE, METRICS_FILE, RESULT_FILE):
        with suppress(OSError):
            times += [(path / name).stat().st_mtime] if is_inside_run(path / name, path) else []
    return datetime.fromtimestamp(max(times)).astimezone() if times else None
