"""What a study is: members that are trained as any run is, what is measured of them, and a record with a table and a plot.

    for turn in turns(STUDY, plan):
        for event in turn.events:       # steps, looks and saves of one member
            ...
    record = conclude("listops", STUDY, plan)

A directory of a study holds a run for each member, record.json and plot.png. Called again it goes on: members that are trained
are not trained again.
"""

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from saccade.data.read import digest
from saccade.studies.measure import machine
from saccade.tasks.run_settings import read_run_settings
from saccade.training.config import left_open
from saccade.training.events import Event, Refused
from saccade.training.job import Job, prepare
from saccade.training.run import run

Record = dict[str, Any]
Told = Callable[[str], None]
SPARE = 0.15  # of all minutes, for what follows the trainings


@dataclass(frozen=True)
class Plan:
    """What a person asks of a study."""

    out: Path
    data: tuple[str, ...] = ()  # files or directories; none: what the package makes itself
    runs: tuple[str, ...] = ()  # that are trained already
    minutes: float = 60.0  # for all trainings and measurements together
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.minutes < math.inf:
            raise Refused(f"--minutes is {self.minutes}; a number above 0 is needed, such as 20.")
        if self.seed < 0:
            raise Refused(f"--seed is {self.seed}; a whole number from 0 on is needed.")
        names = [Path(run).name for run in self.runs]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise Refused(f"Two runs are called {twice}; give them directories of different names.")

    def share(self, count: int) -> float:
        """Minutes of one of so many trainings."""
        return round((1 - SPARE) * self.minutes / count, 4)


@dataclass(frozen=True)
class Member:
    """One training of a study: an ordinary run in a directory of the same name."""

    name: str
    job: Job
    said: str = ""  # what is special about it, for a person

    @property
    def minutes(self) -> float:
        return float(self.job.train_fields.get("max_time", 0.0))


@dataclass(frozen=True)
class Grid:
    """A table as words: printed for a person, or written as Markdown."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """
        >>> print(Grid("Two", ("a", "b"), [["1", "2"]]).markdown())
        Two
        <BLANKLINE>
        | a | b |
        |---|---|
        | 1 | 2 |
        """
        lines = [" | ".join(row).join(("| ", " |")) for row in (self.heads, *self.rows)]
        lines.insert(1, "|" + "---|" * len(self.heads))
        return "\n".join([self.title, "", *lines, *(("", *self.notes) if self.notes else ())])


def nothing(plan: Plan) -> None:
    """What has to be prepared for a study whose data are there."""


@dataclass(frozen=True)
class Study:
    """One line of STUDIES: what is asked, who is trained, what is measured, and how it is shown."""

    asks: str
    minutes: float  # of all trainings and measurements, where nobody says
    members: Callable[[Plan], list[Member]]  # reads, writes nothing
    measure: Callable[[Plan, Sequence[Member], Told], Record]  # of members that are trained
    tables: Callable[[Record], list[Grid]]
    draw: Callable[[Record, Path], None]
    prepare: Callable[[Plan], None] = field(default=nothing)  # writes the data of the members below plan.out


@dataclass(frozen=True)
class Turn:
    """A member's turn to be trained; one that is trained already has no events."""

    member: Member
    number: int  # from 1
    count: int
    events: Iterator[Event]
    trained: bool


def turns(study: Study, plan: Plan) -> Iterator[Turn]:
    """Every member in turn, with its training, which goes on as its events are asked for."""
    members = study.members(plan)
    plan.out.mkdir(parents=True, exist_ok=True)
    if members:
        _begun_alike(plan)
    study.prepare(plan)
    for number, member in enumerate(members, 1):
        trained = is_trained(plan.out / member.name, member.job)
        events = iter(()) if trained else run(prepare(member.job), plan.out / member.name)
        yield Turn(member, number, len(members), events, trained)


def _begun_alike(plan: Plan) -> None:
    """A directory holds the models of one set of data: they would not be scored on another by mistake."""
    path, now = plan.out / "begun.json", {"data": digest(plan.data) if plan.data else "", "seed": plan.seed}
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) != now:
        raise Refused(f"{plan.out} was begun with other data, or another seed; give another --out.")
    write(path, json.dumps(now) + "\n")


def conclude(name: str, study: Study, plan: Plan, told: Told = lambda text: None) -> Record:
    """Measure the members, which are trained, and write record.json and plot.png."""
    measured = study.measure(plan, study.members(plan), told)
    record = {"study": name, "asks": study.asks, **_facts(plan), **measured}
    write(plan.out / "record.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    study.draw(record, plan.out / "plot.png")
    return record


def _facts(plan: Plan) -> Record:
    here = machine()
    asked = {"minutes": plan.minutes, "seed": plan.seed, "data": [Path(path).name for path in plan.data]}
    return {"date": str(here["date"])[:10], "machine": here, "plan": asked}


def is_trained(out: Path, job: Job) -> bool:
    """Whether a run has ended with all that its job says; the clock and the like may differ only where the job is silent."""
    if not ((out / "result.json").is_file() and (out / "config.toml").is_file()):
        return False
    found = read_run_settings(out)
    asked = {"model": job.model_fields, "task": job.task_fields, "train": job.train_fields}
    if found["run"]["task"] != job.task or found["run"]["data"] != list(job.data):
        return False
    return all(
        _same(found[table].get(name), value)
        for table, given in asked.items()
        for name, value in given.items()
        if name != "vocab"
        and not left_open(table, name, value)  # a tokenizer may find fewer words than it was asked for
    )


def _same(found: Any, asked: Any) -> bool:
    return found == (list(asked) if isinstance(asked, tuple) else asked)


def recipe(name: str) -> Record:
    """The tables of a recipe of the package: run, model, task and train."""
    return tomllib.loads((files("saccade") / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))


def write(path: Path, text: str) -> None:
    """A file in one stroke."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def result(out: Path) -> Record:
    """How a run ended, as it wrote it down."""
    return json.loads((out / "result.json").read_text(encoding="utf-8"))


def speeds(out: Path) -> list[Record]:
    """Of every step of a run, its tokens and seconds."""
    return [json.loads(row) for row in (out / "speed.jsonl").read_text(encoding="utf-8").splitlines()]


def clock(out: Path) -> float:
    """Minutes of all steps of a run."""
    return sum(row["seconds"] for row in speeds(out)) / 60


def score_of(facts: Mapping[str, Any], split: str, name: str) -> Record:
    """One score of a run that has ended: value, low, high and count."""
    return next(score for score in facts["scores"][split] if score["name"] == name)


def shown(score: Mapping[str, Any] | None, *, times: float = 1.0, digits: int = 1) -> str:
    """A score with its interval, or a dash.

    >>> shown({"value": 0.4167, "low": 0.39, "high": 0.44}, times=100), shown(None)
    ('41.7 (39.0 to 44.0)', '-')
    """
    if score is None:
        return "-"
    value, low, high = (f"{times * score[name]:.{digits}f}" for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"
