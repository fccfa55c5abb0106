"""Learning-rate finder (learning-rate range test): trains a copy of the model while the learning rate grows at every step.

    trials = list(try_lrs(prepared_run))
    suggest_lr(trials).lr

While the learning rate is too small, the loss stays flat; then it falls, faster and faster; then it rises. The learning rate in
the middle of the steepest fall is a good peak learning rate for training (Smith 2017, arXiv 1506.01186).
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from saccade.errors import DivergedError, ModelError, UsageError
from saccade.training.loop import Learner, NonFiniteLoss
from saccade.training.prepare import PreparedRun

DEFAULT_MIN_LR, DEFAULT_MAX_LR, DEFAULT_STEPS = 1e-6, 1.0, 100
SMOOTHING_STEPS = 15  # window of the smoothed loss and of its slope: nearly a factor of ten in the learning rate
MAX_LOSS_RATIO = 4.0  # the test stops when the smoothed loss exceeds its minimum by this factor


@dataclass(frozen=True)
class Trial:
    """The loss of one step at one learning rate."""

    lr: float
    loss: float


@dataclass(frozen=True)
class SuggestedRate:
    """The suggested peak learning rate, and the measurements behind it."""

    lr: float
    slope: float  # of the loss at `lr`, per factor of ten in the learning rate
    lr_at_lowest_loss: float  # the learning rate at which the smoothed loss was lowest

    @property
    def reason(self) -> str:
        return (
            f"the loss falls fastest around this learning rate ({self.slope:+.2g} per factor of ten, "
            f"over {SMOOTHING_STEPS} steps)"
        )

    @property
    def alternative(self) -> str:
        """The other rule of thumb: a tenth of the learning rate with the lowest loss. A higher one may need a warmup."""
        return (
            f"{self.lr_at_lowest_loss / 10:.1e} is a tenth of the learning rate at which the loss is lowest "
            f"({self.lr_at_lowest_loss:.1e})"
        )


def lr_sweep(min_lr: float = DEFAULT_MIN_LR, max_lr: float = DEFAULT_MAX_LR, steps: int = DEFAULT_STEPS) -> list[float]:
    """Learning rates from `min_lr` to `max_lr` that grow by the same factor at every step.

    >>> [f"{rate:.0e}" for rate in lr_sweep(1e-3, 1.0, 4)]
    ['1e-03', '1e-02', '1e-01', '1e+00']
    """
    if not (0 < min_lr < max_lr and steps > 1):
        raise UsageError(
            f"Cannot sweep from {min_lr} to {max_lr} in {steps} steps; needed are 0 < lowest < highest and at least 2 steps."
        )
    return [min_lr * (max_lr / min_lr) ** (step / (steps - 1)) for step in range(steps)]


def try_lrs(prepared_run: PreparedRun, lrs: Sequence[float] | None = None) -> Iterator[Trial]:
    """Take one step per learning rate on a copy of the model; stops early when the loss is far above its minimum."""
    config = replace(prepared_run.config, schedule="constant", warmup=0.0, ema=0.0)
    model = copy.deepcopy(prepared_run.model)
    learner = Learner(model, prepared_run.task, prepared_run.make_batches(model), config)
    losses: list[float] = []
    best = math.inf
    for lr in lrs or lr_sweep():
        learner.config = replace(config, lr=lr)
        try:
            losses.append(learner.step().loss)
        except NonFiniteLoss:
            if not losses:
                raise
            return
        yield Trial(lr, losses[-1])
        latest = sum(losses[-SMOOTHING_STEPS:]) / len(losses[-SMOOTHING_STEPS:])
        best = min(best, latest)
        if latest > MAX_LOSS_RATIO * best:
            return


def smooth_losses(losses: Sequence[float]) -> list[float]:
    """The mean over SMOOTHING_STEPS steps around each step, fewer at the ends.

    >>> smooth_losses([1.0] * 20) == [1.0] * 20
    True
    """
    half = SMOOTHING_STEPS // 2
    windows = (losses[max(0, i - half) : i + half + 1] for i in range(len(losses)))
    return [sum(window) / len(window) for window in windows]


def suggest_lr(trials: Sequence[Trial]) -> SuggestedRate:
    """The learning rate at which the loss falls fastest, before the smoothed loss reaches its minimum."""
    half = SMOOTHING_STEPS // 2
    if len(trials) < SMOOTHING_STEPS:
        raise DivergedError(
            f"The loss diverged after {len(trials)} learning rates, at {trials[-1].lr:.1e}; {SMOOTHING_STEPS} are needed to "
            "suggest one. Check the data and train.clip_grad_norm."
        )
    logs, losses = [math.log10(trial.lr) for trial in trials], [trial.loss for trial in trials]
    means = smooth_losses(losses)
    lowest = means.index(min(means))
    # windows end at the lowest loss, since the loss no longer falls beyond it
    centers = range(half, max(half, lowest - half) + 1)
    slopes = {i: fit_slope(logs[i - half : i + half + 1], losses[i - half : i + half + 1]) for i in centers}
    steepest = min(slopes, key=slopes.__getitem__)
    if slopes[steepest] >= 0:
        raise ModelError(
            f"The loss does not fall at any learning rate from {trials[0].lr:.1e} to {trials[-1].lr:.1e}. "
            "Check the data, train.freeze_layers and train.batch_tokens (a larger batch is less noisy)."
        )
    return SuggestedRate(trials[steepest].lr, slopes[steepest], trials[lowest].lr)


def fit_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of the least-squares line through the points.

    >>> fit_slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    2.0
    """
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
