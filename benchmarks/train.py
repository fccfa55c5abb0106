"""`python -m benchmarks.train`: training throughput beside the peers, as ratios from one interleaved run."""

import json as json_text
import statistics
import sys
from datetime import date
from pathlib import Path
from typing import Any

import tyro

RIVALS = ("transformers", "by hand")


def main(
    *,
    cases: tuple[str, ...] = ("causal", "full windows", "encoder-decoder", "short texts", "masked"),
    dropouts: tuple[float, ...] = (0.0, 0.1),
    rounds: int = 3,
    seconds: float = 12.0,
    out: Path = Path("bench/train.json"),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Tokens a second in training, padding not counted: saccade, `transformers` with sdpa, and a loop written by hand.

    Each runs in a process of its own, and they take turns. `transformers` has to be installed.

    $ python -m benchmarks.train

    $ python -m benchmarks.train --cases causal --dropouts 0 --rounds 5

    Args:
        cases: What to train: causal (a GPT on paragraphs), full windows (the same where nothing is padding, so that the loop
            alone differs), short texts (the same on sentences), encoder-decoder (Marian on pairs of sentences), masked
            (a small BERT on sentences).
        dropouts: The dropout of branches and of attention weights, on both sides.
        rounds: How often the rivals take turns.
        seconds: How long each is measured.
        out: Where the record goes; what it has of other cases stays.
        json: Print the record as JSON and nothing else.
    """
    from benchmarks.training.throughput import CASES, race
    from saccade.suggest import suggest
    from saccade.system import describe_machine

    for name in cases:
        if name not in CASES:
            print(
                f"python -m benchmarks.train: there is no case {name!r}; {suggest(name, list(CASES))}", file=sys.stderr
            )
            return 2
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    record: dict[str, Any] = {"date": date.today().isoformat(), "machine": describe_machine(), "figures": {}}
    if out.exists():  # cases that are not asked for stay as they were measured
        record["figures"] = json_text.loads(out.read_text(encoding="utf-8"))["figures"]
    out.parent.mkdir(parents=True, exist_ok=True)
    for case, turn, figure in race(list(cases), list(dropouts), rounds=rounds, seconds=seconds):
        key = f"{case.name}, dropout {case.dropout:g}"
        found.setdefault(key, {}).setdefault(case.who, []).append(figure)
        said = f"{key}, round {turn + 1}: {case.who} {figure['tokens_per_second']:,.0f} tokens/s"
        print(f"{said}, peak {figure['peak_mb']:,.0f} MB", file=sys.stderr, flush=True)
        if len(found[key]) == len(CASES[case.name]):  # all rivals have had a turn: what is measured is kept
            record["figures"][key] = summary(found[key])
            out.write_text(json_text.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json_text.dumps(record, indent=1) if json else table(record["figures"]))
    return 0


def summary(runs: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Median tokens a second of each, and for each rival how many times as fast we are, round by round."""
    speed = {who: [figure["tokens_per_second"] for figure in figures] for who, figures in runs.items()}
    out: dict[str, dict[str, float]] = {
        "tokens/s": {who: round(statistics.median(found)) for who, found in speed.items()},
        "peak MB": {who: round(max(figure["peak_mb"] for figure in figures)) for who, figures in runs.items()},
    }
    for rival in RIVALS:
        if rival in speed:
            ratios = [a / b for a, b in zip(speed["saccade"], speed[rival], strict=False)]
            out[f"times {rival}"] = {
                "median": round(statistics.median(ratios), 3),
                "low": round(min(ratios), 3),
                "high": round(max(ratios), 3),
            }
    return out


def table(figures: dict[str, dict[str, dict[str, float]]]) -> str:
    """A line for each case."""
    lines = []
    for key, figure in figures.items():
        speeds = ", ".join(f"{who} {speed:,.0f}" for who, speed in figure["tokens/s"].items())
        ratios = [
            f"{figure[f'times {rival}']['median']:.2f} ({figure[f'times {rival}']['low']:.2f} to "
            f"{figure[f'times {rival}']['high']:.2f}) times {rival}"
            for rival in RIVALS
            if f"times {rival}" in figure
        ]
        lines.append(f"{key}: {'; '.join(ratios)}   [tokens/s: {speeds}]")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m benchmarks.train"))
