"""`saccade find-lr TASK|RECIPE`: try learning rates from small to large on a copy of the model, and name a good one."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from saccade.cli import settings as flags

if TYPE_CHECKING:
    from saccade.training.range import Choice, Tried

HELP = """Try learning rates from small to large on a copy of the model that is thrown away, and name a good one.

saccade find-lr label --data reviews.tsv

saccade find-lr translate --model rnn --model.width 128 --png rates.png

It takes what saccade train takes. A hundred steps are made, each with a higher rate than the one before, until the loss runs
away; the rate at which the loss falls fastest is named (Smith 2017). Nothing is written but the picture, if you ask for one."""
EVERY = 2.0  # seconds between lines of progress
ROWS = 13  # of the table: two for a tenfold of the rate
WIDE = 40  # of the longest bar


@dataclass(frozen=True)
class Call(flags.Call):
    """What is not a setting of the model, the task or the training."""

    png: Path | None = None
    """Draw the loss over the rates into this file."""


def call(name: str, argv: Sequence[str]) -> int:
    """Run the command; `argv` is what follows its name."""
    plain, dotted = flags.split(argv)
    asked = tyro.cli(Call, prog=f"saccade {name}", description=HELP, args=plain)
    from saccade.cli.running import guarded

    return guarded(name, lambda: _find(asked, dotted))


def _find(asked: Call, dotted: list[str]) -> int:
    from saccade.training.range import STEPS, choose, smoothed, try_rates

    ready = flags.request("find-lr", asked, dotted).prepare(asked.say)
    tried: list[Tried] = []
    last = time.monotonic()
    for step in try_rates(ready):
        tried.append(step)
        if time.monotonic() - last > EVERY:
            last = time.monotonic()
            asked.say(f"step {len(tried):>3} of at most {STEPS}  rate {step.rate:.1e}  loss {step.loss:.4f}")
    choice, means = choose(tried), smoothed([step.loss for step in tried])
    if asked.png is not None:
        _draw(asked.png, tried, means, choice)
    if asked.json:
        steps = [asdict(step) | {"smoothed": mean} for step, mean in zip(tried, means, strict=True)]
        print(json.dumps({**asdict(choice), "why": choice.why, "compare": choice.other, "steps": steps}))
        return 0
    print(table(tried, means, choice))
    print(f"\nuse        --train.rate {choice.rate:.1e}\nwhy        {choice.why}\ncompare    {choice.other}")
    if asked.png is not None:
        print(f"written    {asked.png}")
    return 0


def table(tried: Sequence["Tried"], means: Sequence[float], choice: "Choice") -> str:
    """The smoothed loss at some of the rates as bars, and a mark at the one that was chosen."""
    best = next(i for i, step in enumerate(tried) if step.rate == choice.rate)
    rows = sorted({round(i * (len(tried) - 1) / (ROWS - 1)) for i in range(ROWS)} | {best})
    low, high = min(means), max(means[: best + 1])  # a loss that ran away would flatten all else
    lines = ["rate       loss"]
    for i in rows:
        share = (means[i] - low) / max(1e-9, high - low)
        bar = "█" * round(1 + WIDE * min(share, 1)) + ("▶" if share > 1 else "")
        lines.append(f"{tried[i].rate:.1e}  {means[i]:9.4f}  {bar}{'  <- falls fastest' if i == best else ''}")
    return "\n".join(lines)


def _draw(path: Path, tried: Sequence["Tried"], means: Sequence[float], choice: "Choice") -> None:
    import torch

    from saccade.explain.picture import Curves, save

    x = torch.tensor([math.log10(step.rate) for step in tried])
    raw = torch.tensor([step.loss for step in tried])
    title = f"the loss falls fastest at a rate of {choice.rate:.1e}"
    lines = {"smoothed loss": torch.tensor(means)}
    save(path, [Curves(title, x, lines, (x, raw), ("logarithm (base 10) of the rate", "loss"))])
