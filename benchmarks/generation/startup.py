"""Startup time: from running the command to the first new token, compared with a `pipeline` of transformers."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.generation.summary import SACCADE, ratio
from benchmarks.worker import Response, WorkerFailed, spread

TEXT = "12 13 14"
PIPELINE = (
    "import sys; from transformers import pipeline; "
    "print(pipeline('text-generation', model=sys.argv[1])(sys.argv[2], max_new_tokens=1, do_sample=False))"
)


def startup_commands(directory: Path, text: str = TEXT) -> dict[str, list[str]]:
    """What a user runs to generate one token after a text."""
    ours = ["-m", "saccade", "generate", str(directory), text, "--max-new-tokens", "1", "--temperature", "0"]
    theirs = ["-W", "ignore", "-c", PIPELINE, str(directory), text]
    return {SACCADE: [sys.executable, *ours], "transformers": [sys.executable, *theirs]}


def measure_startup(
    directory: Path, baselines: Sequence[str], count: int, log: Callable[[str], None] = lambda line: None
) -> Response:
    """Seconds of each command, run alternately; the first round, which fills the file cache, is discarded.

    A command that fails is not run again and is listed under `missing`.
    """
    commands = startup_commands(directory)
    times: dict[str, list[float]] = {name: [] for name in commands if name == SACCADE or name in baselines}
    missing: dict[str, str] = {}
    for number in range(count + 1):
        for name in list(times) if number % 2 else list(reversed(times)):
            try:
                seconds = _run_timed(name, commands[name])
            except WorkerFailed as error:
                del times[name]
                missing[name] = str(error).removeprefix(f"{name}: ")
                log(f"failed: {error}")
                continue
            if number:
                times[name].append(seconds)
                log(f"round {number}: {name}, {seconds:.2f} s")
    ours, others = times.get(SACCADE), {name: seconds for name, seconds in times.items() if name != SACCADE}
    return {
        "seconds": {name: spread(seconds) for name, seconds in times.items()},
        "times as fast": {SACCADE: {name: ratio(seconds, ours) for name, seconds in others.items()}} if ours else {},
        "missing": missing,
    }


def _run_timed(name: str, command: list[str]) -> float:
    start = time.perf_counter()
    process = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise WorkerFailed(f"{name}: {lines[-1]}")
    return time.perf_counter() - start
