"""Worker processes for benchmarks: each loads one library once, then runs one measurement for each request.

The libraries under comparison are measured alternately, so that a temporary slowdown of the machine affects all of them, and
ratios within one round are more reliable than two separate timings. Requests and responses are lines of JSON; whatever a
library prints goes to the standard error of its worker.
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

Response = dict[str, Any]


class WorkerFailed(Exception):
    """A worker could not load, failed or timed out; the message says why."""


class Worker:
    """A process that sends one response when it has loaded (`load_response`), and one for each request."""

    def __init__(self, name: str, command: Sequence[str], *, threads: int = 0, timeout: float = 600.0):
        self.name, self.timeout = name, timeout
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (lives as long as the process)
        thread_counts = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "MKL", "RAYON") if threads}
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True,
            encoding="utf-8", env={**os.environ, **thread_counts, "TOKENIZERS_PARALLELISM": "false"},
        )  # fmt: skip
        try:
            self.load_response = self._receive()
        except WorkerFailed:
            self.close()
            raise

    def request(self, **arguments: Any) -> Response:
        """Run one measurement with these arguments."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(arguments), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise WorkerFailed(f"{self.name}: {self._last_error()}") from None
        return self._receive()

    def close(self) -> None:
        """Kill the process; it has no state worth saving."""
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def _receive(self) -> Response:
        assert self._process.stdout is not None
        timer = threading.Timer(self.timeout, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timed_out = not timer.is_alive()
        timer.cancel()
        if not line:
            self._process.wait()
            reason = f"timed out after {self.timeout:g} s" if timed_out else self._last_error()
            raise WorkerFailed(f"{self.name}: {reason}")
        response = json.loads(line)
        if "error" in response:
            raise WorkerFailed(f"{self.name}: {response['error']}")
        return response

    def _last_error(self) -> str:
        """The last line that an exited process wrote to its standard error."""
        self._stderr.seek(0)
        lines = self._stderr.read().strip().splitlines()
        return lines[-1] if lines else f"exited with code {self._process.wait()}"


def serve(load: Callable[[], tuple[Response, Callable[..., Response]]]) -> None:
    """Run in the worker process: `load` returns the first response and the function that answers each request."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to stdout, which would break the protocol
    try:
        response, measure = load()
        print(json.dumps(response), file=output, flush=True)
        for line in sys.stdin:
            print(json.dumps(measure(**json.loads(line))), file=output, flush=True)
    except ModuleNotFoundError as error:
        print(json.dumps({"error": f"{error.name} is not installed"}), file=output, flush=True)
    except (Exception, MemoryError) as error:  # the parent process reports it and continues without this worker
        lines = str(error).strip().splitlines() or [""]
        print(json.dumps({"error": f"{type(error).__name__}: {lines[0][:300]}"}), file=output, flush=True)


def run_rounds(
    workers: Sequence[Worker], count: int, make_request: Callable[[Worker], dict[str, Any]], *, pause: float = 0.0
) -> Iterator[tuple[int, Worker, Response]]:
    """Send one request to every worker in each round, in alternating order; a worker that fails is dropped.

    The response of a failed worker is `{"error": message}`. Some libraries keep threads spinning for a moment after a request;
    `pause` (seconds) lets them go to sleep.
    """
    active = list(workers)
    for number in range(count):
        for worker in list(active) if number % 2 == 0 else list(reversed(active)):
            time.sleep(pause)
            try:
                response = worker.request(**make_request(worker))
            except WorkerFailed as error:
                active.remove(worker)
                response = {"error": str(error)}
            yield number, worker, response


def spread(values: Iterable[float], digits: int = 3) -> dict[str, float]:
    """The median and the quartiles; of fewer than eight values, the median and the extremes."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if len(ordered) >= 8:
        low, _, high = statistics.quantiles(ordered)
    numbers = {"median": statistics.median(ordered), "low": low, "high": high}
    return {name: round(value, digits) for name, value in numbers.items()} | {"rounds": len(ordered)}
