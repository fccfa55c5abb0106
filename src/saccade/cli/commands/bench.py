"""`saccade bench`: measure what attention costs on this machine."""

import json as json_text
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.bench.measure import OK, BenchPlan
from saccade.cli.argument_types import NAME_REGISTRY
from saccade.system import describe_machine

if TYPE_CHECKING:
    from saccade.bench.attention_cost import BenchRun

DEFAULT_TABLE_WIDTH = 120  # of the tables where no terminal says how wide it is


def call(name: str, argv: Sequence[str]) -> int:
    """`bench quality` has a file and flags of its own; all else is measured here."""
    if argv[:1] == ["quality"]:
        from saccade.cli.commands.bench_quality import main as quality

        return tyro.cli(quality, prog="saccade bench quality", args=argv[1:])
    return tyro.cli(main, prog="saccade bench", args=argv, registry=NAME_REGISTRY) or 0


def main(
    subject: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUBJECT")],
    plan: tyro.conf.OmitArgPrefixes[BenchPlan] = BenchPlan(),  # noqa: B008 (frozen)
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("bench/attention"),
    json: bool = False,
) -> int:
    """Benchmark attention: measure time and peak memory, and write a table, a JSON report and a plot.

    All mechanisms from 256 to 16,384 tokens, which takes hours on two cores:

    $ saccade bench attention

    Two of them, in about a minute:

    $ saccade bench attention --mechanisms scaled_dot windowed --lengths 256 512 1024 --rounds 1

    With causal masking, as in a decoder, and a time limit of 20 seconds per case:

    $ saccade bench attention --causal --timeout 20

    Machine-readable output; progress goes to standard error:

    $ saccade bench attention --json > cost.json

    The quality loss by quantized inference of your own model:

    $ saccade bench quality --help

    Each case runs in its own process, because the peak memory of a process never falls. A case that runs out of memory or time is
    reported with its reason, and the benchmark continues. Close other programs first: threads that wait for a busy core make
    short passes many times slower.

    Args:
        subject: What to measure: attention or quality.
        plan: Cases to measure, repeats and limits.
        out: Output directory of report.json and plot.png.
        json: Print the report as JSON and nothing else.
    """
    if subject not in SUBJECTS:
        print(f"Unknown subject {subject!r}; known are {', '.join([*SUBJECTS, 'quality'])}.", file=sys.stderr)
        return 2
    try:
        return SUBJECTS[subject](plan, out, json)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


def bench_attention(plan: BenchPlan, out: Path, json: bool) -> int:
    """Every mechanism against length; stopped early, it reports what it has."""
    from saccade.bench import attention_cost, attention_plot

    facts, runs, code = describe_machine(), [], 0
    plan.check()
    total = len(list(plan.iter_cases(attention_cost.resolve_mechanisms(plan))))
    out.mkdir(parents=True, exist_ok=True)
    try:
        for run in report_progress(attention_cost.run_cases(plan), total, plan.rounds):
            runs.append(run)
    except KeyboardInterrupt:
        code = 130
    report = attention_cost.make_report(plan, runs, facts)
    text = json_text.dumps(report, indent=1, ensure_ascii=False)
    (out / "report.json").write_text(text + "\n", encoding="utf-8")
    if runs:
        attention_plot.draw_plot(report, out / "plot.png")
    if json:
        print(text)
    else:
        print_report(report)
        print(f"Written: {out / 'report.json'}, {out / 'plot.png'}")
    measured = any(run.outcome.status == OK for run in runs)
    return code if measured or code else 5


SUBJECTS = {"attention": bench_attention}


def report_progress(runs: Iterable["BenchRun"], total: int, rounds: int) -> Iterator["BenchRun"]:
    """Pass the runs on and say how far we are: a bar on a terminal, plain lines elsewhere, both on the standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if not sys.stderr.isatty():
        print(f"{total} cases, each in its own process ({rounds} rounds of {total // rounds})", file=sys.stderr)
        for i, run in enumerate(runs, 1):
            print(f"{i}/{total} {format_run(run)}", file=sys.stderr, flush=True)
            yield run
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"{total} cases in {rounds} rounds", total=total)
        for run in runs:
            progress.update(task, advance=1, description=format_run(run))
            yield run


def format_run(run: "BenchRun") -> str:
    """One run in one line."""
    case, outcome = run.case, run.outcome
    what = f"{case.mechanism} n={case.length} {'training' if case.training else 'forward'}"
    if outcome.status != OK:
        return f"{what}: {outcome.status}, {outcome.reason}"
    memory = "memory not measured" if outcome.peak_bytes is None else f"{outcome.peak_bytes / 1e6:,.0f} MB"
    return f"{what}: {1e3 * sorted(outcome.seconds)[len(outcome.seconds) // 2]:,.1f} ms, {memory}"


def print_report(report: dict) -> None:
    """The report as tables: every case, how they grow, and the formulas behind the counts."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=DEFAULT_TABLE_WIDTH, color_system=None)
    for table in (make_case_table(report), make_growth_table(report), make_formula_table(report)):
        console.print(table)
        console.print()
    for text in format_notes(report):
        console.print(text, highlight=False)


def make_case_table(report: dict):
    """Measured beside counted, a line for each mechanism and length."""
    heads = ["mechanism", "n", "forward ms", "training ms", "fwd MB", "train MB", "mult.-adds", "N×M", "N×M·heads"]
    table = make_empty_table(
        "Measured: median (quartiles); peak memory with q, k and v. Counted: multiply-adds forward, scalars", heads
    )
    cases = {(case["mechanism"], case["length"], case["mode"]): case for case in report["cases"]}
    last = None
    for name, length in dict.fromkeys((case["mechanism"], case["length"]) for case in sort_cases(report)):
        forward, training = cases.get((name, length, "forward")), cases.get((name, length, "training"))
        counted = [format_count(forward[x]) for x in ("multiply_adds", "pairs_per_head", "pairs")] if forward else []
        measured = (
            format_quartiles(forward),
            format_quartiles(training),
            format_peak_memory(forward),
            format_peak_memory(training),
        )
        if last not in (None, name):
            table.add_section()
        table.add_row(name if name != last else "", f"{length:,}", *measured, *counted)
        last = name
    return table


def sort_cases(report: dict) -> list[dict]:
    order = [line["name"] for line in report["mechanisms"]]
    return sorted(report["cases"], key=lambda case: (order.index(case["mechanism"]), case["length"]))


def make_growth_table(report: dict):
    heads = ["mechanism", "cost", "time forward", "time training", "memory forward", "memory training"]
    table = make_empty_table("Growth: the power of n, ± its standard error", heads)
    for line in report["mechanisms"]:
        powers = [format_exponent(line[kind][mode]) for kind in ("time", "memory") for mode in ("forward", "training")]
        table.add_row(line["name"], line["cost"], *powers)
    return table


def make_formula_table(report: dict):
    table = make_empty_table(
        "On paper: n tokens, m heads of width d", ["mechanism", "N×M of a head", "multiply-adds forward, all heads"]
    )
    for line in report["mechanisms"]:
        table.add_row(line["name"], line["pairs"], line["multiply_adds"])
    for column in table.columns:
        column.justify = "left"
    return table


def format_notes(report: dict) -> Iterator[str]:
    """What a reader needs beside the numbers."""
    facts, plan = report["machine"], report["plan"]
    yield "Dense attention is O(m d n²) with d the width of one head, and O(D n²) with D = m d that of all heads."
    for line in report["mechanisms"]:
        if "recall" in line:
            found = line["recall"]
            yield (
                f"{line['name']} finds {found['recall']:.0%} of the {found['top_k']} keys that matter most, where chance would "
                f"find {found['visible_fraction']:.0%} (n = {found['length']:,},\n"
                f"random vectors, q = k, so one of the {found['top_k']} is the token itself)."
            )
    for case in sort_cases(report):
        if case["status"] != OK:
            yield f"{case['mechanism']} n = {case['length']:,} {case['mode']}: {case['status']}, {case['reason']}."
    yield (
        f"{facts['cpu']}, cores: {facts['cores']}, threads: {facts['threads']}, torch {facts['torch']}; "
        f"rounds: {plan['rounds']}; load before the start: {facts['load']}."
    )
    if (facts["load"] or 0) > facts["cores"] / 2:
        yield "The machine was busy before the start, so times are too long; wait until it is quiet (--threads 1 suffers less)."


def make_empty_table(title: str, headers: list[str]):
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_style="bold")
    for head in headers:
        table.add_column(head, justify="left" if head in ("mechanism", "cost") else "right", overflow="fold")
    return table


def format_quartiles(case: dict | None) -> str:
    if case is None:
        return "-"
    if case["status"] != OK:
        return case["status"]
    median, low, high = (format_number(case["ms"][x]) for x in ("median", "low", "high"))
    return f"{median} ({low}-{high})"


def format_peak_memory(case: dict | None) -> str:
    return "-" if case is None or case["peak_mb"] is None else format_number(case["peak_mb"])


def format_exponent(fit: dict | None) -> str:
    if fit is None:
        return "-"
    return f"{fit['exponent']:.2f}" + ("" if fit["standard_error"] is None else f" ± {fit['standard_error']:.2f}")


def format_number(x: float) -> str:
    """Three digits are as many as a noisy machine gives."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def format_count(x: float | None) -> str:
    """A large count in three digits: 1.07 G."""
    if x is None:
        return "-"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.3g} {letter}"
    return f"{x:.0f}"
