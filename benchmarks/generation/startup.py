"""Start-up: from the shell's prompt to the first new token, our command beside the pipeline of `transformers`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.generation.summary import OURS, ratio
from benchmarks.rivals import Found, RivalFailed, spread

TEXT = "12 13 14"
PIPELINE = (
    "import sys; from transformers import pipeline; "
    "print(pipeline('text-generation', model=sys.argv[1])(sys.argv[2], max_new_tokens=1, do_sample=False))"
)


def commands(directory: Path, text: str = TEXT) -> dict[str, list[str]]:
    """What a user types for one new token after a text."""
    ours = ["-m", "saccade", "generate", str(directory), text, "--max-new-tokens", "1", "--temperature", "0"]
    theirs = ["-W", "ignore", "-c", PIPELINE, str(directory), text]
    return {OURS: [sys.executable, *ours], "transformers": [sys.executable, *theirs]}


def starts(
    directory: Path, rivals: Sequence[str], count: int, told: Callable[[str], None] = lambda line: None
) -> Found:
    """Seconds of each, taking turns; the first turn fills the file cache and does not count. Who fails once is missing."""
    found: dict[str, list[float]] = {who: [] for who in commands(directory) if who == OURS or who in rivals}
    missing: dict[str, str] = {}
    for number in range(count + 1):
        for who in list(found) if number % 2 else list(reversed(found)):
            try:
                seconds = _ran(who, commands(directory)[who])
            except RivalFailed as error:
                del found[who]
                missing[who] = str(error).removeprefix(f"{who}: ")
                told(f"without {error}")
                continue
            if number:
                found[who].append(seconds)
                told(f"round {number}: {who}, {seconds:.2f} s")
    ours, others = found.get(OURS), {who: seconds for who, seconds in found.items() if who != OURS}
    return {
        "seconds": {who: spread(seconds) for who, seconds in found.items()},
        "times as fast": {OURS: {who: ratio(seconds, ours) for who, seconds in others.items()}} if ours else {},
        "missing": missing,
    }


def _ran(who: str, command: list[str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if done.returncode:
        raise RivalFailed(f"{who}: {(done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1]}")
    return time.perf_counter() - begin
