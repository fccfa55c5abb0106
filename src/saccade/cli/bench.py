"""`saccade bench`: measure what attention costs on this machine."""

import json as json_text
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.studies.measure import OK, Plan, machine

if TYPE_CHECKING:
    from saccade.studies.cost import Run

RACES = ("train", "generate", "translate", "quality")
COLUMNS = 120  # of the tables where no terminal says how wide it is


def call(name: str, argv: Sequence[str]) -> int:
    """Races beside the peers have files and flags of their own; all else is measured here."""
    if argv[:1] and argv[0] in RACES:
        race = import_module(f"saccade.cli.bench_{argv[0]}").main
        return tyro.cli(race, prog=f"saccade bench {argv[0]}", args=argv[1:])
    return tyro.cli(main, prog="saccade bench", args=argv) or 0


def main(
    subject: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUBJECT")],
    plan: tyro.conf.OmitArgPrefixes[Plan] = Plan(),  # noqa: B008 (frozen)
    *,
    out: Path = Path("bench/attention"),
    json: bool = False,
) -> int:
    """Measure time and peak memory, and write a table, a JSON file and a plot.

    Every mechanism from 256 to 16,384 tokens, which takes hours on two cores:

    $ saccade bench attention

    Two of them, in about a minute:

    $ saccade bench attention --mechanisms scaled_dot windowed --lengths 256 512 1024 --rounds 1

    As in a decoder, and nothing that takes longer than 20 seconds:

    $ saccade bench attention --causal --seconds 20

    For a machine to read; progress goes to the standard error:

    $ saccade bench attention --json > cost.json

    Training, generation and translation beside the peers have flags of their own:

    $ saccade bench train --help

    $ saccade bench generate --help

    $ saccade bench translate --help

    What fewer bits cost a writer of yours:

    $ saccade bench quality --help

    Each case runs in a process of its own, since a process's peak memory never falls. A case that runs out of memory or time
    is noted with its reason and the run goes on. Close other programs first: threads
    that wait for a busy core make short passes many times slower.

    Args:
        subject: What to measure: attention, train, generate, translate or quality.
        plan: What to measure, and how often.
        out: Directory for report.json and plot.png.
        json: Print the report as JSON and nothing else.
    """
    if subject not in SUBJECTS:
        print(f"Unknown subject {subject!r}; known are {', '.join([*SUBJECTS, *RACES])}.", file=sys.stderr)
        return 2
    try:
        return SUBJECTS[subject](plan, out, json)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


def attention(plan: Plan, out: Path, json: bool) -> int:
    """Every mechanism against length; stopped early, it reports what it has."""
    from saccade.studies import cost, picture

    facts, runs, code = machine(), [], 0
    plan.check()
    total = len(list(plan.cases(cost.names(plan))))
    out.mkdir(parents=True, exist_ok=True)
    try:
        for run in watched(cost.study(plan), total, plan.rounds):
            runs.append(run)
    except KeyboardInterrupt:
        code = 130
    report = cost.report(plan, runs, facts)
    text = json_text.dumps(report, indent=1, ensure_ascii=False)
    (out / "report.json").write_text(text + "\n", encoding="utf-8")
    if runs:
        picture.draw(report, out / "plot.png")
    if json:
        print(text)
    else:
        show(report)
        print(f"Written: {out / 'report.json'}, {out / 'plot.png'}")
    measured = any(run.outcome.status == OK for run in runs)
    return code if measured or code else 5


SUBJECTS = {"attention": attention}


def watched(runs: Iterable["Run"], total: int, rounds: int) -> Iterator["Run"]:
    """Pass the runs on and say how far we are: a bar on a terminal, plain lines elsewhere, both on the standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if not sys.stderr.isatty():
        print(f"{total} cases, each in its own process ({rounds} rounds of {total // rounds})", file=sys.stderr)
        for i, run in enumerate(runs, 1):
            print(f"{i}/{total} {told(run)}", file=sys.stderr, flush=True)
            yield run
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"{total} cases in {rounds} rounds", total=total)
        for run in runs:
            progress.update(task, advance=1, description=told(run))
            yield run


def told(run: "Run") -> str:
    """One run in one line."""
    case, outcome = run.case, run.outcome
    what = f"{case.mechanism} n={case.length} {'training' if case.training else 'forward'}"
    if outcome.status != OK:
        return f"{what}: {outcome.status}, {outcome.reason}"
    memory = "memory not measured" if outcome.peak is None else f"{outcome.peak / 1e6:,.0f} MB"
    return f"{what}: {1e3 * sorted(outcome.times)[len(outcome.times) // 2]:,.1f} ms, {memory}"


def show(report: dict) -> None:
    """The report as tables: every case, how they grow, and the formulas behind the counts."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=COLUMNS, color_system=None)
    for table in (case_table(report), growth_table(report), paper_table(report)):
        console.print(table)
        console.print()
    for text in notes(report):
        console.print(text, highlight=False)


def case_table(report: dict):
    """Measured beside counted, a line for each mechanism and length."""
    heads = ["mechanism", "n", "forward ms", "training ms", "fwd MB", "train MB", "mult.-adds", "N×M", "N×M·heads"]
    table = empty(
        "Measured: median (quartiles); peak memory with q, k and v. Counted: multiply-adds forward, scalars", heads
    )
    cases = {(case["mechanism"], case["length"], case["mode"]): case for case in report["cases"]}
    last = None
    for name, length in dict.fromkeys((case["mechanism"], case["length"]) for case in sorted_cases(report)):
        forward, training = cases.get((name, length, "forward")), cases.get((name, length, "training"))
        counted = [short(forward[x]) for x in ("multiply_adds", "pairs_per_head", "pairs")] if forward else []
        measured = (spread(forward), spread(training), megabytes(forward), megabytes(training))
        if last not in (None, name):
            table.add_section()
        table.add_row(name if name != last else "", f"{length:,}", *measured, *counted)
        last = name
    return table


def sorted_cases(report: dict) -> list[dict]:
    order = [line["name"] for line in report["mechanisms"]]
    return sorted(report["cases"], key=lambda case: (order.index(case["mechanism"]), case["length"]))


def growth_table(report: dict):
    heads = ["mechanism", "cost", "time forward", "time training", "memory forward", "memory training"]
    table = empty("Growth: the power of n, ± its standard error", heads)
    for line in report["mechanisms"]:
        powers = [power(line[kind][mode]) for kind in ("time", "memory") for mode in ("forward", "training")]
        table.add_row(line["name"], line["cost"], *powers)
    return table


def paper_table(report: dict):
    table = empty(
        "On paper: n tokens, m heads of width d", ["mechanism", "N×M of a head", "multiply-adds forward, all heads"]
    )
    for line in report["mechanisms"]:
        table.add_row(line["name"], line["pairs"], line["multiply_adds"])
    for column in table.columns:
        column.justify = "left"
    return table


def notes(report: dict) -> Iterator[str]:
    """What a reader needs beside the numbers."""
    facts, plan = report["machine"], report["plan"]
    yield "Dense attention is O(m d n²) with d the width of one head, and O(D n²) with D = m d that of all heads."
    for line in report["mechanisms"]:
        if "recall" in line:
            found = line["recall"]
            yield (
                f"{line['name']} finds {found['recall']:.0%} of the {found['top']} keys that matter most, where chance would "
                f"find {found['seen']:.0%} (n = {found['length']:,},\n"
                f"random vectors, q = k, so one of the {found['top']} is the token itself)."
            )
    for case in sorted_cases(report):
        if case["status"] != OK:
            yield f"{case['mechanism']} n = {case['length']:,} {case['mode']}: {case['status']}, {case['reason']}."
    yield (
        f"{facts['cpu']}, cores: {facts['cores']}, threads: {facts['threads']}, torch {facts['torch']}; "
        f"rounds: {plan['rounds']}; load before the start: {facts['load']}."
    )
    if (facts["load"] or 0) > facts["cores"] / 2:
        yield "The machine was busy before the start, so times are too long; wait until it is quiet (--threads 1 suffers less)."


def empty(title: str, heads: list[str]):
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_style="bold")
    for head in heads:
        table.add_column(head, justify="left" if head in ("mechanism", "cost") else "right", overflow="fold")
    return table


def spread(case: dict | None) -> str:
    if case is None:
        return "-"
    if case["status"] != OK:
        return case["status"]
    median, low, high = (number(case["ms"][x]) for x in ("median", "low", "high"))
    return f"{median} ({low}-{high})"


def megabytes(case: dict | None) -> str:
    return "-" if case is None or case["peak_mb"] is None else number(case["peak_mb"])


def power(grown: dict | None) -> str:
    if grown is None:
        return "-"
    return f"{grown['exponent']:.2f}" + ("" if grown["error"] is None else f" ± {grown['error']:.2f}")


def number(x: float) -> str:
    """Three digits are as many as a noisy machine gives."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def short(x: float | None) -> str:
    """A large count in three digits: 1.07 G."""
    if x is None:
        return "-"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.3g} {letter}"
    return f"{x:.0f}"
