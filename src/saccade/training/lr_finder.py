"""The range test of learning rates: a copy of the model is trained with rates from small to large, and the loss tells.

    tried = list(try_rates(ready))
    choose(tried).rate

While the rate is too small nothing is learnt; then the loss falls, faster and faster; then it rises. The rate in the middle of
the steepest fall is a good highest rate for training (Smith 2017, arXiv 1506.01186).
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from saccade.errors import DivergedError, ModelError, UsageError
from saccade.training.loop import Learner, NonFiniteLoss
from saccade.training.prepare import PreparedRun

DEFAULT_MIN_LR, DEFAULT_MAX_LR, DEFAULT_STEPS = 1e-6, 1.0, 100
SMOOTHING_STEPS = 15  # steps that a mean and a slope are taken over: nearly a tenfold of the rate
MAX_LOSS_RATIO = 4.0  # times the best mean loss: then it is over


@dataclass(frozen=True)
class Trial:
    """One step at one rate."""

    lr: float
    loss: float


@dataclass(frozen=True)
class SuggestedRate:
    """The rate to train with, and what it was chosen by."""

    lr: float
    slope: float  # of the smoothed loss there, for a tenfold of the rate
    lr_at_lowest_loss: float  # the rate at which the smoothed loss was lowest

    @property
    def reason(self) -> str:
        return f"the loss, smoothed over {SMOOTHING_STEPS} steps, falls fastest around this rate ({self.slope:+.2g} for a tenfold)"

    @property
    def alternative(self) -> str:
        """The other rule of thumb; where it names a higher rate, that may be quicker and needs a warm-up."""
        return f"{self.lr_at_lowest_loss / 10:.1e} is a tenth of the rate at which the loss is lowest ({self.lr_at_lowest_loss:.1e})"


def lr_sweep(min_lr: float = DEFAULT_MIN_LR, max_lr: float = DEFAULT_MAX_LR, steps: int = DEFAULT_STEPS) -> list[float]:
    """Rates that grow by the same factor from step to step.

    >>> [f"{rate:.0e}" for rate in lr_sweep(1e-3, 1.0, 4)]
    ['1e-03', '1e-02', '1e-01', '1e+00']
    """
    if not (0 < min_lr < max_lr and steps > 1):
        raise UsageError(f"Rates from {min_lr} to {max_lr} in {steps} steps do not grow; give 0 < lowest < highest.")
    return [min_lr * (max_lr / min_lr) ** (step / (steps - 1)) for step in range(steps)]


def try_lrs(prepared_run: PreparedRun, lrs: Sequence[float] | None = None) -> Iterator[Trial]:
    """A step for each rate, on a copy that is thrown away; it ends early where the loss is far above its best."""
    config = replace(prepared_run.config, schedule="constant", warmup=0.0, ema=0.0)
    model = copy.deepcopy(prepared_run.model)
    read = prepared_run.make_batches(model)
    learner = Learner(model, prepared_run.task, read, config)
    losses: list[float] = []
    best = math.inf
    for rate in lrs or lr_sweep():
        learner.config = replace(config, lr=rate)
        try:
            losses.append(learner.step().loss)
        except NonFiniteLoss:
            if not losses:
                raise
            return
        yield Trial(rate, losses[-1])
        latest = sum(losses[-SMOOTHING_STEPS:]) / len(losses[-SMOOTHING_STEPS:])
        best = min(best, latest)
        if latest > MAX_LOSS_RATIO * best:
            return


def smooth_losses(losses: Sequence[float]) -> list[float]:
    """The mean over WINDOW steps around each step, and over fewer at the ends.

    >>> smooth_losses([1.0] * 20) == [1.0] * 20
    True
    """
    half = SMOOTHING_STEPS // 2
    windows = (losses[max(0, i - half) : i + half + 1] for i in range(len(losses)))
    return [sum(window) / len(window) for window in windows]


def suggest_lr(trials: Sequence[Trial]) -> SuggestedRate:
    """The rate of the steepest fall before the smoothed loss is lowest."""
    half = SMOOTHING_STEPS // 2
    if len(trials) < SMOOTHING_STEPS:
        raise DivergedError(
            f"The loss ran away after {len(trials)} rates, at {trials[-1].lr:.1e}; {SMOOTHING_STEPS} are needed to choose one. "
            "Look at the data and at train.clip_grad_norm."
        )
    logs, losses = [math.log10(step.lr) for step in trials], [step.loss for step in trials]
    means = smooth_losses(losses)
    lowest = means.index(min(means))
    # a window reaches no further than to the lowest loss: what lies beyond it is no fall any more
    centres = range(half, max(half, lowest - half) + 1)
    slopes = {i: fit_slope(logs[i - half : i + half + 1], losses[i - half : i + half + 1]) for i in centres}
    steepest = min(slopes, key=slopes.__getitem__)
    if slopes[steepest] >= 0:
        raise ModelError(
            f"The loss falls at no rate from {trials[0].lr:.1e} to {trials[-1].lr:.1e}: the model learns nothing here. "
            "Look at the data, at train.freeze_layers and at train.batch_tokens (more of them in a step are less noisy)."
        )
    return SuggestedRate(trials[steepest].lr, slopes[steepest], trials[lowest].lr)


def fit_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the straight line nearest to the points.

    >>> fit_slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    2.0
    """
    middle, mean = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - mean) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)
