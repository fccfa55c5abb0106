"""`saccade bench`: benchmark time and peak memory of attention on this machine."""

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

DEFAULT_TABLE_WIDTH = 120  # of tables that are not printed to a terminal


def call(name: str, argv: Sequence[str]) -> int:
    """Run `bench quality`, which has its own module and flags, or a benchmark of this module."""
    if argv[:1] == ["quality"]:
        from saccade.cli.bench_quality import main as quality

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

    saccade bench attention

    Two of them, in about a minute:

    saccade bench attention --mechanisms scaled_dot windowed --lengths 256 512 1024 --rounds 1

    With causal masking, as in a decoder, and a time limit of 20 seconds per case:

    saccade bench attention --causal --timeout 20

    Machine-readable output; progress goes to standard error:

    saccade bench attention --json > cost.json

    Quality loss of quantized inference with your own model:

    saccade bench quality --help

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
        print(
            f"saccade bench: unknown subject {subject!r}; known are {', '.join([*SUBJECTS, 'quality'])}.",
            file=sys.stderr,
        )
        return 2
    try:
        return SUBJECTS[subject](plan, out, json)
    except ValueError as error:
        print(f"saccade bench: {error}", file=sys.stderr)
        return 2


def bench_attention(plan: BenchPlan, out: Path, json: bool) -> int:
    """Benchmark every mechanism at every length; if interrupted, report the finished cases."""
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
        print(f"written    {out / 'report.json'}, {out / 'plot.png'}")
    measured = any(run.outcome.status == OK for run in runs)
    return code if measured or code else 5


SUBJECTS = {"attention": bench_attention}


def report_progress(runs: Iterable["BenchRun"], total: int, rounds: int) -> Iterator["BenchRun"]:
    """Yield the runs and show progress on standard error: a bar on a terminal, plain lines elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if not sys.stderr.isatty():
        print(f"{total} cases, {total // rounds} per round, each in its own process", file=sys.stderr)
        for i, run in enumerate(runs, 1):
            print(f"{i}/{total} {format_run(run)}", file=sys.stderr, flush=True)
            yield run
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"{total} cases, {total // rounds} per round", total=total)
        for run in runs:
            progress.update(task, advance=1, description=format_run(run))
            yield run


def format_run(run: "BenchRun") -> str:
    """One line with the median time and the peak memory of a run."""
    case, outcome = run.case, run.outcome
    label = f"{case.mechanism} n={case.length} {'training' if case.training else 'forward'}"
    if outcome.status != OK:
        return f"{label}: {outcome.status}, {outcome.reason}"
    memory = "memory not measured" if outcome.peak_bytes is None else f"{outcome.peak_bytes / 1e6:,.0f} MB"
    return f"{label}: {1e3 * sorted(outcome.seconds)[len(outcome.seconds) // 2]:,.1f} ms, {memory}"


def print_report(report: dict) -> None:
    """Print the report as tables: every case, growth with length, and the formulas of the counts."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=DEFAULT_TABLE_WIDTH, color_system=None)
    for table in (make_case_table(report), make_growth_table(report), make_formula_table(report)):
        console.print(table)
        console.print()
    for text in format_notes(report):
        console.print(text, highlight=False)


def make_case_table(report: dict):
    """The table of measured times and memory and counted operations, one row per mechanism and length."""
    heads = ["mechanism", "n", "forward ms", "training ms", "fwd MB", "train MB", "mult.-adds", "N×M", "N×M·heads"]
    title = "Measured: median (quartiles); peak memory with q, k and v. Counted: multiply-adds forward, scalars"
    table = make_empty_table(title, heads)
    cases = {(case["mechanism"], case["length"], case["mode"]): case for case in report["cases"]}
    last = None
    for name, length in dict.fromkeys((case["mechanism"], case["length"]) for case in sort_cases(report)):
        forward, training = cases.get((name, length, "forward")), cases.get((name, length, "training"))
        counted = [format_count(forward[x]) for x in ("multiply_adds", "pairs_per_head", "pairs")] if forward else []
        times = format_quartiles(forward), format_quartiles(training)
        measured = (*times, format_peak_memory(forward), format_peak_memory(training))
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
    table = make_empty_table("Growth: exponent of n ± its standard error", heads)
    for line in report["mechanisms"]:
        powers = [format_exponent(line[kind][mode]) for kind in ("time", "memory") for mode in ("forward", "training")]
        table.add_row(line["name"], line["cost"], *powers)
    return table


def make_formula_table(report: dict):
    heads = ["mechanism", "N×M per head", "multiply-adds forward, all heads"]
    table = make_empty_table("Formulas: n tokens, m heads of width d", heads)
    for line in report["mechanisms"]:
        table.add_row(line["name"], line["pairs"], line["multiply_adds"])
    for column in table.columns:
        column.justify = "left"
    return table


def format_notes(report: dict) -> Iterator[str]:
    """The notes below the tables: asymptotic cost, recall of LSH attention, failed cases, and the machine."""
    machine, plan = report["machine"], report["plan"]
    yield "Dense attention is O(m d n²) with d the width of one head, and O(D n²) with D = m d that of all heads."
    for line in report["mechanisms"]:
        if "recall" in line:
            recall = line["recall"]
            yield (
                f"{line['name']} finds {recall['recall']:.0%} of the {recall['top_k']} keys with the highest weights; by chance "
                f"it would be {recall['visible_fraction']:.0%} (n = {recall['length']:,},\n"
                f"random vectors, q = k, so one of the {recall['top_k']} is the token itself)."
            )
    for case in sort_cases(report):
        if case["status"] != OK:
            yield f"{case['mechanism']} n = {case['length']:,} {case['mode']}: {case['status']}, {case['reason']}."
    yield (
        f"{machine['cpu']}, cores: {machine['cores']}, threads: {machine['threads']}, torch {machine['torch']}; "
        f"rounds: {plan['rounds']}; load average before the start: {machine['load']}."
    )
    if (machine["load"] or 0) > machine["cores"] / 2:
        yield "The machine was busy before the start, so times are too long; repeat on an idle machine, or with --threads 1."


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
    """A number with three significant digits, the precision of timings on a noisy machine."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def format_count(x: float | None) -> str:
    """A large count with three significant digits and an SI prefix: 1.07 G."""
    if x is None:
        return "-"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.3g} {letter}"
    return f"{x:.0f}"
