"""Start-up: from the shell's prompt to the first new token, our command beside the pipeline of `transformers`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from saccade.studies.turns import Found, Lost, spread

TEXT = "12 13 14"
PIPELINE = (
    "import sys; from transformers import pipeline; "
    "print(pipeline('text-generation', model=sys.argv[1])(sys.argv[2], max_new_tokens=1, do_sample=False))"
)


def commands(directory: Path, text: str = TEXT) -> dict[str, list[str]]:
    """What a user types for one new token after a text."""
    ours = ["-m", "saccade", "generate", str(directory), text, "--length", "1", "--temperature", "0"]
    theirs = ["-W", "ignore", "-c", PIPELINE, str(directory), text]
    return {"saccade": [sys.executable, *ours], "transformers": [sys.executable, *theirs]}


def starts(directory: Path, count: int, told: Callable[[str], None] = lambda line: None) -> Found:
    """Seconds of each, taking turns; the first turn fills the file cache and does not count."""
    asked, found = commands(directory), {}
    for number in range(count + 1):
        for who in asked if number % 2 else reversed(asked):
            seconds = _ran(who, asked[who])
            if number:
                found.setdefault(who, []).append(seconds)
                told(f"round {number}: {who}, {seconds:.2f} s")
    ratios = [theirs / ours for ours, theirs in zip(found["saccade"], found["transformers"], strict=True)]
    return {
        "seconds": {who: spread(seconds) for who, seconds in found.items()},
        "times as fast": {"saccade": {"transformers": spread(ratios)}},
    }


def _ran(who: str, command: list[str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if done.returncode:
        raise Lost(f"{who}: {(done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1]}")
    return time.perf_counter() - begin
