"""The README's table of figures, made from the records in docs/results: `python benchmarks/figures.py` prints it."""

import json
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "results"
RECORD = json.loads((RESULTS / "core.json").read_text())


def span(figure: dict) -> str:
    return f"{figure['median']:.2f} ({figure['low']:.2f} to {figure['high']:.2f})"


def rows() -> list[tuple[str, str, str, str]]:
    """(what, goal, measured, command)"""
    found = []
    for n, figure in RECORD["overhead"]["figures"].items():
        command = "`python benchmarks/core.py overhead`"
        found.append(
            (f"`Attention` over its own projections and the raw kernel, {n}", "at most 1.05", span(figure), command)
        )
    for what, figure in RECORD["watching"]["figures"].items():
        goal = "at most 1.15" if what == "one layer, n=512" else "-"
        found.append(
            (
                f"a forward pass of 12 layers, {what} watched, over none",
                goal,
                span(figure),
                "`python benchmarks/core.py watching`",
            )
        )
    goals = {"windowed n=4096": 2.3, "windowed n=8192": 2.6, "bigbird n=4096": 1.6, "bigbird n=8192": 2.1}
    rival = {"windowed": "Longformer", "bigbird": "BigBird"}
    for key, figure in RECORD["encoder"]["figures"].items():
        kind = key.split()[0].strip(",")
        command = "`python benchmarks/core.py encoder`"
        if isinstance(figure, dict):
            at = key.split()[1]
            said = f"{kind}, 4 layers, training, {at}: times as fast as the {rival[kind]} of `transformers`"
            found.append((said, f"at least {goals[key]}", span(figure["times as fast"]), command))
            peaks = f"{figure['peak MB ours']} and {figure['peak MB theirs']} MB in all"
            share = f"{figure['extra memory, ours of theirs']:.2f} ({peaks})"
            found.append(
                (
                    "the same: memory beyond that of an encoder without attention, share of theirs",
                    "at most 0.20",
                    share,
                    command,
                )
            )
        else:
            found.append((f"{key}: exponent of n", "at most 1.15", f"{figure:.2f}", command))
    return found + models() + training()


def models() -> list[tuple[str, str, str, str]]:
    """Loading and forward passes beside `transformers`."""
    record = json.loads((RESULTS / "models.json").read_text())
    load, command = record["loading"]["figures"], "`python benchmarks/models.py loading`"
    size = f"a directory of {load['file MB']:.0f} MB"
    took, held = span(load["time, ours over theirs"]), span(load["memory above imports, times the file"])
    found = [
        (f"loading {size}: time, over `AutoModel` and `AutoTokenizer`", "at most 0.50", took, command),
        (f"loading {size}: memory above the imports, over the file", "at most 1.20", held, command),
    ]
    for name, figure in record["forward"]["figures"].items():
        said = f"forward pass of {name} at base size: times as fast as `transformers` with sdpa"
        found.append((said, "at least 0.97", span(figure["times as fast"]), "`python benchmarks/models.py forward`"))
    return found


def _figures(name: str) -> dict:
    """Of a record that is there."""
    path = RESULTS / name
    return json.loads(path.read_text())["figures"] if path.exists() else {}


GOALS = {"causal": 1.5, "full windows": 1.5, "encoder-decoder": 1.5, "short texts": 2, "masked": 3}


def training() -> list[tuple[str, str, str, str]]:
    """Training throughput beside the peers, and what a run costs over its bare steps."""
    command, found = "`saccade bench train`", []
    for key, figure in _figures("train.json").items():
        goal = f"at least {GOALS[key.split(',')[0]]}"
        said = f"training, {key}: times as fast as `transformers` with sdpa"
        found.append((said, goal, span(figure["times transformers"]), command))
        peak = figure["peak MB"]
        share = f"{peak['saccade'] / peak['transformers']:.2f} ({peak['saccade']} and {peak['transformers']} MB)"
        found.append(("the same: peak memory, over theirs", "at most 1", share, command))
        if "times by hand" in figure:
            said = f"training, {key}: times as fast as a loop written by hand"
            found.append((said, "at least 0.97", span(figure["times by hand"]), command))
    for key, figure in _figures("overhead.json").items():
        said = f"a run over its bare forward, backward and step: {key}"
        found.append((said, "at most 1.05", span(figure), "`python benchmarks/overhead.py`"))
    ways = {"copies": "DDP", "parts": "FSDP2, `--train.shard`"}
    for key, figure in _figures("ranks.json").items():
        said = f"two processes of one thread over one of two: {ways[key]}, times as fast"
        ratio = figure["times as fast as one process"]
        found.append((said, f"at least {figure['goal']}", span(ratio), "`python benchmarks/ranks.py`"))
    return found


if __name__ == "__main__":
    print("| what | goal | measured | command |\n|---|---|---|---|")
    for row in rows():
        print("| " + " | ".join(row) + " |")
