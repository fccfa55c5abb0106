"""`saccade find-lr TASK|RECIPE`: learning-rate range test on a copy of the model, which suggests a learning rate."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from saccade.cli import train_flags as flags
from saccade.cli.argument_types import optional_argument

if TYPE_CHECKING:
    from saccade.training.lr_finder import SuggestedRate, Trial

HELP_TEXT = """Learning-rate range test: try increasing learning rates on a copy of the model, and suggest one.

saccade find-lr label --data reviews.tsv

saccade find-lr translate --family rnn --model.width 128 --png rates.png

Takes the settings of saccade train; saccade find-lr TASK --help lists them. Runs up to a hundred steps, each with a higher
learning rate than the one before, until the loss diverges, and suggests the learning rate at which the loss falls
fastest (Smith 2017). Nothing is written but the plot of --png."""
MIN_SECONDS_BETWEEN_LINES = 2.0  # for progress lines
MAX_TABLE_ROWS = 13  # two per factor of ten in the learning rate
MAX_BAR_WIDTH = 40  # in characters


@dataclass(frozen=True)
class FindLRFlags(flags.BaseTrainFlags):
    """Flags of `saccade find-lr`."""

    png: Annotated[Path | None, optional_argument("FILE")] = None
    """Plot the loss over the learning rate to this file."""


def call(name: str, argv: Sequence[str]) -> int:
    """Run the command; `argv` is what follows its name."""
    args, dotted, wants_help = flags.parse_command(name, argv, FindLRFlags, HELP_TEXT)
    from saccade.cli.exit_codes import run_command

    return run_command(name, lambda: flags.print_help(name, args, dotted) if wants_help else _find_lr(args, dotted))


def _find_lr(args: FindLRFlags, dotted: list[str]) -> int:
    from saccade.training.lr_finder import DEFAULT_STEPS, smooth_losses, suggest_lr, try_lrs

    prepared = flags.make_request("find-lr", args, dotted).prepare(args.log)
    trials: list[Trial] = []
    last_line_at = time.monotonic()
    for trial in try_lrs(prepared):
        trials.append(trial)
        if time.monotonic() - last_line_at > MIN_SECONDS_BETWEEN_LINES:
            last_line_at = time.monotonic()
            args.log(f"step {len(trials):>3} of at most {DEFAULT_STEPS}  lr {trial.lr:.1e}  loss {trial.loss:.4f}")
    choice, means = suggest_lr(trials), smooth_losses([trial.loss for trial in trials])
    if args.png is not None:
        _plot_losses(args.png, trials, means, choice)
    if args.json:
        steps = [asdict(trial) | {"smoothed": mean} for trial, mean in zip(trials, means, strict=True)]
        reasons = {"reason": choice.reason, "alternative": choice.alternative}
        print(json.dumps({**asdict(choice), **reasons, "steps": steps}))
        return 0
    print(format_table(trials, means, choice))
    print(f"\nuse        --train.lr {choice.lr:.1e}\nreason     {choice.reason}\nalternative {choice.alternative}")
    if args.png is not None:
        print(f"written    {args.png}")
    return 0


def format_table(trials: Sequence["Trial"], smoothed_losses: Sequence[float], suggestion: "SuggestedRate") -> str:
    """The smoothed loss at some of the learning rates as bars, with a mark at the suggested one."""
    best = next(i for i, step in enumerate(trials) if step.lr == suggestion.lr)
    rows = sorted({round(i * (len(trials) - 1) / (MAX_TABLE_ROWS - 1)) for i in range(MAX_TABLE_ROWS)} | {best})
    low, high = min(smoothed_losses), max(smoothed_losses[: best + 1])  # a diverged loss would flatten the other bars
    lines = ["lr         loss"]
    for i in rows:
        share = (smoothed_losses[i] - low) / max(1e-9, high - low)
        bar = "█" * round(1 + MAX_BAR_WIDTH * min(share, 1)) + ("▶" if share > 1 else "")
        lines.append(f"{trials[i].lr:.1e}  {smoothed_losses[i]:9.4f}  {bar}{'  <- falls fastest' if i == best else ''}")
    return "\n".join(lines)


def _plot_losses(
    path: Path, trials: Sequence["Trial"], smoothed_losses: Sequence[float], suggestion: "SuggestedRate"
) -> None:
    import torch

    from saccade.render.plot import LineChart, save_panels

    x = torch.tensor([math.log10(step.lr) for step in trials])
    raw = torch.tensor([step.loss for step in trials])
    title = f"the loss falls fastest at a learning rate of {suggestion.lr:.1e}"
    lines = {"smoothed loss": torch.tensor(smoothed_losses)}
    save_panels(path, [LineChart(title, x, lines, (x, raw), ("log10 of the learning rate", "loss"))])
