"""The cost of attention: time and peak memory of every mechanism as a function of sequence length, and their growth rates.

`run_cases` yields the outcomes case by case; `make_report` joins them into a dictionary, with the theoretical operation counts
beside the measurements.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import torch

from saccade.attention import CAUSAL, FULL, MECHANISMS, LSHAttention, Sight, get_mechanism, lsh_recall
from saccade.bench import attention_flops
from saccade.bench.measure import OK, REFUSED, SKIPPED, BenchCase, BenchPlan, Outcome, run_case
from saccade.system import available_memory

MIN_GROWTH_LENGTH = 2048  # tokens; for shorter sequences the fixed cost of a call distorts the growth rate
MODES = ("forward", "training")
NOT_COUNTED = "not counted"  # a mechanism without an entry in attention_flops.py


@dataclass(frozen=True)
class BenchRun:
    """One case in one round."""

    round_index: int
    case: BenchCase
    outcome: Outcome


@dataclass(frozen=True)
class Growth:
    """The exponent of growth with sequence length, and its standard error; None for two points, which fit exactly."""

    exponent: float
    standard_error: float | None
    lengths: tuple[int, ...]


def resolve_mechanisms(plan: BenchPlan) -> list[str]:
    """The mechanisms of a plan in the order of the registry; an unknown name raises an error that lists the known ones."""
    if "all" in plan.mechanisms:
        return [entry.name for entry in MECHANISMS]
    wanted = {get_mechanism(name).name for name in plan.mechanisms}
    return [entry.name for entry in MECHANISMS if entry.name in wanted]


def run_cases(plan: BenchPlan) -> Iterator[BenchRun]:
    """Run every case of every round, each in its own process; a case that cannot run has an outcome with the reason."""
    plan.check()
    failures: dict[tuple[str, bool], BenchRun] = {}
    for round_index, case in plan.iter_cases(resolve_mechanisms(plan)):
        failure = failures.get((case.mechanism, case.training)) or failures.get((case.mechanism, False))
        outcome = check_case(case) or skip_after_failure(case, failure) or run_case(case)
        run = BenchRun(round_index, case, outcome)
        if outcome.status not in (OK, SKIPPED):
            failures.setdefault((case.mechanism, case.training), run)
        yield run


def check_case(case: BenchCase) -> Outcome | None:
    """The outcome of a case that is not started because it is not supported or needs too much memory; None otherwise."""
    if case.causal and "causal" not in get_mechanism(case.mechanism).supports:
        return Outcome(REFUSED, "does not support causal attention")
    needed, free = attention_flops.predict_peak_bytes(case), available_memory()
    if free is not None and needed > free:
        return Outcome(SKIPPED, f"needs about {needed / 1e9:,.0f} GB, {free / 1e9:,.0f} GB are free")
    return None


def skip_after_failure(case: BenchCase, failed: BenchRun | None) -> Outcome | None:
    """Skip a case after a failure of the same mechanism, in later rounds and for longer sequences."""
    if failed is None or case.length < failed.case.length:
        return None
    kind = MODES[failed.case.training]
    return Outcome(SKIPPED, f"{kind} was {failed.outcome.status} at n = {failed.case.length:,}")


def make_report(plan: BenchPlan, runs: Sequence[BenchRun], facts: dict[str, object]) -> dict:
    """The report as JSON-serializable values: an entry for each mechanism and each case, and the raw runs."""
    cases = [summarize_case([r for r in runs if r.case == case]) for case in dict.fromkeys(r.case for r in runs)]
    threads = max((r.outcome.threads for r in runs), default=0)
    return {
        "subject": "attention",
        "plan": asdict(plan),
        "machine": facts | {"threads": threads},
        "mechanisms": [
            summarize_mechanism(name, plan, [c for c in cases if c["mechanism"] == name])
            for name in resolve_mechanisms(plan)
        ],
        "cases": cases,
        "runs": [{"round": r.round_index, "case": asdict(r.case), "outcome": asdict(r.outcome)} for r in runs],
    }


def summarize_case(runs: Sequence[BenchRun]) -> dict:
    """The summary of a case: the median over rounds of the median time, and the quartiles of all passes."""
    case, successes = runs[0].case, [r.outcome for r in runs if r.outcome.status == OK]
    representative = successes[0] if successes else runs[0].outcome
    count = attention_flops.count_operations(case)
    summary = {
        "mechanism": case.mechanism,
        "length": case.length,
        "mode": MODES[case.training],
        "status": representative.status,
        "reason": representative.reason,
        "ms": summarize_times(successes) if successes else None,
        "peak_mb": median_peak(successes),
        "predicted_gb": attention_flops.predict_peak_bytes(case) / 1e9,
        "inputs_mb": case.input_bytes / 1e6,
    }
    if count is None:
        return summary | dict.fromkeys(("pairs_per_head", "pairs", "multiply_adds", "tanh"))
    pair_counts = {"pairs_per_head": count.pairs / case.heads, "pairs": count.pairs}
    return summary | pair_counts | {"multiply_adds": count.multiply_adds, "tanh": count.tanh}


def summarize_times(outcomes: Sequence[Outcome]) -> dict[str, float]:
    passes = [1e3 * x for outcome in outcomes for x in outcome.seconds]
    low, _, high = statistics.quantiles(passes, n=4, method="inclusive") if len(passes) > 1 else passes * 3
    median = statistics.median(1e3 * statistics.median(outcome.seconds) for outcome in outcomes)
    return {"median": median, "low": low, "high": high, "min": min(passes), "passes": len(passes)}


def median_peak(outcomes: Sequence[Outcome]) -> float | None:
    peaks = [outcome.peak_bytes / 1e6 for outcome in outcomes if outcome.peak_bytes is not None]
    return statistics.median(peaks) if peaks else None


def summarize_mechanism(name: str, plan: BenchPlan, cases: Sequence[dict]) -> dict:
    """The summary of a mechanism: its cost formulas, and the growth rates of time and memory."""
    entry, formula = get_mechanism(name), attention_flops.COST_FORMULAS.get(name)
    summary: dict = {"name": name, "formula": entry.formula, "paper": entry.paper, "cost": entry.cost}
    formulas = (NOT_COUNTED, NOT_COUNTED) if formula is None else (formula.pairs_formula, formula.multiply_adds_formula)
    summary |= {"pairs": formulas[0], "multiply_adds": formulas[1], "time": {}, "memory": {}}
    for mode in MODES:
        successes = [case for case in cases if case["mode"] == mode and case["status"] == OK]
        lengths = [case["length"] for case in successes]
        times, peaks = ([case["ms"]["median"] for case in successes], [case["peak_mb"] or 0.0 for case in successes])
        for quantity, values in (("time", times), ("memory", peaks)):
            growth = fit_growth(lengths, values)
            summary[quantity][mode] = None if growth is None else asdict(growth)
    if name == "lsh":
        summary["recall"] = measure_lsh_recall(plan)
    return summary


def fit_growth(lengths: Sequence[int], values: Sequence[float]) -> Growth | None:
    """The slope of log(value) over log(n) by least squares, from MIN_GROWTH_LENGTH on if there are three points, else over all.

    >>> fit_growth([256, 512, 1024], [1.0, 4.0, 16.0])
    Growth(exponent=2.0, standard_error=0.0, lengths=(256, 512, 1024))
    """
    points = [(n, y) for n, y in zip(lengths, values, strict=True) if y > 0]
    long_points = [point for point in points if point[0] >= MIN_GROWTH_LENGTH]
    points = long_points if len(long_points) >= 3 else points
    if len({n for n, _ in points}) < 2:
        return None
    x, y = ([math.log(point[i]) for point in points] for i in (0, 1))
    slope, intercept = statistics.linear_regression(x, y)
    error = None
    if len(points) > 2:
        residual = sum((b - intercept - slope * a) ** 2 for a, b in zip(x, y, strict=True))
        error = math.sqrt(residual / (len(points) - 2) / (statistics.pvariance(x) * len(x)))
        error = round(error, 6)
    return Growth(round(slope, 6), error, tuple(n for n, _ in points))


def measure_lsh_recall(plan: BenchPlan, *, top_k: int = 8) -> dict[str, float]:
    """The recall of the `top_k` keys of largest weight under LSH for random queries; `visible_fraction` is the chance level."""
    torch.manual_seed(0)
    n, pattern = min(1024, max(plan.lengths)), CAUSAL if plan.causal else FULL
    module = LSHAttention(plan.width // plan.heads, plan.heads)
    x = torch.randn(1, plan.heads, n, plan.width // plan.heads)  # queries and keys are the same vectors
    allowed = Sight(pattern).allows(x, x).expand(1, 1, n, n).sum().item()
    visible = (module.weights(x, x, Sight(pattern)) > 0).sum().item() / plan.heads / allowed
    recall = lsh_recall(module, x, x, top=top_k, pattern=pattern)
    return {"length": n, "top_k": top_k, "recall": recall, "visible_fraction": visible}
