"""`saccade runs DIR`: the runs of a folder with their scores, time, size, state and the settings in which they differ."""

import json as json_text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from saccade.cli.argument_types import optional_argument

if TYPE_CHECKING:
    from saccade.training.runs import RunList


def main(
    folder: Annotated[Path, tyro.conf.Positional, optional_argument("[DIR]")] = Path("runs"),
    *,
    sort: Literal["date", "score"] = "date",
    csv: Annotated[str, optional_argument("FILE|-")] = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """List the runs in a directory and its subdirectories, with their scores, training time, size, state and settings.

    saccade runs

    saccade runs experiments --sort score

    saccade runs --csv runs.csv

    The score is measured on the test data or, without test data, on the dev data, and has a 95 % confidence interval. An
    unfinished run shows its latest evaluation, without an interval; a damaged run is listed with the reason.

    Args:
        folder: Directory with runs, or a single run; default: runs.
        sort: Sort order: by date, newest first, or by score, best first within each task and metric.
        csv: Write the list as CSV to a file, or to standard output (-), with a column for each setting that differs between runs.
        json: Print the list as JSON, with all settings of every run.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("runs", lambda: _print_runs(folder, sort, csv, json))


def _print_runs(folder: Path, sort: Literal["date", "score"], csv: str, as_json: bool) -> int:
    from saccade.errors import UsageError
    from saccade.training.runs import list_runs

    if csv == "-" and as_json:
        raise UsageError("--csv - and --json both print to standard output; use one of them.")
    runs = list_runs(folder, sort=sort)
    if csv == "-":
        sys.stdout.write(runs.to_csv())
        return 0
    if csv:
        Path(csv).write_text(runs.to_csv(), encoding="utf-8")
    print(json_text.dumps(runs.as_dicts(), ensure_ascii=False, default=str) if as_json else _format_runs(runs, folder))
    if csv and not as_json:
        print(f"written    {csv}")
    return 0


def _format_runs(runs: "RunList", folder: Path) -> str:
    if runs:
        return repr(runs)
    return f"There are no runs in {folder}; saccade train writes its runs into runs/, or into the directory of --out."
