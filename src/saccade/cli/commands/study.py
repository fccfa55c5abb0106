"""`saccade study NAME`: run an experiment from its data to a record, a table and a plot; the same command again resumes it."""

import json as json_text
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import tyro

from saccade.cli.argument_types import DirectoryFlag, FileFlag, optional_argument
from saccade.studies.registry import STUDIES, load_study

if TYPE_CHECKING:
    from saccade.studies.study import Study, StudyPlan, StudyRunProgress, StudyTable

STUDIES_HELP = "Study to run. " + "; ".join(f"{name}: {asks}" for name, asks in STUDIES.items()) + "."
DEFAULT_TABLE_WIDTH = 140  # of tables that are not printed to a terminal


def main(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help=STUDIES_HELP)],
    *,
    data: FileFlag = (),
    trained_runs: Annotated[tuple[str, ...], optional_argument("RUN")] = (),
    out: DirectoryFlag = None,
    minutes: float = 0.0,
    seed: int = 0,
    dry_run: tyro.conf.FlagCreatePairsOff[bool] = False,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Run a study: train its models, measure them, and write record.json, plot.png and a table.

    Each model is a run in the directory of the study. Run the same command again to resume; finished models are not trained
    again. Every command for runs, such as evaluate, look and predict, works on them, too.

    Print what would be trained, and for how long:

    saccade study listops --dry-run

    Six encoders on your own files of nested lists, 90 minutes in total:

    saccade study listops --data short.tsv long.tsv --out studies/listops

    Hard and soft attention, in half the default time:

    saccade study hard_vs_soft --minutes 10

    Attention and a fixed vector, with two runs that are already trained:

    saccade study lengths --trained-runs runs/rnn runs/rnn-fixed

    Args:
        data: Data files or directories; default: the generated data of the study, if it has any.
        trained_runs: Runs that are already trained, for studies that accept them.
        out: Directory of the study; default: studies/NAME.
        minutes: Time limit of all training and measurement in minutes; 0 takes the default of the study.
        seed: Random seed of data and training.
        dry_run: Dry run: print what would be trained, and for how long; write nothing.
        json: Print the record as JSON; everything else goes to standard error.
    """
    from saccade.cli.exit_codes import run_command

    if name not in STUDIES:
        from saccade.suggest import suggest

        print(f"saccade study: there is no study {name!r}; {suggest(name, list(STUDIES))}", file=sys.stderr)
        return 2
    stream = sys.stderr if json else sys.stdout

    def work() -> int:
        from saccade.studies.study import StudyPlan

        study = load_study(name)
        plan = StudyPlan(out or Path("studies") / name, data, trained_runs, minutes or study.default_minutes, seed)
        return _print_plan(study, plan, stream) if dry_run else _run_study(name, study, plan, as_json=json)

    return run_command("study", work)


def _print_plan(experiment: "Study", plan: "StudyPlan", stream: TextIO) -> int:
    print(experiment.question, file=stream)
    runs = experiment.plan_runs(plan)
    for run in runs:
        print(f"  {plan.out / run.name}: {run.minutes:.3g} minutes; {run.description or run.job.family}", file=stream)
    minutes = sum(run.minutes for run in runs)
    print(f"{len(runs)} training runs, {minutes:.3g} minutes; with measurements about {plan.minutes:.3g}.", file=stream)
    print("Dry run: nothing was written.", file=stream)
    return 0


def _run_study(name: str, experiment: "Study", plan: "StudyPlan", *, as_json: bool) -> int:
    from saccade.studies.study import measure_and_write, train_runs

    stream = sys.stderr if as_json else sys.stdout
    for progress in train_runs(experiment, plan):
        print(_format_heading(progress), file=stream, flush=True)
        signal = _train_member(progress, plan.out / progress.study_run.name, stream)
        if signal is not None:
            return 128 + signal
    record = measure_and_write(name, experiment, plan, lambda text: print(text, file=stream, flush=True))
    if as_json:
        print(json_text.dumps(record, ensure_ascii=False))
    else:
        print_tables(experiment.make_tables(record))
    print(f"written    {plan.out / 'record.json'}, {plan.out / 'plot.png'}", file=stream)
    return 0


def _format_heading(study_run: "StudyRunProgress") -> str:
    run = study_run.study_run
    state = "already trained" if study_run.is_trained else f"{run.minutes:.3g} minutes"
    description = f"; {run.description}" if run.description else ""
    return f"{study_run.number} of {study_run.count}: {run.name}, {state}{description}"


def _train_member(study_run: "StudyRunProgress", out: Path, stream: TextIO) -> int | None:
    """Train one model of a study; returns the signal that ended training, if any."""
    from saccade.cli.train_progress import TrainProgress
    from saccade.training.events import RunResult

    signal: int | None = None
    with TrainProgress(out, stream) as progress:
        for event in study_run.events:
            progress.show(event)
            if isinstance(event, RunResult):
                signal = event.signal
    return signal


def print_tables(tables: "Sequence[StudyTable]") -> None:
    """Print the tables of a study with their notes."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from saccade.cli.terminal import unwrap_stream

    console = Console(file=unwrap_stream(sys.stdout))
    if not sys.stdout.isatty():
        console = Console(file=unwrap_stream(sys.stdout), width=DEFAULT_TABLE_WIDTH, color_system=None)
    for table in tables:
        grid = Table(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
        for number, head in enumerate(table.headers):
            grid.add_column(head, justify="right" if number else "left", overflow="fold")
        for row in table.rows:
            grid.add_row(*row)
        console.print(grid)
        for note in table.notes:
            console.print(note, highlight=False, markup=False)
