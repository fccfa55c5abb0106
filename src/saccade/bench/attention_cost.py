"""What attention costs: time and peak memory of every mechanism against the length of the text, and how fast they grow.

`run_cases` yields the outcome of one case after the other, `make_report` joins them into one dictionary with the counts on
paper beside the measured numbers.
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

MIN_GROWTH_LENGTH = 2048  # tokens: from here on the fixed cost of a call no longer bends the line
MODES = ("forward", "training")
NOT_COUNTED = "not counted"  # a mechanism without a line in attention_flops.py


@dataclass(frozen=True)
class BenchRun:
    """One case in one round."""

    round_index: int
    case: BenchCase
    outcome: Outcome


@dataclass(frozen=True)
class Growth:
    """y grows as n to the power `exponent`, give or take the standard error (None with two points: they fit any line)."""

    exponent: float
    standard_error: float | None
    lengths: tuple[int, ...]


def resolve_mechanisms(plan: BenchPlan) -> list[str]:
    """The mechanisms of the plan in the order of the registry; an unknown name is an error that lists the known ones."""
    if "all" in plan.mechanisms:
        return [entry.name for entry in MECHANISMS]
    wanted = {get_mechanism(name).name for name in plan.mechanisms}
    return [entry.name for entry in MECHANISMS if entry.name in wanted]


def run_cases(plan: BenchPlan) -> Iterator[BenchRun]:
    """Every case of every round, one process each; what cannot run is an outcome like any other."""
    plan.check()
    lost: dict[tuple[str, bool], BenchRun] = {}
    for turn, case in plan.iter_cases(resolve_mechanisms(plan)):
        before = lost.get((case.mechanism, case.training)) or lost.get((case.mechanism, False))
        outcome = check_case(case) or skip_after_failure(case, before) or run_case(case)
        made = BenchRun(turn, case, outcome)
        if outcome.status not in (OK, SKIPPED):
            lost.setdefault((case.mechanism, case.training), made)
        yield made


def check_case(case: BenchCase) -> Outcome | None:
    """Why a case is not even started, if there is a reason."""
    if case.causal and "causal" not in get_mechanism(case.mechanism).supports:
        return Outcome(REFUSED, "cannot hide the future")
    needed, free = attention_flops.predict_peak_bytes(case), available_memory()
    if free is not None and needed > free:
        return Outcome(SKIPPED, f"needs about {needed / 1e9:,.0f} GB, {free / 1e9:,.0f} GB are free")
    return None


def skip_after_failure(case: BenchCase, failed: BenchRun | None) -> Outcome | None:
    """What failed is not tried again, neither in a later round nor for a longer text."""
    if failed is None or case.length < failed.case.length:
        return None
    kind = MODES[failed.case.training]
    return Outcome(SKIPPED, f"{kind} was {failed.outcome.status} at n = {failed.case.length:,}")


def make_report(plan: BenchPlan, runs: Sequence[BenchRun], facts: dict[str, object]) -> dict:
    """Everything measured and counted, ready for JSON: a line for each mechanism, one for each case, and the raw runs."""
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
    """One case over its rounds: the median of the rounds' medians, and the spread of all passes."""
    case, good = runs[0].case, [r.outcome for r in runs if r.outcome.status == OK]
    shown = good[0] if good else runs[0].outcome
    count = attention_flops.count_operations(case)
    found = {
        "mechanism": case.mechanism,
        "length": case.length,
        "mode": MODES[case.training],
        "status": shown.status,
        "reason": shown.reason,
        "ms": summarize_times(good) if good else None,
        "peak_mb": median_peak(good),
        "predicted_gb": attention_flops.predict_peak_bytes(case) / 1e9,
        "inputs_mb": case.input_bytes / 1e6,
    }
    if count is None:
        return found | dict.fromkeys(("pairs_per_head", "pairs", "multiply_adds", "tanh"))
    on_paper = {"pairs_per_head": count.pairs / case.heads, "pairs": count.pairs}
    return found | on_paper | {"multiply_adds": count.multiply_adds, "tanh": count.tanh}


def summarize_times(outcomes: Sequence[Outcome]) -> dict[str, float]:
    passes = [1e3 * x for outcome in outcomes for x in outcome.seconds]
    low, _, high = statistics.quantiles(passes, n=4, method="inclusive") if len(passes) > 1 else passes * 3
    middle = statistics.median(1e3 * statistics.median(outcome.seconds) for outcome in outcomes)
    return {"median": middle, "low": low, "high": high, "min": min(passes), "passes": len(passes)}


def median_peak(outcomes: Sequence[Outcome]) -> float | None:
    known = [outcome.peak_bytes / 1e6 for outcome in outcomes if outcome.peak_bytes is not None]
    return statistics.median(known) if known else None


def summarize_mechanism(name: str, plan: BenchPlan, cases: Sequence[dict]) -> dict:
    """One mechanism: its formulas, and how its time and memory grow."""
    entry, written = get_mechanism(name), attention_flops.COST_FORMULAS.get(name)
    found: dict = {"name": name, "formula": entry.formula, "paper": entry.paper, "cost": entry.cost}
    paper = (NOT_COUNTED, NOT_COUNTED) if written is None else (written.pairs_formula, written.multiply_adds_formula)
    found |= {"pairs": paper[0], "multiply_adds": paper[1], "time": {}, "memory": {}}
    for mode in MODES:
        good = [case for case in cases if case["mode"] == mode and case["status"] == OK]
        lengths = [case["length"] for case in good]
        times, peaks = ([case["ms"]["median"] for case in good], [case["peak_mb"] or 0.0 for case in good])
        for kind, values in (("time", times), ("memory", peaks)):
            grown = fit_growth(lengths, values)
            found[kind][mode] = None if grown is None else asdict(grown)
    if name == "lsh":
        found["recall"] = measure_lsh_recall(plan)
    return found


def fit_growth(lengths: Sequence[int], values: Sequence[float]) -> Growth | None:
    """The slope of log(value) over log(n) by least squares, over the long texts if there are three, else over all.

    >>> fit_growth([256, 512, 1024], [1.0, 4.0, 16.0])
    Growth(exponent=2.0, standard_error=0.0, lengths=(256, 512, 1024))
    """
    points = [(n, y) for n, y in zip(lengths, values, strict=True) if y > 0]
    long = [point for point in points if point[0] >= MIN_GROWTH_LENGTH]
    points = long if len(long) >= 3 else points
    if len({n for n, _ in points}) < 2:
        return None
    x, y = ([math.log(point[i]) for point in points] for i in (0, 1))
    slope, cut = statistics.linear_regression(x, y)
    error = None
    if len(points) > 2:
        rest = sum((b - cut - slope * a) ** 2 for a, b in zip(x, y, strict=True))
        error = math.sqrt(rest / (len(points) - 2) / (statistics.pvariance(x) * len(x)))
        error = round(error, 6)
    return Growth(round(slope, 6), error, tuple(n for n, _ in points))


def measure_lsh_recall(plan: BenchPlan, *, top_k: int = 8) -> dict[str, float]:
    """Of the `top_k` keys that matter most to a random query, the share that hashing finds; by chance `visible_fraction`."""
    torch.manual_seed(0)
    n, pattern = min(1024, max(plan.lengths)), CAUSAL if plan.causal else FULL
    module = LSHAttention(plan.width // plan.heads, plan.heads)
    x = torch.randn(1, plan.heads, n, plan.width // plan.heads)  # query and key are one vector
    allowed = Sight(pattern).allows(x, x).expand(1, 1, n, n).sum().item()
    seen = (module.weights(x, x, Sight(pattern)) > 0).sum().item() / plan.heads / allowed
    recall = lsh_recall(module, x, x, top=top_k, pattern=pattern)
    return {"length": n, "top_k": top_k, "recall": recall, "visible_fraction": seen}
