"""`saccade study NAME`: an experiment from its data to a record, a table and a plot; the same command again goes on."""

import json as json_text
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import tyro

from saccade.studies.table import STUDIES, study

if TYPE_CHECKING:
    from saccade.studies.study import Grid, Plan, Study, Turn

NAMES = "; ".join(f"{name}: {asks}" for name, asks in STUDIES.items()) + "."
COLUMNS = 140  # of the tables where no terminal says how wide it is


def main(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help=NAMES)],
    *,
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    runs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN")] = (),
    out: Path | None = None,
    minutes: float = 0.0,
    seed: int = 0,
    dry_run: tyro.conf.FlagCreatePairsOff[bool] = False,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Train all that a question needs, measure it, and write the answer: record.json, plot.png and a table.

    Each member is a run of its own in the directory of the study. The same command again goes on where it stopped, and what is
    trained is not trained again: every command for runs (evaluate, look, predict) works on members, too.

    What would be trained, and for how long; nothing is written:

    $ saccade study listops --dry-run

    Six readers on nested lists, your own files of them, 90 minutes in all:

    $ saccade study listops --data short.tsv long.tsv --out studies/listops

    Hard against soft attention, in half the time:

    $ saccade study gaze --minutes 10

    Attention against one fixed vector, with two runs that exist:

    $ saccade study lengths --runs runs/rnn runs/rnn-fixed

    Args:
        data: Files or directories; none: what the package makes itself, where the study has such.
        runs: Runs that are trained already, where the study takes them.
        out: The directory of the study; none: studies/NAME.
        minutes: For all trainings and measurements together; 0: what the study says.
        seed: Of all draws.
        dry_run: Say what would be trained, and for how long; write nothing.
        json: Print the record as JSON, and all else on the error stream.
    """
    from saccade.cli.running import guarded

    if name not in STUDIES:
        from saccade.attention.table import nearest

        print(f"saccade study: there is no study {name!r}; {nearest(name, list(STUDIES))}", file=sys.stderr)
        return 2
    stream = sys.stderr if json else sys.stdout

    def work() -> int:
        from saccade.studies.study import Plan

        asked = study(name)
        plan = Plan(out or Path("studies") / name, data, runs, minutes or asked.minutes, seed)
        return _rehearsed(asked, plan, stream) if dry_run else _carried_out(name, asked, plan, as_json=json)

    return guarded("study", work)


def _rehearsed(asked: "Study", plan: "Plan", stream: TextIO) -> int:
    print(asked.asks, file=stream)
    members = asked.members(plan)
    for member in members:
        print(
            f"  {plan.out / member.name}: {member.minutes:.3g} minutes; {member.said or member.job.model}", file=stream
        )
    trained = sum(member.minutes for member in members)
    print(f"{len(members)} trainings, {trained:.3g} minutes; with measurements about {plan.minutes:.3g}.", file=stream)
    print("Nothing was written.", file=stream)
    return 0


def _carried_out(name: str, asked: "Study", plan: "Plan", *, as_json: bool) -> int:
    from saccade.studies.study import conclude, turns

    stream = sys.stderr if as_json else sys.stdout
    for turn in turns(asked, plan):
        print(_heading(turn), file=stream, flush=True)
        signal = _trained(turn, plan.out / turn.member.name, stream)
        if signal is not None:
            return 128 + signal
    record = conclude(name, asked, plan, lambda text: print(text, file=stream, flush=True))
    if as_json:
        print(json_text.dumps(record, ensure_ascii=False))
    else:
        show(asked.tables(record))
    print(f"written    {plan.out / 'record.json'}, {plan.out / 'plot.png'}", file=stream)
    return 0


def _heading(turn: "Turn") -> str:
    state = "trained already" if turn.trained else f"{turn.member.minutes:.3g} minutes"
    said = f"; {turn.member.said}" if turn.member.said else ""
    return f"{turn.number} of {turn.count}: {turn.member.name}, {state}{said}"


def _trained(turn: "Turn", out: Path, stream: TextIO) -> int | None:
    """Train one member; the signal that ended it, if one did."""
    from saccade.cli.progress import Progress
    from saccade.training.events import Result

    signal: int | None = None
    with Progress(out, stream) as progress:
        for event in turn.events:
            progress.show(event)
            if isinstance(event, Result):
                signal = event.signal
    return signal


def show(grids: "Sequence[Grid]") -> None:
    """Tables for a person."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from saccade.cli.terminal import terminal

    console = Console(file=terminal(sys.stdout))
    if not sys.stdout.isatty():
        console = Console(file=terminal(sys.stdout), width=COLUMNS, color_system=None)
    for grid in grids:
        table = Table(title=grid.title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
        for number, head in enumerate(grid.heads):
            table.add_column(head, justify="right" if number else "left", overflow="fold")
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
        for note in grid.notes:
            console.print(note, highlight=False, markup=False)
