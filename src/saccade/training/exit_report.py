"""Exit reports: how a process of distributed training tells its launcher why it ended; also its rank and world size.

The launcher names a directory in EXIT_REPORT_VARIABLE. A final report ends the run with its exit code: a process that is
restarted and finds one exits at once. A report that is not final says why a process gave up; it may be restarted.
"""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

EXIT_REPORT_VARIABLE = "SACCADE_EXIT_REPORT"


@dataclass(frozen=True)
class ExitReport:
    """Why a process ended."""

    exit_code: int  # of this process and of the whole run
    text: str = ""
    is_final: bool = True


def get_rank() -> int:
    """The rank of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def get_world_size() -> int:
    """The number of processes of the run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_launched() -> bool:
    """Whether a launcher started this process and reads its exit report."""
    return EXIT_REPORT_VARIABLE in os.environ


def stop_with_launcher(poll_seconds: float = 0.5, grace_seconds: float = 300.0) -> None:
    """Stop this process soon after its launcher has died, in whatever way it died.

    It receives SIGTERM, so that it saves a checkpoint; if it is still running after `grace_seconds`, it is killed.
    """
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(poll_seconds)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    if is_launched():
        threading.Thread(target=watch, name="stop with launcher", daemon=True).start()


def get_restart_counts() -> tuple[int, int]:
    """How often the launcher has restarted this process, and the maximum number of restarts."""
    return tuple(int(os.environ.get(f"TORCHELASTIC_{name}", "0")) for name in ("RESTART_COUNT", "MAX_RESTARTS"))  # type: ignore[return-value]


def write_exit_report(report: ExitReport) -> None:
    """Report why this process ends: to its launcher, or on stderr if there is none."""
    if not is_launched():
        if report.text:
            print(report.text, file=sys.stderr, flush=True)
        return
    fields = vars(report) | {"rank": get_rank()}
    path = Path(os.environ[EXIT_REPORT_VARIABLE]) / f"{time.time_ns():020d}-{get_rank()}.json"  # sorts by time
    path.with_suffix(".part").write_text(json.dumps(fields), encoding="utf-8")
    path.with_suffix(".part").rename(path)


def read_exit_report(directory: str | Path | None = None) -> ExitReport | None:
    """The first final report in a directory, or else the last of the others; None if there are no reports."""
    directory = directory or os.environ.get(EXIT_REPORT_VARIABLE)
    if not directory:
        return None
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(directory).glob("*.json"))]
    reports = [ExitReport(row["exit_code"], row["text"], row["is_final"]) for row in rows]
    final = [report for report in reports if report.is_final]
    # a report with an error comes first: a process that was stopped because another one failed has an empty text
    causes = [report for report in final if report.text] or final or reports[-1:]
    return causes[0] if causes else None
