"""Studies: experiments that train several runs, measure them, and write a record with tables and a plot.

    for progress in train_runs(STUDY, plan):
        for event in progress.events:       # steps, evaluations and checkpoints of one run
            ...
    record = measure_and_write("listops", STUDY, plan)

The directory of a study has a subdirectory for each run, record.json and plot.png. A second call resumes the study: finished runs
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
RESERVED_TIME_FRACTION = 0.15  # of all minutes, for the measurements after training


@dataclass(frozen=True)
class StudyPlan:
    """The settings of a study: output directory, data, time limit and seed."""

    out: Path
    data: tuple[str, ...] = ()  # files or directories; empty: built-in data
    trained_runs: tuple[str, ...] = ()  # existing runs to measure instead of training new ones
    minutes: float = 60.0  # time limit of all training runs and measurements together
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.minutes < math.inf:
            raise RunRefused(f"--minutes is {self.minutes}; it must be above 0, such as 20.")
        if self.seed < 0:
            raise RunRefused(f"--seed is {self.seed}; it must be 0 or more.")
        names = [Path(run).name for run in self.trained_runs]
        if duplicate := next((name for name in names if names.count(name) > 1), ""):
            raise RunRefused(f"Two runs are named {duplicate}; give directories with different names.")

    def minutes_per_run(self, count: int) -> float:
        """The minutes of one of `count` training runs."""
        return round((1 - RESERVED_TIME_FRACTION) * self.minutes / count, 4)


@dataclass(frozen=True)
class StudyRun:
    """One training run of a study, in a directory of the same name."""

    name: str
    job: Job
    description: str = ""  # how it differs from the others, for the user

    @property
    def minutes(self) -> float:
        return float(self.job.train_fields.get("max_minutes", 0.0))


@dataclass(frozen=True)
class StudyTable:
    """A table of text cells, printed in the terminal or written as Markdown."""

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
    """The default `prepare_data`: nothing to prepare."""


@dataclass(frozen=True)
class Study:
    """A study, an entry of STUDIES: the question, the runs to train, the measurements, and how they are shown."""

    question: str
    default_minutes: float  # default time limit of all training runs and measurements
    plan_runs: Callable[[StudyPlan], list[StudyRun]]  # writes no files
    measure: Callable[[StudyPlan, Sequence[StudyRun], OnProgress], Record]  # measures the trained runs
    make_tables: Callable[[Record], list[StudyTable]]
    draw_plot: Callable[[Record, Path], None]
    prepare_data: Callable[[StudyPlan], None] = field(default=no_preparation)  # writes the data of the runs to plan.out


@dataclass(frozen=True)
class StudyRunProgress:
    """The training of one run of a study; a run that is already trained has no events."""

    study_run: StudyRun
    number: int  # from 1
    count: int
    events: Iterator[Event]
    is_trained: bool


def train_runs(study: Study, plan: StudyPlan) -> Iterator[StudyRunProgress]:
    """The runs of a study one by one; iterating over the events of a run trains it."""
    study_runs = study.plan_runs(plan)
    plan.out.mkdir(parents=True, exist_ok=True)
    if study_runs:
        _check_same_data(plan)
    study.prepare_data(plan)
    for number, study_run in enumerate(study_runs, 1):
        is_done = is_trained(plan.out / study_run.name, study_run.job)
        events = iter(()) if is_done else run_training(prepare(study_run.job), plan.out / study_run.name)
        yield StudyRunProgress(study_run, number, len(study_runs), events, is_done)


def _check_same_data(plan: StudyPlan) -> None:
    """Refuse other data or another seed than those of earlier calls with the same directory."""
    path, now = plan.out / "study.json", {"data": hash_data(plan.data) if plan.data else "", "seed": plan.seed}
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) != now:
        raise RunRefused(f"{plan.out} has runs with other data or another seed; use another --out.")
    write_atomically(path, json.dumps(now) + "\n")


def measure_and_write(name: str, study: Study, plan: StudyPlan, on_progress: OnProgress = lambda text: None) -> Record:
    """Measure the trained runs, and write record.json and plot.png."""
    measured = study.measure(plan, study.plan_runs(plan), on_progress)
    record = {"study": name, "question": study.question, **_plan_facts(plan), **measured}
    write_atomically(plan.out / "record.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    study.draw_plot(record, plan.out / "plot.png")
    return record


def _plan_facts(plan: StudyPlan) -> Record:
    machine = describe_machine()
    settings = {"minutes": plan.minutes, "seed": plan.seed, "data": [Path(path).name for path in plan.data]}
    return {"date": str(machine["date"])[:10], "machine": machine, "plan": settings}


def is_trained(out: Path, job: Job) -> bool:
    """Whether a run has finished with the settings of a job; settings that the job does not specify may differ."""
    run = Run(out)
    if not (run.has_ended and run.settings):
        return False
    stored = run.settings
    expected = {"model": job.model_fields, "task": job.task_fields, "train": job.train_fields}
    if stored["run"]["task"] != job.task or stored["run"]["data"] != list(job.data):
        return False
    return all(
        _is_equal(stored[table].get(name), value)
        for table, given in expected.items()
        for name, value in given.items()
        if name != "vocab" and not is_auto(table, name, value)  # a tokenizer may have fewer tokens than requested
    )


def _is_equal(stored: Any, wanted: Any) -> bool:
    return stored == (list(wanted) if isinstance(wanted, tuple) else wanted)


def load_recipe(name: str) -> Record:
    """The tables of a built-in recipe: run, model, task and train."""
    return tomllib.loads((files("saccade") / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))


def write_atomically(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def load_result(out: Path) -> Record:
    """The result.json of a run."""
    return dict(Run(out).result)


def read_speed_log(out: Path) -> list[Record]:
    """The tokens and seconds of each step of a run."""
    return [json.loads(row) for row in (out / "speed.jsonl").read_text(encoding="utf-8").splitlines()]


def total_minutes(out: Path) -> float:
    """The minutes of all steps of a run."""
    return sum(row["seconds"] for row in read_speed_log(out)) / 60


def find_score(facts: Mapping[str, Any], split: str, name: str) -> Record:
    """A score of a finished run: value, low, high and count."""
    return next(score for score in facts["scores"][split] if score["name"] == name)


def format_score(score: Mapping[str, Any] | None, *, scale: float = 1.0, digits: int = 1) -> str:
    """A score with its confidence interval, or a dash for None.

    >>> format_score({"value": 0.4167, "low": 0.39, "high": 0.44}, scale=100), format_score(None)
    ('41.7 (39.0 to 44.0)', '-')
    """
    if score is None:
        return "-"
    value, low, high = (f"{scale * score[name]:.{digits}f}" for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"
