"""The README's table of figures, made from docs/results/core.json: `python benchmarks/figures.py` prints it."""

import json
from pathlib import Path

RECORD = json.loads((Path(__file__).parent.parent / "docs" / "results" / "core.json").read_text())


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
    return found


if __name__ == "__main__":
    print("| what | goal | measured | command |\n|---|---|---|---|")
    for row in rows():
        print("| " + " | ".join(row) + " |")
