"""Rivals that take turns: each lives in a process of its own, loads once, and works when it is asked to.

A machine that slows down for a while slows all rivals alike, so ratios from one round mean more than two times do.
The two sides talk in lines of JSON; what a rival's libraries print goes to its standard error.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Found = dict[str, Any]


class RivalFailed(Exception):
    """A rival cannot go on; the words say why."""


class Rival:
    """A process that says once what it is, and then answers each line that it is sent."""

    def __init__(self, name: str, command: Sequence[str], *, threads: int = 0, limit: float = 600.0):
        self.name, self.limit = name, limit
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (lives as long as the process)
        given = {f"{one}_NUM_THREADS": str(threads) for one in ("OMP", "MKL", "RAYON") if threads}
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, encoding="utf-8",
            env={**os.environ, **given, "TOKENIZERS_PARALLELISM": "false"},
        )  # fmt: skip
        try:
            self.is_ready = self._hear()
        except RivalFailed:
            self.close()
            raise

    def turn(self, **asked: Any) -> Found:
        """Let it work once."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(asked), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise RivalFailed(f"{self.name}: {self._last()}") from None
        return self._hear()

    def close(self) -> None:
        """End the process; it has nothing that would have to be kept."""
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def _hear(self) -> Found:
        assert self._process.stdout is not None
        late = threading.Timer(self.limit, self._process.kill)
        late.start()
        line = self._process.stdout.readline()
        expired = not late.is_alive()
        late.cancel()
        if not line:
            self._process.wait()
            raise RivalFailed(f"{self.name}: {f'not done after {self.limit:g} s' if expired else self._last()}")
        found = json.loads(line)
        if "lost" in found:
            raise RivalFailed(f"{self.name}: {found['lost']}")
        return found

    def _last(self) -> str:
        """The last words of a process that ended."""
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return lines[-1] if lines else f"ended with code {self._process.wait()}"


def serve(begin: Callable[[], tuple[Found, Callable[..., Found]]]) -> None:
    """The side of the rival: `begin` loads, and gives what there is to say and what to do with each line."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print where they like
    try:
        said, work = begin()
        print(json.dumps(said), file=lines, flush=True)
        for line in sys.stdin:
            print(json.dumps(work(**json.loads(line))), file=lines, flush=True)
    except ModuleNotFoundError as error:
        print(json.dumps({"lost": f"{error.name} is not installed"}), file=lines, flush=True)
    except (Exception, MemoryError) as error:  # the other side reports it and goes on without us
        said = str(error).strip().splitlines() or [""]
        print(json.dumps({"lost": f"{type(error).__name__}: {said[0][:300]}"}), file=lines, flush=True)


def rounds(
    rivals: Sequence[Rival], count: int, asked: Callable[[Rival], Found], *, pause: float = 0.0
) -> Iterator[tuple[int, Rival, Found]]:
    """All rivals in turn, forwards and backwards, `count` times; one that is lost says so once and has no further turns.

    The threads of some go on waiting for work for a moment after a turn; `pause` lets them fall asleep.
    """
    going = list(rivals)
    for number in range(count):
        for rival in list(going) if number % 2 == 0 else list(reversed(going)):
            time.sleep(pause)
            try:
                found = rival.turn(**asked(rival))
            except RivalFailed as error:
                going.remove(rival)
                found = {"lost": str(error)}
            yield number, rival, found


def spread(values: Iterable[float], digits: int = 3) -> dict[str, float]:
    """The median, and the quartiles; of fewer than eight values the extremes."""
    found = sorted(values)
    low, high = found[0], found[-1]
    if len(found) >= 8:
        low, _, high = statistics.quantiles(found)
    numbers = {"median": statistics.median(found), "low": low, "high": high}
    return {name: round(value, digits) for name, value in numbers.items()} | {"rounds": len(found)}
