"""Measurement of one mechanism at one length: time and peak memory, forward or forward and backward, in a child process.

Peak memory is a high-water mark, and a process keeps much of the memory that it frees, so that two cases in one process would
interfere. The parent only starts child processes and does not import torch.

    python -m saccade.bench.measure '{"mechanism": "windowed", "length": 1024}'
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from saccade.errors import UsageError
from saccade.plugins import load_plugins
from saccade.system import available_memory, read_lines

OK, REFUSED, OUT_OF_MEMORY = "ok", "refused", "out of memory"
TIMED_OUT, SKIPPED, FAILED = "timeout", "skipped", "failed"
WARMUP_TOKENS = 32  # tokens of the warmup pass, which starts threads and loads kernels
MIN_TIMED_SECONDS = 0.2  # short passes are repeated until they take this long together
MAX_REPEATS = 100  # maximum number of timed passes
MIN_BUILT_POSITIONS = 2048  # tokens; mechanisms built for less have narrower windows, which would distort growth rates


@dataclass(frozen=True)
class BenchCase:
    """One mechanism at one sequence length, measured by a child process."""

    mechanism: str
    length: int
    training: bool = False
    width: int = 512
    heads: int = 8
    batch_size: int = 1
    causal: bool = False
    repeats: int = 5
    timeout: float = 60.0
    threads: int = 0

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def max_positions(self) -> int:
        """The maximum number of tokens that the mechanism is built for."""
        return max(self.length, MIN_BUILT_POSITIONS)

    @property
    def input_bytes(self) -> int:
        """Bytes of q, k and v."""
        return 3 * 4 * self.batch_size * self.length * self.width


@dataclass(frozen=True)
class BenchPlan:
    """The plan of a benchmark: every mechanism at every length, forward and in training, in several rounds."""

    mechanisms: tuple[str, ...] = ("all",)
    """Attention mechanisms to measure, by name, or all of them."""
    lengths: tuple[int, ...] = tuple(2**i for i in range(8, 15))
    """Sequence lengths to measure, in tokens."""
    width: int = 512
    """Model width of all heads together."""
    heads: int = 8
    """Number of attention heads per layer."""
    batch_size: int = 1
    """Batch size: number of sequences per pass."""
    causal: bool = False
    """Causal masking, as in a decoder."""
    repeats: int = 5
    """Number of timed passes per process, after one untimed pass."""
    rounds: int = 1
    """Number of rounds through the list of cases, with a new process for each case."""
    timeout: float = 60.0
    """Time limit per process in seconds, including about two seconds of startup."""
    threads: int = 0
    """Number of torch threads; 0 lets torch choose. On a busy machine, 1 gives steadier results."""

    def check(self) -> None:
        minimums = {"width": 1, "heads": 1, "batch_size": 1, "repeats": 1, "rounds": 1, "threads": 0}
        for name, value in minimums.items():
            if getattr(self, name) < value:
                raise UsageError(f"{name} must be at least {value}; got {getattr(self, name)}.")
        if not self.lengths or min(self.lengths) < 2:
            raise UsageError(f"lengths must be one or more numbers from 2 on; got {self.lengths}.")
        if self.timeout <= 0:
            raise UsageError(f"timeout must be above 0; got {self.timeout:g}.")
        if self.width % self.heads:
            raise UsageError(f"{self.heads} heads cannot share a width of {self.width} evenly; use a divisor.")

    def iter_cases(self, names: Sequence[str]) -> Iterator[tuple[int, BenchCase]]:
        """The cases by round and length, with mechanisms alternating, so that a slowdown of the machine affects all equally."""
        common = {"width": self.width, "heads": self.heads, "batch_size": self.batch_size, "causal": self.causal}
        common |= {"repeats": self.repeats, "timeout": self.timeout, "threads": self.threads}
        for round_index in range(self.rounds):
            for length in sorted(set(self.lengths)):
                for name in names if round_index % 2 == 0 else reversed(names):
                    for training in (False, True):
                        yield round_index, BenchCase(name, length, training, **common)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: its times and peak memory, or the reason for their absence."""

    status: str
    reason: str = ""
    seconds: tuple[float, ...] = ()  # of each timed pass
    peak_bytes: int | None = None  # above the memory of the process before q, k and v are created; None: not measured
    memory_source: str = ""
    threads: int = 0


def run_case(case: BenchCase) -> Outcome:
    """Measure a case in a child process; a failure of the child is an outcome, too."""
    command = [sys.executable, "-m", "saccade.bench.measure", json.dumps(asdict(case))]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=case.timeout)
    except subprocess.TimeoutExpired:
        return Outcome(TIMED_OUT, f"not done after {case.timeout:g} s")
    if process.returncode == -9:
        return Outcome(OUT_OF_MEMORY, "killed by the system (signal 9)")
    if process.returncode:
        return Outcome(FAILED, (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    fields = json.loads(process.stdout.splitlines()[-1])
    return Outcome(**{**fields, "seconds": tuple(fields["seconds"])})


def measure_case(case: BenchCase) -> Outcome:
    """Measure a case in the child process: one pass for the peak memory, then the timed passes."""
    start = time.perf_counter()
    import torch

    if case.threads:
        torch.set_num_threads(case.threads)
    try:
        make_pass(case, WARMUP_TOKENS)()
        limit_memory()
        base, source = read_peak_memory(reset=True)
        run_pass = make_pass(case, case.length)
        times = [time_call(run_pass)]
        peak, _ = read_peak_memory()
        first = times.pop()
        while len(times) < case.repeats or (sum(times) < MIN_TIMED_SECONDS and len(times) < MAX_REPEATS):
            if time.perf_counter() - start + first > 0.8 * case.timeout:
                break
            times.append(time_call(run_pass))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            return Outcome(OUT_OF_MEMORY, str(error).splitlines()[0][-160:])
        raise
    peak_bytes = None if peak is None or base is None else peak - base
    return Outcome(OK, "", tuple(times or [first]), peak_bytes, source, torch.get_num_threads())


def make_pass(case: BenchCase, length: int) -> Callable[[], None]:
    """The function to measure. Every pass creates its own `Sight`, so that the masks of a mechanism are part of its cost."""
    import torch

    from saccade.attention import CAUSAL, FULL, Sight, get_mechanism

    torch.manual_seed(0)
    module = get_mechanism(case.mechanism).make(case.head_width, case.heads, case.max_positions).train(case.training)

    def random_input() -> torch.Tensor:
        x = torch.randn(case.batch_size, length, case.heads, case.head_width)
        return x.transpose(1, 2).contiguous().requires_grad_(case.training)  # (B, H, L, D)

    q, k, v = random_input(), random_input(), random_input()
    grad = torch.randn_like(v) if case.training else None

    def run_pass() -> None:
        with torch.set_grad_enabled(case.training):
            out = module(q, k, v, Sight(CAUSAL if case.causal else FULL))
        if grad is not None:
            out.backward(grad)
            for x in (q, k, v, *module.parameters()):
                x.grad = None

    return run_pass


def time_call(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return round(time.perf_counter() - start, 7)


def read_peak_memory(*, reset: bool = False) -> tuple[int | None, str]:
    """The peak memory of this process in bytes and its source; `reset` restarts the count on Linux."""
    if reset:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    for line in read_lines("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024, "VmHWM"
    try:
        import resource
    except ImportError:  # Windows
        return None, "not measured"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024), "ru_maxrss"


def limit_memory() -> None:
    """Limit the memory of this process, so that a case that is too large fails before the system kills another process."""
    free, data_size = available_memory(), [x for x in read_lines("/proc/self/status") if x.startswith("VmData:")]
    with suppress(OSError, ValueError):
        Path("/proc/self/oom_score_adj").write_text("1000")
        if free is not None and data_size:
            import resource

            limit = int(data_size[0].split()[1]) * 1024 + free
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    load_plugins()
    print(json.dumps(asdict(measure_case(BenchCase(**json.loads(sys.argv[1]))))))
