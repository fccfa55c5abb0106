"""Compare the generation speed of several engines: one model, one workload, worker processes that are measured alternately.

Every round also measures the memory bandwidth with a plain read, so that the share of the bandwidth in use refers to that very
moment. If an engine has several precisions, each is tried first; the slow ones are dropped, and the fastest counts.

    python -m benchmarks.generation.compare serve '{"kind": "generate", "engine": "saccade", ...}'     # one worker
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.generation.engines import ENGINES
from benchmarks.generation.memory import MemoryMeter
from benchmarks.generation.summary import count_outputs, summarize_runs, throughput_unit
from benchmarks.generation.workload import Workload
from benchmarks.worker import Response, Worker, WorkerFailed, run_rounds, serve

TRIAL_TOKENS = 16  # new tokens of a trial, of which the fastest decides between precisions
TRIALS = 3
PAUSE = 0.25  # seconds between measurements
MAX_SLOWDOWN = 1.5  # a precision that is slower than the fastest of its engine by this factor is dropped
MEMORY = "memory"
BANDWIDTH_BYTES = 256 * 2**20  # many times the size of any cache


def load_engine(workload: Workload) -> tuple[Response, Callable[..., Response]]:
    """Run in the worker process: load the engine, and return the function that measures one round."""
    if workload.kind == MEMORY:
        return {}, _load_bandwidth_test(workload.threads)
    engine = ENGINES[workload.kind][workload.engine]
    for module in engine.modules:
        import_module(module)
    _warm_up_torch(workload.threads)
    start, meter = time.perf_counter(), MemoryMeter()
    precision, generate = engine.load(workload)
    load_seconds = time.perf_counter() - start

    def measure(new_tokens: int) -> Response:
        meter.start()
        start = time.perf_counter()
        outputs = generate(new_tokens)
        seconds = time.perf_counter() - start
        model_mb, peak_mb = (size / 1e6 for size in meter.stop())
        memory = {"model_mb": model_mb, "peak_mb": peak_mb}
        return {"seconds": seconds, "outputs": outputs, "precision": precision, **memory}

    return {"seconds": load_seconds}, measure


def _warm_up_torch(threads: int) -> None:
    """Let PyTorch, if it is imported, start its threads and allocate what it needs for the matrix products of any model."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
        x = torch.ones(256, 256)
        torch.mm(x, x)


def _load_bandwidth_test(threads: int) -> Callable[..., Response]:
    """The memory bandwidth for reads with this number of threads, in bytes per second: the best of several passes."""
    import torch

    torch.set_num_threads(threads)
    x = torch.ones(BANDWIDTH_BYTES // 4)

    def measure(new_tokens: int) -> Response:
        best = min(_time_call(lambda: torch.dot(x, x)) for _ in range(5))
        return {"bytes_per_second": BANDWIDTH_BYTES / best}

    return measure


def _time_call(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def worker_command(workload: Workload, verb: str = "serve") -> list[str]:
    module = "benchmarks.generation.compare"
    return [sys.executable, "-W", "ignore", "-m", module, verb, json.dumps(asdict(workload))]


class Comparison:
    """One workload on several engines; `log` receives progress, one line at a time."""

    def __init__(self, workloads: Sequence[Workload], log: Callable[[str], None]):
        self.new_tokens, self.log = workloads[0].new_tokens, log
        self.failures: dict[str, str] = {}
        self.trial_speeds: dict[str, float] = {}
        self.workloads = {workload.name: workload for workload in workloads}
        self.workers: list[Worker] = []
        self.memory_worker: Worker | None = None

    def run(self, count: int) -> Response:
        """Measure all engines in this many rounds; the summary lists the engines that failed under `missing`."""
        try:
            self._start_workers()
            runs: dict[str, list[Response]] = {worker.name: [] for worker in self.workers}
            bandwidths: list[float] = []
            workers = [self.memory_worker, *self.workers] if self.memory_worker else self.workers
            request = {"new_tokens": self.new_tokens}
            for number, worker, response in run_rounds(workers, count, lambda worker: request, pause=PAUSE):
                if "error" in response:
                    self._add_failure(worker.name, WorkerFailed(response["error"]))
                elif worker.name == MEMORY:
                    bandwidths.append(response["bytes_per_second"])
                else:
                    runs[worker.name].append(response)
                    self.log(f"round {number + 1}: {worker.name}, {self._speed(response):,.1f} {self.unit}")
            complete = {self.workloads[name]: done for name, done in runs.items() if len(done) == count}
            summary = summarize_runs(complete, bandwidths if len(bandwidths) == count else [], self.unit)
            return summary | {"tried": self.trial_speeds, "missing": self.failures}
        finally:
            for worker in [*self.workers, self.memory_worker]:
                if worker is not None:
                    worker.close()

    @property
    def unit(self) -> str:
        return throughput_unit(next(iter(self.workloads.values())))

    def _speed(self, response: Response) -> float:
        return count_outputs(response["outputs"]) / response["seconds"]

    def _start_workers(self) -> None:
        """Convert the weights for each engine, start all workers, and try every precision."""
        first = next(iter(self.workloads.values()))
        try:
            command = worker_command(replace(first, kind=MEMORY))
            self.memory_worker = Worker(MEMORY, command, threads=first.threads)
            bandwidth = self.memory_worker.request(new_tokens=0)["bytes_per_second"]
            self.log(f"memory, {bandwidth / 1e9:.1f} GB/s")
        except WorkerFailed as error:
            self._add_failure(MEMORY, error)
        for name, workload in self.workloads.items():
            if self._is_not_installed(workload.engine):
                continue
            try:
                convert_weights(workload)
                worker = Worker(name, worker_command(workload), threads=workload.threads)
            except WorkerFailed as error:
                self._add_failure(name, error)
                continue
            self.workers.append(worker)
            self.log(f"loaded: {name}, {worker.load_response['seconds']:.1f} s")
        self._select_precisions()

    def _is_not_installed(self, engine: str) -> bool:
        """Whether another precision of the same engine has failed because the library is not installed."""
        names = [name for name, workload in self.workloads.items() if workload.engine == engine]
        return any("not installed" in self.failures.get(name, "") for name in names)

    def _select_precisions(self) -> None:
        """Warm up all workers, then run trials for engines with several precisions and drop the slow ones."""
        self._run_trials(list(self.workers), 1, new_tokens=min(2, self.new_tokens))
        self.trial_speeds.clear()  # the speed of a warmup is meaningless
        several = [worker for worker in self.workers if self._count_precisions(worker) > 1]
        self._run_trials(several, TRIALS, new_tokens=min(TRIAL_TOKENS, self.new_tokens))
        for name, speed in self.trial_speeds.items():
            self.log(f"trial: {name}, {speed:,.1f} {self.unit}")
        for worker in list(self.workers):
            speed = self.trial_speeds.get(worker.name)
            if speed is not None and speed < self._best_trial(worker) / MAX_SLOWDOWN:
                self._drop(worker)

    def _run_trials(self, workers: list[Worker], count: int, new_tokens: int) -> None:
        """Short measurements; keeps the best speed of each worker and drops those that fail."""
        for _, worker, response in run_rounds(workers, count, lambda worker: {"new_tokens": new_tokens}):
            if "error" in response:
                self._add_failure(worker.name, WorkerFailed(response["error"]))
                self._drop(worker)
            else:
                best = max(self.trial_speeds.get(worker.name, 0.0), self._speed(response))
                self.trial_speeds[worker.name] = round(best, 1)

    def _drop(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.close()

    def _count_precisions(self, worker: Worker) -> int:
        """The number of workers of the same engine."""
        engine = self.workloads[worker.name].engine
        return sum(self.workloads[other.name].engine == engine for other in self.workers)

    def _best_trial(self, worker: Worker) -> float:
        engine = self.workloads[worker.name].engine
        return max(speed for name, speed in self.trial_speeds.items() if self.workloads[name].engine == engine)

    def _add_failure(self, name: str, error: WorkerFailed) -> None:
        self.failures[name] = str(error).removeprefix(f"{name}: ")
        self.log(f"failed: {error}")


def compare(workloads: Sequence[Workload], count: int, log: Callable[[str], None] = lambda line: None) -> Response:
    """Measure one workload on all engines in this many rounds, and summarize the figures."""
    return Comparison(workloads, log).run(count)


def convert_weights(workload: Workload) -> None:
    """Convert the weights for an engine, in a separate process, so that the converter does not affect the measurement."""
    if ENGINES[workload.kind][workload.engine].convert_weights is not None:
        Worker(workload.name, worker_command(workload, "convert"), threads=workload.threads).close()


def _convert_in_worker(workload: Workload) -> tuple[Response, Callable[..., Response]]:
    convert = ENGINES[workload.kind][workload.engine].convert_weights
    assert convert is not None
    convert(Path(workload.directory))
    return {}, dict


if __name__ == "__main__":
    workload = Workload(**json.loads(sys.argv[2]))
    serve({"serve": lambda: load_engine(workload), "convert": lambda: _convert_in_worker(workload)}[sys.argv[1]])
