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

from saccade.data.read import hash_data
from saccade.system import describe_machine
from saccade.tasks.runs.run import Run
from saccade.training.config import is_auto
from saccade.training.events import Event, RunRefused
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

Record = dict[str, Any]
OnProgress = Callable[[str], None]
RESERVED_TIME_FRACTION = 0.15  # of all minutes, for what follows the trainings


@dataclass(frozen=True)
class StudyPlan:
    """What a person asks of a study."""

    out: Path
    data: tuple[str, ...] = ()  # files or directories; none: what the package makes itself
    trained_runs: tuple[str, ...] = ()  # that are trained already
    minutes: float = 60.0  # for all trainings and measurements together
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.minutes < math.inf:
            raise RunRefused(f"--minutes is {self.minutes}; a number above 0 is needed, such as 20.")
        if self.seed < 0:
            raise RunRefused(f"--seed is {self.seed}; a whole number from 0 on is needed.")
        names = [Path(run).name for run in self.trained_runs]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise RunRefused(f"Two runs are called {twice}; give them directories of different names.")

    def minutes_per_run(self, count: int) -> float:
        """Minutes of one of so many trainings."""
        return round((1 - RESERVED_TIME_FRACTION) * self.minutes / count, 4)


@dataclass(frozen=True)
class StudyRun:
    """One training of a study: an ordinary run in a directory of the same name."""

    name: str
    job: Job
    description: str = ""  # what is special about it, for a person

    @property
    def minutes(self) -> float:
        return float(self.job.train_fields.get("max_minutes", 0.0))


@dataclass(frozen=True)
class StudyTable:
    """A table as words: printed for a person, or written as Markdown."""

    title: str
    headers: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()

    def to_markdown(self) -> str:
        """
        >>> print(StudyTable("Two", ("a", "b"), [["1", "2"]]).to_markdown())
        Two
        <BLANKLINE>
        | a | b |
        |---|---|
        | 1 | 2 |
        """
        lines = [" | ".join(row).join(("| ", " |")) for row in (self.headers, *self.rows)]
        lines.insert(1, "|" + "---|" * len(self.headers))
        return "\n".join([self.title, "", *lines, *(("", *self.notes) if self.notes else ())])


def no_preparation(plan: StudyPlan) -> None:
    """What has to be prepared for a study whose data are there."""


@dataclass(frozen=True)
class Study:
    """One line of STUDIES: what is asked, who is trained, what is measured, and how it is shown."""

    question: str
    default_minutes: float  # of all trainings and measurements, where nobody says
    plan_runs: Callable[[StudyPlan], list[StudyRun]]  # reads, writes nothing
    measure: Callable[[StudyPlan, Sequence[StudyRun], OnProgress], Record]  # of members that are trained
    make_tables: Callable[[Record], list[StudyTable]]
    draw_plot: Callable[[Record, Path], None]
    prepare_data: Callable[[StudyPlan], None] = field(
        default=no_preparation
    )  # writes the data of the members below plan.out


@dataclass(frozen=True)
class StudyRunProgress:
    """A member's turn to be trained; one that is trained already has no events."""

    study_run: StudyRun
    number: int  # from 1
    count: int
    events: Iterator[Event]
    is_trained: bool


def train_runs(study: Study, plan: StudyPlan) -> Iterator[StudyRunProgress]:
    """Every member in turn, with its training, which goes on as its events are asked for."""
    members = study.plan_runs(plan)
    plan.out.mkdir(parents=True, exist_ok=True)
    if members:
        _check_same_data(plan)
    study.prepare_data(plan)
    for number, member in enumerate(members, 1):
        trained = is_trained(plan.out / member.name, member.job)
        events = iter(()) if trained else run_training(prepare(member.job), plan.out / member.name)
        yield StudyRunProgress(member, number, len(members), events, trained)


def _check_same_data(plan: StudyPlan) -> None:
    """A directory holds the models of one set of data: they would not be scored on another by mistake."""
    path, now = plan.out / "study.json", {"data": hash_data(plan.data) if plan.data else "", "seed": plan.seed}
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) != now:
        raise RunRefused(f"{plan.out} was begun with other data, or another seed; give another --out.")
    write_atomically(path, json.dumps(now) + "\n")


def measure_and_write(name: str, study: Study, plan: StudyPlan, on_progress: OnProgress = lambda text: None) -> Record:
    """Measure the members, which are trained, and write record.json and plot.png."""
    measured = study.measure(plan, study.plan_runs(plan), on_progress)
    record = {"study": name, "question": study.question, **_plan_facts(plan), **measured}
    write_atomically(plan.out / "record.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    study.draw_plot(record, plan.out / "plot.png")
    return record


def _plan_facts(plan: StudyPlan) -> Record:
    here = describe_machine()
    asked = {"minutes": plan.minutes, "seed": plan.seed, "data": [Path(path).name for path in plan.data]}
    return {"date": str(here["date"])[:10], "machine": here, "plan": asked}


def is_trained(out: Path, job: Job) -> bool:
    """Whether a run has ended with all that its job says; the clock and the like may differ only where the job is silent."""
    run = Run(out)
    if not (run.has_ended and run.settings):
        return False
    found = run.settings
    asked = {"model": job.model_fields, "task": job.task_fields, "train": job.train_fields}
    if found["run"]["task"] != job.task or found["run"]["data"] != list(job.data):
        return False
    return all(
        _is_equal(found[table].get(name), value)
        for table, given in asked.items()
        for name, value in given.items()
        if name != "vocab" and not is_auto(table, name, value)  # a tokenizer may find fewer words than it was asked for
    )


def _is_equal(stored: Any, wanted: Any) -> bool:
    return stored == (list(wanted) if isinstance(wanted, tuple) else wanted)


def load_recipe(name: str) -> Record:
    """The tables of a recipe of the package: run, model, task and train."""
    return tomllib.loads((files("saccade") / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))


def write_atomically(path: Path, text: str) -> None:
    """A file in one stroke."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def load_result(out: Path) -> Record:
    """How a run ended, as it wrote it down."""
    return dict(Run(out).result)


def read_speed_log(out: Path) -> list[Record]:
    """Of every step of a run, its tokens and seconds."""
    return [json.loads(row) for row in (out / "speed.jsonl").read_text(encoding="utf-8").splitlines()]


def total_minutes(out: Path) -> float:
    """Minutes of all steps of a run."""
    return sum(row["seconds"] for row in read_speed_log(out)) / 60


def find_score(facts: Mapping[str, Any], split: str, name: str) -> Record:
    """One score of a run that has ended: value, low, high and count."""
    return next(score for score in facts["scores"][split] if score["name"] == name)


def format_score(score: Mapping[str, Any] | None, *, scale: float = 1.0, digits: int = 1) -> str:
    """A score with its interval, or a dash.

    >>> format_score({"value": 0.4167, "low": 0.39, "high": 0.44}, scale=100), format_score(None)
    ('41.7 (39.0 to 44.0)', '-')
    """
    if score is None:
        return "-"
    value, low, high = (f"{scale * score[name]:.{digits}f}" for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"
