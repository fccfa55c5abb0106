"""What races in writing share: the terms that all rivals run on, who runs, the record of the figures, and how it is told."""

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
    from benchmarks.generation.workload import Work

SIDES = ("weights MB", "keys and values MB", "allowed MB", "held MB")  # what is held of memory, beside what may be


@dataclass(frozen=True)
class Terms:
    """On what terms a race is run, and where its figures go."""

    out: Path
    """Where the record goes; what it has of other cases stays."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the record as JSON and nothing else."""
    precision: str = "auto"
    """Of our own: auto, int8, float16, float32 or plain (the model as it was loaded)."""
    rounds: int = 5
    """How often the rivals take turns."""
    threads: int = 0
    """Of each rival; 0: as many as there are cores."""

    @property
    def used(self) -> int:
        """The threads of each rival."""
        return self.threads or cpu_count()

    def check(self, kind: str, rivals: Sequence[str]) -> None:
        """Refuse who and what is unknown before anything is written or measured."""
        from benchmarks.generation.ours import WRITERS
        from benchmarks.generation.workload import PLAIN
        from saccade.engine.precision import AUTO, PRECISIONS

        at_least(rounds=self.rounds)
        known(rivals, [who for who in WRITERS[kind] if not who.startswith("saccade")], "rival")
        known([self.precision], [AUTO, *PRECISIONS, PLAIN], "precision")
        if self.threads < 0:
            raise UsageError(f"--threads is 1 or more, or 0 for as many as there are cores; got {self.threads}.")


def ended(kind: str, work: Callable[[], int]) -> int:
    """The code of a race; what was asked wrongly ends in a sentence."""
    try:
        return work()
    except ValueError as error:
        print(f"benchmarks.{kind}: {error}", file=sys.stderr)
        return 2


def lined(base: "Work", rivals: Sequence[str], precision: str) -> "list[Work]":
    """Ourselves in one precision and the rivals in all of theirs."""
    from benchmarks.generation.ours import WRITERS, precisions

    writers = WRITERS[base.kind]
    out = [replace(base, who=who, precision=precision) for who in writers if who.startswith("saccade")]
    return out + [replace(base, who=who, precision=p) for who in rivals for p in precisions(writers[who])]


def known(given: Sequence[str], names: Sequence[str], what: str) -> None:
    """Refuse a name that is not in the list, and say which is near."""
    from saccade.suggest import suggest

    for name in given:
        if name not in names:
            raise UsageError(f"there is no {what} {name!r}; {suggest(name, list(names))}")


def at_least(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise UsageError(f"--{name} is 1 or more; got {value}.")


def room(length: int, needed: int) -> None:
    """Mixed prompts are up to twice as long as their mean."""
    if needed > length:
        raise UsageError(f"texts of up to {needed} tokens need a model of that --length or more; got {length}.")


def told(case: str) -> Callable[[str], None]:
    """Progress, a line at a time on the standard error."""
    return lambda line: print(f"{case}, {line}", file=sys.stderr, flush=True)


class Record:
    """A file of figures that is written after every case; cases that are not measured again stay as they were."""

    def __init__(self, path: Path):
        self.path = path
        self.figures: dict[str, Any] = {}
        self.new: list[str] = []
        if path.exists():
            self.figures = json_text.loads(path.read_text(encoding="utf-8"))["figures"]

    def put(self, case: str, figures: dict[str, Any]) -> None:
        from saccade.system import describe_machine

        facts = describe_machine()
        self.new.append(case)
        self.figures[case] = figures | {"date": facts["date"], "load afterwards": facts["load"]}
        self.text = json_text.dumps({"machine": facts, "figures": self.figures}, indent=1, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text + "\n", encoding="utf-8")

    def show(self, json: bool) -> int:
        """Print it; the code says whether we ourselves fell out of a race, which is a bug of ours."""
        print(self.text if json else table(self.figures))
        return int(any(who.startswith("saccade") for case in self.new for who in self.figures[case].get("missing", ())))


def table(figures: dict[str, dict[str, Any]]) -> str:
    """A few lines for each case: how many times as fast, how fast, how near to the limit, and who was not there."""
    lines = []
    for case, figure in figures.items():
        lines.append(case)
        for ours, ratios in figure.get("times as fast", {}).items():
            lines += [f"  {ours}: {spanned(ratio)} times as fast as {who}" for who, ratio in ratios.items()]
        for kind in ("tokens/s", "sentences/s", "seconds", "share of the memory's speed"):
            if kind in figure:
                lines.append(f"  {kind}: " + ", ".join(f"{who} {spanned(x)}" for who, x in figure[kind].items()))
        for kind in ("precision", *SIDES, "peak MB", "missing"):
            if figure.get(kind):
                lines.append(f"  {kind}: " + "; ".join(f"{who} {x}" for who, x in figure[kind].items()))
    return "\n".join(lines)


def spanned(figure: dict[str, float]) -> str:
    """Median and spread, in as many digits as they are worth."""
    median, low, high = (format_number(figure[part]) for part in ("median", "low", "high"))
    return f"{median} ({low} to {high})"
