"""What `benchmarks.generate` and `benchmarks.translate` share: run options, their checks, and the record of figures."""

import json as json_text
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from saccade.cli.commands.bench import format_number
from saccade.errors import UsageError
from saccade.system import cpu_count

if TYPE_CHECKING:
    from benchmarks.generation.workload import Workload

MEMORY_FIGURES = ("weights MB", "keys and values MB", "allowed MB", "held MB")  # what may be held, beside what is held


@dataclass(frozen=True)
class RunOptions:
    """How the benchmark is run, and where its figures are written."""

    out: Path
    """JSON file to write the figures to; figures of other cases in it are kept."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the record as JSON and nothing else."""
    precision: str = "auto"
    """Precision of saccade: auto, int8, float16, float32, or plain for the model without conversion."""
    rounds: int = 5
    """Number of rounds; in each of them every engine is measured once."""
    threads: int = 0
    """Number of threads of each engine; 0 uses one per core."""

    @property
    def thread_count(self) -> int:
        """The number of threads of each engine, with the default resolved."""
        return self.threads or cpu_count()

    def check(self, kind: str, baselines: Sequence[str]) -> None:
        """Reject unknown names and impossible numbers before anything is written or measured."""
        from benchmarks.generation.engines import ENGINES
        from benchmarks.generation.workload import PLAIN
        from saccade.engine.precision import AUTO, PRECISIONS

        check_positive(rounds=self.rounds)
        check_names(baselines, [name for name in ENGINES[kind] if not name.startswith("saccade")], "baseline")
        check_names([self.precision], [AUTO, *PRECISIONS, PLAIN], "precision")
        if self.threads < 0:
            raise UsageError(f"--threads must be 1 or more, or 0 for one per core; got {self.threads}.")


def exit_code(kind: str, benchmark: Callable[[], int]) -> int:
    """Run a benchmark; invalid options are reported in one line, with exit code 2."""
    try:
        return benchmark()
    except ValueError as error:
        print(f"benchmarks.{kind}: {error}", file=sys.stderr)
        return 2


def make_workloads(base: "Workload", baselines: Sequence[str], precision: str) -> "list[Workload]":
    """Saccade in one precision, and each baseline in all precisions that it supports."""
    from benchmarks.generation.engines import ENGINES, supported_precisions

    engines = ENGINES[base.kind]
    out = [replace(base, engine=name, precision=precision) for name in engines if name.startswith("saccade")]
    return out + [
        replace(base, engine=name, precision=p) for name in baselines for p in supported_precisions(engines[name])
    ]


def check_names(names: Sequence[str], known_names: Sequence[str], what: str) -> None:
    """Reject a name that is not in the list, and suggest the nearest."""
    from saccade.suggest import suggest

    for name in names:
        if name not in known_names:
            raise UsageError(f"unknown {what} {name!r}; {suggest(name, list(known_names))}")


def check_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be 1 or more; got {value}.")


def check_length(max_positions: int, needed: int) -> None:
    """Reject texts that are longer than the model's maximum; mixed prompts are up to twice as long as their mean."""
    if needed > max_positions:
        raise UsageError(f"texts of up to {needed} tokens need --max-positions {needed} or more; got {max_positions}.")


def make_log(case: str) -> Callable[[str], None]:
    """A function that prints progress of a case to standard error."""
    return lambda line: print(f"{case}, {line}", file=sys.stderr, flush=True)


class Record:
    """A JSON file of figures that is written after every case; cases that are not measured again are kept."""

    def __init__(self, path: Path):
        self.path = path
        self.figures: dict[str, Any] = {}
        self.measured_cases: list[str] = []
        if path.exists():
            self.figures = json_text.loads(path.read_text(encoding="utf-8"))["figures"]

    def add(self, case: str, figures: dict[str, Any]) -> None:
        """Store the figures of a case, with the date and the load of the machine, and write the file."""
        from saccade.system import describe_machine

        machine = describe_machine()
        self.measured_cases.append(case)
        self.figures[case] = figures | {"date": machine["date"], "load afterwards": machine["load"]}
        self.text = json_text.dumps({"machine": machine, "figures": self.figures}, indent=1, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text + "\n", encoding="utf-8")

    def show(self, json: bool) -> int:
        """Print the record; the exit code is 1 if saccade itself failed in a case, which is a bug."""
        print(self.text if json else format_figures(self.figures))
        missing = [name for case in self.measured_cases for name in self.figures[case].get("missing", ())]
        return int(any(name.startswith("saccade") for name in missing))


def format_figures(figures: dict[str, dict[str, Any]]) -> str:
    """A few lines for each case: speedup, throughput, share of the memory bandwidth, memory, and what is missing."""
    lines = []
    for case, figure in figures.items():
        lines.append(case)
        for ours, ratios in figure.get("times as fast", {}).items():
            lines += [f"  {ours}: {format_spread(ratio)} times as fast as {name}" for name, ratio in ratios.items()]
        for kind in ("tokens/s", "sentences/s", "seconds", "share of the memory's speed"):
            if kind in figure:
                lines.append(
                    f"  {kind}: " + ", ".join(f"{name} {format_spread(x)}" for name, x in figure[kind].items())
                )
        for kind in ("precision", *MEMORY_FIGURES, "peak MB", "missing"):
            if figure.get(kind):
                lines.append(f"  {kind}: " + "; ".join(f"{name} {x}" for name, x in figure[kind].items()))
    return "\n".join(lines)


def format_spread(figure: dict[str, float]) -> str:
    """The median and the range, rounded to significant digits."""
    median, low, high = (format_number(figure[part]) for part in ("median", "low", "high"))
    return f"{median} ({low} to {high})"
