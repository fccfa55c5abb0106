"""What a launched process is, as its environment tells, and the words it leaves when it ends, for its launcher to read.

A launcher names a directory in LAST_WORDS. Words that are final end the run with their code: a process that is started again
and finds them ends at once. Words that are not final say why a process was given up; it may be started again.
"""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

LAST_WORDS = "SACCADE_LAST_WORDS"


@dataclass(frozen=True)
class Words:
    """Why a process ended."""

    code: int  # with which it, and all of the run, ends
    text: str = ""
    final: bool = True


def rank() -> int:
    """Which process of a run this is, from 0."""
    return int(os.environ.get("RANK", "0"))


def size() -> int:
    """How many processes a run has."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_launched() -> bool:
    """Whether somebody waits for last words."""
    return LAST_WORDS in os.environ


def stop_with_launcher(every: float = 0.5, patience: float = 300.0) -> None:
    """Stop this process soon after its launcher has died, however it died, since nobody waits for it any more.

    It is told to stop as a user would, so that it saves what it has learnt; if that does not end it in time, it is killed.
    """
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(every)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
        os.kill(os.getpid(), signal.SIGKILL)

    if is_launched():
        threading.Thread(target=watch, name="stop with launcher", daemon=True).start()


def started_again() -> tuple[int, int]:
    """How often the launcher has started this process anew, and how often it may."""
    return tuple(int(os.environ.get(f"TORCHELASTIC_{name}", "0")) for name in ("RESTART_COUNT", "MAX_RESTARTS"))  # type: ignore[return-value]


def leave(words: Words) -> None:
    """Say why this process ends: to its launcher, or to a person where there is none."""
    if not is_launched():
        if words.text:
            print(words.text, file=sys.stderr, flush=True)
        return
    told = vars(words) | {"rank": rank()}
    path = Path(os.environ[LAST_WORDS]) / f"{time.time_ns():020d}-{rank()}.json"  # in the order of time
    path.with_suffix(".part").write_text(json.dumps(told), encoding="utf-8")
    path.with_suffix(".part").rename(path)


def left(where: str | Path | None = None) -> Words | None:
    """The first final words in a directory, or else the last of the others; None where nobody has said anything."""
    where = where or os.environ.get(LAST_WORDS)
    if not where:
        return None
    told = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(where).glob("*.json"))]
    said = [Words(one["code"], one["text"], one["final"]) for one in told]
    final = [words for words in said if words.final]
    # an error explains a stop: whoever was told to stop because another failed has nothing to add
    causes = [words for words in final if words.text] or final or said[-1:]
    return causes[0] if causes else None
