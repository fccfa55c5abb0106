"""What attention costs: time and peak memory of every mechanism against the length of the text, and how fast they grow.

`study` yields the outcome of one case after the other, `report` joins them into one dictionary with the counts on paper beside
the measured numbers.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import torch

from saccade.attention import CAUSAL, FULL, MECHANISMS, Hashed, Sight, mechanism, recall
from saccade.heap import available
from saccade.studies import counts
from saccade.studies.measure import OK, REFUSED, SKIPPED, Case, Outcome, Plan, run

LONG = 2048  # tokens: from here on the fixed cost of a call no longer bends the line
MODES = ("forward", "training")
NOT_COUNTED = "not counted"  # a mechanism without a line in counts.py


@dataclass(frozen=True)
class Run:
    """One case in one round."""

    turn: int
    case: Case
    outcome: Outcome


@dataclass(frozen=True)
class Growth:
    """y grows as n to the power `exponent`, give or take the standard error (None with two points: they fit any line)."""

    exponent: float
    error: float | None
    lengths: tuple[int, ...]


def names(plan: Plan) -> list[str]:
    """The mechanisms of the plan in the order of the table; an unknown name is an error that lists the known."""
    wanted = {mechanism(name).name for name in plan.mechanisms}
    return [entry.name for entry in MECHANISMS if entry.name in wanted or not wanted]


def study(plan: Plan) -> Iterator[Run]:
    """Every case of every round, one process each; what cannot run is an outcome like any other."""
    plan.check()
    lost: dict[tuple[str, bool], Run] = {}
    for turn, case in plan.cases(names(plan)):
        before = lost.get((case.mechanism, case.training)) or lost.get((case.mechanism, False))
        outcome = refusal(case) or repeated(case, before) or run(case)
        made = Run(turn, case, outcome)
        if outcome.status not in (OK, SKIPPED):
            lost.setdefault((case.mechanism, case.training), made)
        yield made


def refusal(case: Case) -> Outcome | None:
    """Why a case is not even started, if there is a reason."""
    if case.causal and "causal" not in mechanism(case.mechanism).honours:
        return Outcome(REFUSED, "cannot hide the future")
    needed, free = counts.predicted(case), available()
    if free is not None and needed > free:
        return Outcome(SKIPPED, f"needs about {needed / 1e9:,.0f} GB, {free / 1e9:,.0f} GB are free")
    return None


def repeated(case: Case, before: Run | None) -> Outcome | None:
    """What failed is not tried again, neither in a later round nor for a longer text."""
    if before is None or case.length < before.case.length:
        return None
    kind = MODES[before.case.training]
    return Outcome(SKIPPED, f"{kind} was {before.outcome.status} at n = {before.case.length:,}")


def report(plan: Plan, runs: Sequence[Run], facts: dict[str, object]) -> dict:
    """Everything measured and counted, ready for JSON: a line for each mechanism, one for each case, and the raw runs."""
    cases = [joined([r for r in runs if r.case == case]) for case in dict.fromkeys(r.case for r in runs)]
    threads = max((r.outcome.threads for r in runs), default=0)
    return {
        "subject": "attention",
        "plan": asdict(plan),
        "machine": facts | {"threads": threads},
        "mechanisms": [line(name, plan, [c for c in cases if c["mechanism"] == name]) for name in names(plan)],
        "cases": cases,
        "runs": [{"round": r.turn, "case": asdict(r.case), "outcome": asdict(r.outcome)} for r in runs],
    }


def joined(runs: Sequence[Run]) -> dict:
    """One case over its rounds: the median of the rounds' medians, and the spread of all passes."""
    case, good = runs[0].case, [r.outcome for r in runs if r.outcome.status == OK]
    shown = good[0] if good else runs[0].outcome
    count = counts.count(case)
    found = {
        "mechanism": case.mechanism,
        "length": case.length,
        "mode": MODES[case.training],
        "status": shown.status,
        "reason": shown.reason,
        "ms": milliseconds(good) if good else None,
        "peak_mb": peak(good),
        "predicted_gb": counts.predicted(case) / 1e9,
        "inputs_mb": case.inputs / 1e6,
    }
    if count is None:
        return found | dict.fromkeys(("pairs_per_head", "pairs", "multiply_adds", "tanh"))
    on_paper = {"pairs_per_head": count.pairs / case.heads, "pairs": count.pairs}
    return found | on_paper | {"multiply_adds": count.multiply_adds, "tanh": count.tanh}


def milliseconds(outcomes: Sequence[Outcome]) -> dict[str, float]:
    passes = [1e3 * x for outcome in outcomes for x in outcome.times]
    low, _, high = statistics.quantiles(passes, n=4, method="inclusive") if len(passes) > 1 else passes * 3
    middle = statistics.median(1e3 * statistics.median(outcome.times) for outcome in outcomes)
    return {"median": middle, "low": low, "high": high, "min": min(passes), "passes": len(passes)}


def peak(outcomes: Sequence[Outcome]) -> float | None:
    known = [outcome.peak / 1e6 for outcome in outcomes if outcome.peak is not None]
    return statistics.median(known) if known else None


def line(name: str, plan: Plan, cases: Sequence[dict]) -> dict:
    """One mechanism: its formulas, and how its time and memory grow."""
    entry, written = mechanism(name), counts.COUNTS.get(name)
    found: dict = {"name": name, "formula": entry.formula, "paper": entry.paper, "cost": entry.cost}
    paper = (NOT_COUNTED, NOT_COUNTED) if written is None else (written.pairs, written.multiply_adds)
    found |= {"pairs": paper[0], "multiply_adds": paper[1], "time": {}, "memory": {}}
    for mode in MODES:
        good = [case for case in cases if case["mode"] == mode and case["status"] == OK]
        lengths = [case["length"] for case in good]
        times, peaks = ([case["ms"]["median"] for case in good], [case["peak_mb"] or 0.0 for case in good])
        for kind, values in (("time", times), ("memory", peaks)):
            grown = growth(lengths, values)
            found[kind][mode] = None if grown is None else asdict(grown)
    if name == "hashed":
        found["recall"] = neighbours(plan)
    return found


def growth(lengths: Sequence[int], values: Sequence[float]) -> Growth | None:
    """The slope of log(value) over log(n) by least squares, over the long texts if there are three, else over all.

    >>> growth([256, 512, 1024], [1.0, 4.0, 16.0])
    Growth(exponent=2.0, error=0.0, lengths=(256, 512, 1024))
    """
    points = [(n, y) for n, y in zip(lengths, values, strict=True) if y > 0]
    long = [point for point in points if point[0] >= LONG]
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


def neighbours(plan: Plan, *, top: int = 8) -> dict[str, float]:
    """Of the `top` keys that matter most to a random query, the share that hashing finds; by chance it would be `seen`."""
    torch.manual_seed(0)
    n, pattern = min(1024, max(plan.lengths)), CAUSAL if plan.causal else FULL
    module = Hashed(plan.width // plan.heads, plan.heads)
    x = torch.randn(1, plan.heads, n, plan.width // plan.heads)  # query and key are one vector
    allowed = Sight(pattern).allows(x, x).expand(1, 1, n, n).sum().item()
    seen = (module.weights(x, x, Sight(pattern)) > 0).sum().item() / plan.heads / allowed
    return {"length": n, "top": top, "recall": recall(module, x, x, top=top, pattern=pattern), "seen": seen}
