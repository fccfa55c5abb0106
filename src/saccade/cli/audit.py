"""`saccade audit RUN`: what a model does to whom, measured, with intervals and with what the figures do not show."""

import json as json_text
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.audit.change import Change
    from saccade.audit.marks import Mark
    from saccade.audit.suite import Finding, Grid, Subject, Suite
    from saccade.tasks.task import Task

Files = Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class Asked:
    """Which data are asked about, under which rule, and beside which other model."""

    data: Files = ()
    """Data of your own with answers; none: those of the run."""
    columns: str = ""
    """Which column is what: text=review,label=stars. Columns that training named need not be named again."""
    by: str = ""
    """A column of the data: scores are also given for each of its values."""
    sentences: Files = ()
    """Test sentences of your own, in the form that the suite knows, such as CrowS-Pairs or StereoSet."""
    forbidden: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Words, or several words, a line each, that the model may not write in suites that read what it writes."""
    judge: Annotated[str, tyro.conf.arg(metavar="RUN")] = ""
    """A run of saccade train label that judges regard (negative, neutral, positive) instead of our own small judge."""
    before: Annotated[str, tyro.conf.arg(metavar="RUN|FILE")] = ""
    """A run that was audited before something was done about it, or its audit.json: both in one table."""


def main(
    run: tyro.conf.Positional[str],
    *,
    suite: tuple[str, ...] = (),
    asked: tyro.conf.OmitArgPrefixes[Asked] = Asked(),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Audit a model with the suites that apply to its task, and write what was found to audit.json in its run.

    saccade audit runs/reviews

    saccade audit runs/reviews --suite swap --data test.tsv --by country

    saccade audit label --data reviews.tsv

    saccade audit runs/after --before runs/reviews

    Args:
        run: A run, a directory with a model, or the name of a task: then its data are audited before there is a model.
        suite: Only these suites: data, swap, pairs and others that saccade audit --suite list names.
        asked: Which data are asked about, and what they are read against.
        json: Print JSON.
    """
    from saccade.cli.running import guarded

    return guarded("audit", lambda: _audit(run, suite, asked, json))


def _audit(run: str, names: tuple[str, ...], asked: Asked, as_json: bool) -> int:
    from saccade.audit.marks import Audited
    from saccade.audit.records import Stored, write_audits
    from saccade.audit.table import reasons
    from saccade.cli.audit_before import changed, opened, under
    from saccade.cli.settings import Wrong

    if names == ("list",):
        return _list(as_json)
    if asked.sentences and len(names) != 1:
        raise Wrong("--sentences are for one suite; name it with --suite, such as --suite pairs.")
    before = opened(asked.before) if asked.before else None
    task, subject, mark = _subject(run, asked)
    if before is not None and subject.model is None:
        raise Wrong(f"--before compares two models, and {run} is a task; name a run.")
    suites, missing = _chosen(run, names, task, subject)
    found: dict[str, Audited] = {}
    for suite in suites:
        finding = _run(suite, subject)
        found[under(finding)] = Audited(finding, _marked(mark, suite, subject))
        if not as_json:
            _print(finding)
    change = None if before is None else changed(before, found, run)
    written = None if subject.model is None else write_audits(Path(run), Stored(found, missing, change))
    others = reasons(task)
    if as_json:
        told = {"suites": {name: one.finding.as_dict() for name, one in found.items()}, "missing": missing}
        told |= {} if change is None else {"change": change.as_dict()}
        print(json_text.dumps(told | {"unfit": others, "written": written and str(written)}, ensure_ascii=False))
        return 0
    if change is not None:
        _print_change(change)
    for name, why in {**missing, **({} if names else others)}.items():
        print(f"{name}: not run, as {why}.")
    if written is not None:
        print(f"written    {written}")
    return 0


def _list(as_json: bool) -> int:
    from saccade.audit.table import SUITES

    if as_json:
        print(json_text.dumps({suite.name: suite.said for suite in SUITES}))
        return 0
    for suite in SUITES:
        print(f"{suite.name:<10} {suite.said}")
    return 0


def _subject(run: str, asked: Asked) -> "tuple[Task, Subject, Mark]":
    """The model with its task and data, and a mark of both."""
    from saccade.audit.marks import SHORT, Mark, weights_mark
    from saccade.audit.records import model_of
    from saccade.audit.suite import Subject
    from saccade.cli.audit_before import forbidden_in
    from saccade.cli.audit_data import data_of
    from saccade.tasks.opening import open_run
    from saccade.tasks.table import TASKS

    sentences = tuple(map(Path, asked.sentences))
    kind = next((entry for entry in TASKS if entry.name == run), None)
    if kind is not None and not Path(run).exists():
        task, model, weights = kind(), None, ""
    else:
        home = model_of(run)[1]
        (task, model), weights = open_run(run), weights_mark(home)
    data = data_of(run, task, asked)
    mark = Mark("") if data is None else data.mark
    subject = Subject(task, model, by=asked.by, sentences=sentences, forbidden=forbidden_in(asked.forbidden))
    if asked.judge:
        judge, who = open_run(asked.judge, "label"), asked.judge  # of a name on the hub there is nothing else to say
        if Path(who).is_dir():
            who = f"{Path(who).resolve().name}, whose weights are {weights_mark(model_of(who)[1])[:SHORT]}"
        subject = replace(subject, judge=judge, judged_by=who)
    if data is not None:
        subject = replace(subject, held=data.held, splits=data.splits)
    return task, subject, replace(mark, weights=weights)


def _chosen(run: str, names: tuple[str, ...], task: "Task", subject: "Subject") -> "tuple[list[Suite], dict[str, str]]":
    """The suites to run, and those that would apply but lack what they read."""
    from saccade.audit.table import suite_named, suites_for
    from saccade.cli.settings import Wrong

    try:
        suites = [suite_named(name) for name in names] or suites_for(task)
    except ValueError as error:
        raise Wrong(str(error)) from None
    for suite in suites:
        if why := suite.unfit(task):
            raise Wrong(f"the suite {suite.name} does not apply to {run}: {why}.")
    suites = _with_column(suites, subject)
    if subject.judge is not None and not any(suite.name == "regard" for suite in suites):
        raise Wrong("--judge is for the suite regard, which is not among those that are run; add --suite regard.")
    if subject.forbidden and not (names and all(suite.writes for suite in suites)):
        raise Wrong("--forbidden is for suites that read what a model writes; name them, such as --suite regard.")
    if subject.model is None:
        return [suite for suite in suites if suite.name == "data"], {}
    missing = {}
    for suite in suites:
        if "held" in suite.reads and not subject.held:
            raise UsageError(f"{run}: is no run, so it has no held-out data for the suite {suite.name}; give --data.")
        if "splits" in suite.reads and subject.splits is None:
            missing[suite.name] = "its training data are not here (give them with --data)"
    return [suite for suite in suites if suite.name not in missing], missing


def _with_column(suites: "list[Suite]", subject: "Subject") -> "list[Suite]":
    """The suites and, where none of them tells a column that was asked for, the one that does."""
    from saccade.audit.by import By

    told = not subject.by or subject.model is None or any(suite.name == "swap" for suite in suites)
    return suites if told else [*suites, By()]


def _run(suite: "Suite", subject: "Subject") -> "Finding":
    from saccade.cli.waiting import Waiting

    with Waiting() as waiting:
        return suite.run(replace(subject, told=waiting.told))


def _marked(mark: "Mark", suite: "Suite", subject: "Subject") -> "Mark":
    """What a finding was made of: data only where the suite reads them, test sentences where it brings or takes them."""
    from saccade.audit.marks import Mark, data_mark

    if suite.reads:
        return mark
    if subject.sentences:
        return replace(data_mark([str(path) for path in subject.sentences], {}, ""), weights=mark.weights)
    return Mark(mark.weights, source=suite.source())


def _print(finding: "Finding") -> None:
    """A finding for a person."""
    print(f"\n{finding.suite}")
    for figure in finding.figures:
        print(f"  {figure}")
    for note in finding.notes:
        print(f"  {note}")
    for grid in (*finding.grids, *([finding.examples] if finding.examples else [])):
        _print_grid(grid, most=12)
    print(f"\n  Read against: {finding.baseline}\n  Not shown: {finding.limits}", flush=True)
    sys.stdout.flush()


def _print_grid(grid: "Grid", *, most: int) -> None:
    print(f"\n  {grid.title}")
    for row in (grid.heads, *grid.rows[:most]):
        print("    " + "  ".join(cell if len(cell) < 60 else cell[:57] + "..." for cell in row))
    if len(grid.rows) > most:
        print(f"    and {len(grid.rows) - most} more in audit.json")


def _print_change(change: "Change") -> None:
    """Both audits beside each other, and the warning that belongs to them."""
    from saccade.audit.change import WARNING

    _print_grid(change.grid, most=len(change.rows))
    for line in (*change.notes, WARNING):
        print(f"  {line}", flush=True)
