"""What a launched process is, as its environment tells, and the words it leaves when it ends, for its launcher to read.

A launcher names a directory in EXIT_REPORT_VARIABLE. Words that are final end the run with their code: a process that is
started again and finds them ends at once. Words that are not final say why a process was given up; it may be started again.
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

    exit_code: int  # with which it, and all of the run, ends
    text: str = ""
    is_final: bool = True


def get_rank() -> int:
    """Which process of a run this is, from 0."""
    return int(os.environ.get("RANK", "0"))


def get_world_size() -> int:
    """How many processes a run has."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_launched() -> bool:
    """Whether somebody waits for last words."""
    return EXIT_REPORT_VARIABLE in os.environ


def stop_with_launcher(poll_seconds: float = 0.5, grace_seconds: float = 300.0) -> None:
    """Stop this process soon after its launcher has died, however it died, since nobody waits for it any more.

    It is told to stop as a user would, so that it saves what it has learnt; if that does not end it in time, it is killed.
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
    """How often the launcher has started this process anew, and how often it may."""
    return tuple(int(os.environ.get(f"TORCHELASTIC_{name}", "0")) for name in ("RESTART_COUNT", "MAX_RESTARTS"))  # type: ignore[return-value]


def write_exit_report(report: ExitReport) -> None:
    """Say why this process ends: to its launcher, or to a person where there is none."""
    if not is_launched():
        if report.text:
            print(report.text, file=sys.stderr, flush=True)
        return
    told = vars(report) | {"rank": get_rank()}
    path = Path(os.environ[EXIT_REPORT_VARIABLE]) / f"{time.time_ns():020d}-{get_rank()}.json"  # in the order of time
    path.with_suffix(".part").write_text(json.dumps(told), encoding="utf-8")
    path.with_suffix(".part").rename(path)


def read_exit_report(directory: str | Path | None = None) -> ExitReport | None:
    """The first final words in a directory, or else the last of the others; None where nobody has said anything."""
    directory = directory or os.environ.get(EXIT_REPORT_VARIABLE)
    if not directory:
        return None
    told = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(directory).glob("*.json"))]
    said = [ExitReport(one["exit_code"], one["text"], one["is_final"]) for one in told]
    final = [words for words in said if words.is_final]
    # an error explains a stop: whoever was told to stop because another failed has nothing to add
    causes = [words for words in final if words.text] or final or said[-1:]
    return causes[0] if causes else None
