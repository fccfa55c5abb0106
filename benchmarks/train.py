"""`python -m benchmarks.train`: training throughput compared with other libraries, as ratios from an interleaved run."""

import json as json_text
import statistics
import sys
from datetime import date
from pathlib import Path
from typing import Any

import tyro

BASELINES = ("transformers", "by hand")


def main(
    *,
    cases: tuple[str, ...] = ("causal", "full windows", "encoder-decoder", "short texts", "masked"),
    dropouts: tuple[float, ...] = (0.0, 0.1),
    rounds: int = 3,
    seconds: float = 12.0,
    out: Path = Path("bench/train.json"),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Training tokens per second, without padding: saccade, `transformers` with SDPA, and a handwritten PyTorch loop.

    Each runs in its own process, and all are measured alternately. `transformers` must be installed.

    $ python -m benchmarks.train

    $ python -m benchmarks.train --cases causal --dropouts 0 --rounds 5

    Args:
        cases: What to train: causal (GPT on paragraphs), "full windows" (the same without any padding, so that only the
            training loops differ), "short texts" (the same on sentences), encoder-decoder (Marian on sentence pairs), masked
            (a small BERT on sentences).
        dropouts: Dropout rates of sublayers and attention weights, the same for all libraries; each is measured separately.
        rounds: Number of rounds; in each of them every library is measured once.
        seconds: Duration of one measurement in seconds.
        out: JSON file to write the figures to; figures of other cases in it are kept.
        json: Print the record as JSON and nothing else.
    """
    from benchmarks.training.throughput import CASES, compare
    from saccade.suggest import suggest
    from saccade.system import describe_machine

    for name in cases:
        if name not in CASES:
            print(f"python -m benchmarks.train: unknown case {name!r}; {suggest(name, list(CASES))}", file=sys.stderr)
            return 2
    runs: dict[str, dict[str, list[dict[str, float]]]] = {}
    record: dict[str, Any] = {"date": date.today().isoformat(), "machine": describe_machine(), "figures": {}}
    if out.exists():  # keep the figures of other cases
        record["figures"] = json_text.loads(out.read_text(encoding="utf-8"))["figures"]
    out.parent.mkdir(parents=True, exist_ok=True)
    for case, number, figure in compare(list(cases), list(dropouts), rounds=rounds, seconds=seconds):
        key = f"{case.name}, dropout {case.dropout:g}"
        runs.setdefault(key, {}).setdefault(case.library, []).append(figure)
        speed = f"{case.library} {figure['tokens_per_second']:,.0f} tokens/s"
        print(f"{key}, round {number + 1}: {speed}, peak {figure['peak_mb']:,.0f} MB", file=sys.stderr, flush=True)
        if len(runs[key]) == len(CASES[case.name]):  # every library has been measured at least once
            record["figures"][key] = summarize_runs(runs[key])
            out.write_text(json_text.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json_text.dumps(record, indent=1) if json else format_figures(record["figures"]))
    return 0


def summarize_runs(runs: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The median tokens per second of each library, and the speedup over each baseline, computed within each round."""
    speed = {library: [figure["tokens_per_second"] for figure in figures] for library, figures in runs.items()}
    out: dict[str, dict[str, float]] = {
        "tokens/s": {library: round(statistics.median(values)) for library, values in speed.items()},
        "peak MB": {library: round(max(figure["peak_mb"] for figure in figures)) for library, figures in runs.items()},
    }
    for baseline in BASELINES:
        if baseline in speed:
            ratios = [a / b for a, b in zip(speed["saccade"], speed[baseline], strict=False)]
            out[f"times {baseline}"] = {
                "median": round(statistics.median(ratios), 3),
                "low": round(min(ratios), 3),
                "high": round(max(ratios), 3),
            }
    return out


def format_figures(figures: dict[str, dict[str, dict[str, float]]]) -> str:
    """One line for each case."""
    lines = []
    for key, figure in figures.items():
        speeds = ", ".join(f"{library} {speed:,.0f}" for library, speed in figure["tokens/s"].items())
        ratios = [
            f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) times as fast as {baseline}"
            for baseline in BASELINES
            if (ratio := figure.get(f"times {baseline}"))
        ]
        lines.append(f"{key}: {'; '.join(ratios)}   [tokens/s: {speeds}]")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m benchmarks.train"))
