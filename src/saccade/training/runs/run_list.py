"""`saccade.list_runs("runs")`: the runs of a folder as a sequence that prints as a table and turns into a DataFrame."""

import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from saccade.errors import UsageError
from saccade.keywords import check_keywords
from saccade.notebook import html_table
from saccade.suggest import suggest
from saccade.tasks.runs.run import RESULT_FILE
from saccade.tasks.runs.stored_config import CONFIG_FILE
from saccade.training.runs.curves import METRICS_FILE
from saccade.training.runs.info import RunInfo, display_name, read_run_info

if TYPE_CHECKING:
    import pandas as pd

MAX_FOLDER_DEPTH = 4  # levels of folders below the listed one
RUN_FOLDERS = ("checkpoints", "model", "tokens")  # directories of a run that contain no other runs
RUN_COLUMNS = ("run", "task", "score", "minutes", "parameters, size", "state", "settings that differ")
SORT_KEYS = ("date", "score")


class RunList(Sequence[RunInfo]):
    """The runs of a folder, in order.

    >>> print(RunList([RunInfo(Path("runs/a"), "a", task="label", state="stopped", step=40)]))
    run  task   score  minutes  parameters, size  state               settings that differ
    a    label                                    stopped at step 40
    """

    def __init__(self, runs: Sequence[RunInfo]):
        self._runs = list(runs)
        self.settings: tuple[str, ...] = compare_settings(
            self._runs
        )  # the names of the settings in which the runs differ

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> RunInfo: ...
    @overload
    def __getitem__(self, index: slice) -> "RunList": ...
    def __getitem__(self, index: int | slice) -> "RunInfo | RunList":
        return RunList(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def as_dicts(self) -> list[dict[str, Any]]:
        """Each run as a dictionary, as `saccade runs --json` prints it."""
        return [run.as_dict() for run in self]

    def to_rows(self) -> list[dict[str, Any]]:
        """Each run as a flat record with a column for every setting in which the runs differ."""
        rows = []
        for run in self:
            row = run.as_dict()
            settings = row.pop("settings")
            rows.append(row | {name: settings.get(name) for name in self.settings})
        return rows

    def to_pandas(self) -> "pd.DataFrame":
        """A pandas DataFrame with a row for each run and a column for every setting in which the runs differ."""
        try:
            import pandas
        except ImportError:
            hint = "Install it with pip install pandas, or use to_rows(), which returns dictionaries."
            raise UsageError(f"to_pandas needs pandas. {hint}") from None
        return pandas.DataFrame(self.to_rows())

    def to_csv(self) -> str:
        """The runs as CSV, with the columns of `to_rows`."""
        rows = self.to_rows()
        text = io.StringIO()
        if rows:
            writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return text.getvalue()

    def cells(self) -> list[tuple[str, ...]]:
        """The cells of the table that is printed, a row for each run."""
        return [
            (
                run.name,
                run.task,
                run.describe_score(),
                "" if run.minutes is None else f"{run.minutes:.1f}",
                run.describe_size(),
                run.state if run.problem else run.describe_state(),
                self._describe_settings(run),
            )
            for run in self
        ]

    def _describe_settings(self, run: RunInfo) -> str:
        values = [(name.rpartition(".")[2], run.settings[name]) for name in self.settings if name in run.settings]
        return ", ".join(f"{name} {_format_setting(value)}" for name, value in values)

    def __repr__(self) -> str:
        rows = [RUN_COLUMNS, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [f"{run.name}: {run.problem}" for run in self if run.problem]
        return "\n".join(lines) if len(self) else "no runs"

    def _repr_html_(self) -> str:
        return html_table(RUN_COLUMNS, self.cells(), caption=f"{len(self):,} runs")


@check_keywords
def list_runs(folder: str | Path = "runs", *, sort: Literal["date", "score"] = "date") -> RunList:
    """List the runs of a folder, also those in folders below it: task, score with confidence interval, time, size and state.

        saccade.list_runs("runs", sort="score").to_pandas()

    A damaged run is listed with what is wrong with it.

    Args:
        folder: The folder, or a single run.
        sort: "date" lists the newest run first, "score" the best run of each task and metric.
    """
    if sort not in SORT_KEYS:
        raise UsageError(f"sort is {sort!r}; {suggest(str(sort), SORT_KEYS)}")
    if not Path(folder).is_dir():
        raise UsageError(f"{folder}: there is no such directory; name a folder of runs, such as runs.")
    runs = [read_run_info(path, name) for name, path in find_runs(folder).items()]
    return RunList(sorted(runs, key=_score_key if sort == "score" else _date_key))


def find_runs(folder: str | Path) -> dict[str, Path]:
    """The directories of the runs in a folder and in folders below it, by their path below the folder."""
    folder = Path(folder)
    if is_run_directory(folder):
        return {display_name(folder.resolve()): folder}
    found: dict[str, Path] = {}
    for path in _walk(folder, MAX_FOLDER_DEPTH):
        if is_run_directory(path):
            found[path.relative_to(folder).as_posix().encode("utf-8", "replace").decode()] = path
    return found


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        follow = depth == MAX_FOLDER_DEPTH  # only links in the folder itself, so that no loop of links is followed
        entries = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=follow))
    except OSError:  # such as a folder that may not be read
        return
    inside = RUN_FOLDERS if is_run_directory(folder) else ()
    for name in entries:
        if not name.startswith(".") and name not in inside:
            yield folder / name
            if depth > 1:
                yield from _walk(folder / name, depth - 1)


def is_run_directory(path: Path) -> bool:
    """Whether training has written to a directory: its settings, its metrics or its result."""
    return any(os.path.isfile(path / name) for name in (CONFIG_FILE, METRICS_FILE, RESULT_FILE))


def compare_settings(runs: Sequence[RunInfo]) -> tuple[str, ...]:
    """The names of the settings that have different values in two runs of one task, in the order of the settings."""
    values: dict[tuple[str, str], list[Any]] = {}
    for run in runs:
        for name, value in run.settings.items():
            known = values.setdefault((run.task, name), [])
            known += [value] if value not in known else []
    return tuple(dict.fromkeys(name for (_, name), known in values.items() if len(known) > 1))


def _format_setting(value: Any) -> str:
    """
    >>> _format_setting(0.001), _format_setting(True), _format_setting({"a": 1})
    ('0.001', 'true', "{'a': 1}")
    """
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _date_key(run: RunInfo) -> tuple[float, str]:
    return -run.modified.timestamp() if run.modified else 0.0, run.name


def _score_key(run: RunInfo) -> tuple[Any, ...]:
    score = run.score
    if score is None:
        return 1, run.task, run.name
    value = -score.value if score.better == "higher" else score.value
    return 0, run.task, score.name, math.isnan(score.low), math.isnan(value), value, run.name
