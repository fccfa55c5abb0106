"""Writing beside the peers: one model, one task, rivals in processes of their own that take turns, and the memory's own speed.

Every round begins or ends with a plain read of memory, so that the share of its speed which a rival uses is of that very
moment. A rival with several precisions first tries each; the slow ones retire, and the best of the rest counts.

    python -m benchmarks.generation.race '{"kind": "generate", "who": "saccade", ...}'
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.generation.memory import Held
from benchmarks.generation.ours import WRITERS
from benchmarks.generation.summary import amount, summary, unit
from benchmarks.generation.workload import Work
from benchmarks.rivals import Found, Rival, RivalFailed, rounds, serve

TRIAL = 16  # new tokens of a try; the best of some tries decides between precisions
TRIES = 3
PAUSE = 0.25  # seconds between turns
SLOW = 1.5  # times as slow as the best precision of the same rival: it retires
MEMORY = "memory"
READ = 256 * 2**20  # bytes: many times any cache


def child(work: Work) -> tuple[Found, Callable[..., Found]]:
    """In the rival's process: load, and give what a turn does."""
    if work.kind == MEMORY:
        return {}, _reader(work.threads)
    writer = WRITERS[work.kind][work.who]
    for module in writer.modules:
        import_module(module)
    _wake(work.threads)
    start, held = time.perf_counter(), Held()
    precision, write = writer.make(work)
    loaded = time.perf_counter() - start

    def turn(new: int) -> Found:
        held.begin()
        begin = time.perf_counter()
        written = write(new)
        seconds = time.perf_counter() - begin
        most, peak = (size / 1e6 for size in held.end())
        return {"seconds": seconds, "written": written, "held_mb": most, "peak_mb": peak, "precision": precision}

    return {"seconds": loaded}, turn


def _wake(threads: int) -> None:
    """Let PyTorch, where it is there, start its threads and take what it needs for products of whatever model."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
        x = torch.ones(256, 256)
        torch.mm(x, x)


def _reader(threads: int) -> Callable[..., Found]:
    """How fast memory can be read with so many threads, in bytes a second: the best of several passes."""
    import torch

    torch.set_num_threads(threads)
    x = torch.ones(READ // 4)

    def turn(new: int) -> Found:
        best = min(_timed(lambda: torch.dot(x, x)) for _ in range(5))
        return {"bytes_per_second": READ / best}

    return turn


def _timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def command(work: Work, verb: str = "serve") -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "benchmarks.generation.race", verb, json.dumps(asdict(work))]


class Race:
    """One task for several rivals; `told` hears how it goes, a line at a time."""

    def __init__(self, works: Sequence[Work], told: Callable[[str], None]):
        self.new, self.told = works[0].new, told
        self.lost: dict[str, str] = {}
        self.tried: dict[str, float] = {}
        self.works = {work.name: work for work in works}
        self.rivals: list[Rival] = []
        self.memory: Rival | None = None

    def run(self, count: int) -> Found:
        """So many rounds of all who are there; gives the summary, which says who is missing."""
        try:
            self._gather()
            runs: dict[str, list[Found]] = {rival.name: [] for rival in self.rivals}
            memory: list[float] = []
            lined = [self.memory, *self.rivals] if self.memory else self.rivals
            for number, rival, found in rounds(lined, count, lambda rival: {"new": self.new}, pause=PAUSE):
                if "lost" in found:
                    self._leaves(rival.name, RivalFailed(found["lost"]))
                elif rival.name == MEMORY:
                    memory.append(found["bytes_per_second"])
                else:
                    runs[rival.name].append(found)
                    self.told(f"round {number + 1}: {rival.name}, {self._speed(found):,.1f} {self.unit}")
            whole = {self.works[name]: found for name, found in runs.items() if len(found) == count}
            return summary(whole, memory if len(memory) == count else [], self.unit) | {
                "tried": self.tried,
                "missing": self.lost,
            }
        finally:
            for rival in [*self.rivals, self.memory]:
                if rival is not None:
                    rival.close()

    @property
    def unit(self) -> str:
        return unit(next(iter(self.works.values())))

    def _speed(self, found: Found) -> float:
        return amount(found["written"]) / found["seconds"]

    def _gather(self) -> None:
        """Write what each needs, start all, and let every precision be tried once."""
        first = next(iter(self.works.values()))
        try:
            self.memory = Rival(MEMORY, command(replace(first, kind=MEMORY)), threads=first.threads)
            self.told(f"memory, {self.memory.turn(new=0)['bytes_per_second'] / 1e9:.1f} GB/s")
        except RivalFailed as error:
            self._leaves(MEMORY, error)
        for name, work in self.works.items():
            alike = (other for other in self.works.values() if other.who == work.who)
            if any("not installed" in self.lost.get(other.name, "") for other in alike):
                continue  # in another precision it would be missing as well
            try:
                prepare(work)
                rival = Rival(name, command(work), threads=work.threads)
            except RivalFailed as error:
                self._leaves(name, error)
                continue
            self.rivals.append(rival)
            self.told(f"loaded: {name}, {rival.is_ready['seconds']:.1f} s")
        self._try()

    def _try(self) -> None:
        """A first turn of each, in which threads start and memory is taken; then tries of those with several precisions."""
        self._turns(list(self.rivals), 1, new=min(2, self.new))
        self.tried.clear()  # first turns say little
        self._turns([rival for rival in self.rivals if self._precisions(rival) > 1], TRIES, new=min(TRIAL, self.new))
        for name, speed in self.tried.items():
            self.told(f"try: {name}, {speed:,.1f} {self.unit}")
        for rival in list(self.rivals):
            if rival.name in self.tried and self.tried[rival.name] < self._best(rival) / SLOW:
                self._closes(rival)

    def _turns(self, rivals: list[Rival], count: int, new: int) -> None:
        """Short turns; the best speed of each is noted, and who is lost leaves."""
        for _, rival, found in rounds(rivals, count, lambda rival: {"new": new}):
            if "lost" in found:
                self._leaves(rival.name, RivalFailed(found["lost"]))
                self._closes(rival)
            else:
                self.tried[rival.name] = round(max(self.tried.get(rival.name, 0.0), self._speed(found)), 1)

    def _closes(self, rival: Rival) -> None:
        self.rivals.remove(rival)
        rival.close()

    def _precisions(self, rival: Rival) -> int:
        """How many of the same rival are there."""
        return sum(self.works[other.name].who == self.works[rival.name].who for other in self.rivals)

    def _best(self, rival: Rival) -> float:
        who = self.works[rival.name].who
        return max(speed for name, speed in self.tried.items() if self.works[name].who == who)

    def _leaves(self, name: str, error: RivalFailed) -> None:
        self.lost[name] = str(error).removeprefix(f"{name}: ")
        self.told(f"without {error}")


def race(works: Sequence[Work], count: int, told: Callable[[str], None] = lambda line: None) -> Found:
    """So many rounds of one task, and what they say."""
    return Race(works, told).run(count)


def prepare(work: Work) -> None:
    """Write the weights in a peer's own form, in a process of its own: what converts should not be beside what is measured."""
    write = WRITERS[work.kind][work.who].prepare
    if write is not None:
        Rival(work.name, command(work, "prepare"), threads=work.threads).close()


def _prepared(work: Work) -> tuple[Found, Callable[..., Found]]:
    write = WRITERS[work.kind][work.who].prepare
    assert write is not None
    write(Path(work.where))
    return {}, dict


if __name__ == "__main__":
    asked = Work(**json.loads(sys.argv[2]))
    serve({"serve": lambda: child(asked), "prepare": lambda: _prepared(asked)}[sys.argv[1]])
