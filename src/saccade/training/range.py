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
from saccade.training.job import Ready
from saccade.training.loop import Diverged, Learner

LOWEST, HIGHEST, STEPS = 1e-6, 1.0, 100
WINDOW = 15  # steps that a mean and a slope are taken over: nearly a tenfold of the rate
WORSE = 4.0  # times the best mean loss: then it is over


@dataclass(frozen=True)
class Tried:
    """One step at one rate."""

    rate: float
    loss: float


@dataclass(frozen=True)
class Choice:
    """The rate to train with, and what it was chosen by."""

    rate: float
    slope: float  # of the smoothed loss there, for a tenfold of the rate
    lowest: float  # the rate at which the smoothed loss was lowest

    @property
    def why(self) -> str:
        return (
            f"the loss, smoothed over {WINDOW} steps, falls fastest around this rate ({self.slope:+.2g} for a tenfold)"
        )

    @property
    def other(self) -> str:
        """The other rule of thumb; where it names a higher rate, that may be quicker and needs a warm-up."""
        return f"{self.lowest / 10:.1e} is a tenth of the rate at which the loss is lowest ({self.lowest:.1e})"


def rates(lowest: float = LOWEST, highest: float = HIGHEST, steps: int = STEPS) -> list[float]:
    """Rates that grow by the same factor from step to step.

    >>> [f"{rate:.0e}" for rate in rates(1e-3, 1.0, 4)]
    ['1e-03', '1e-02', '1e-01', '1e+00']
    """
    if not (0 < lowest < highest and steps > 1):
        raise UsageError(f"Rates from {lowest} to {highest} in {steps} steps do not grow; give 0 < lowest < highest.")
    return [lowest * (highest / lowest) ** (step / (steps - 1)) for step in range(steps)]


def try_rates(ready: Ready, tried: Sequence[float] | None = None) -> Iterator[Tried]:
    """A step for each rate, on a copy that is thrown away; it ends early where the loss is far above its best."""
    config = replace(ready.config, schedule="constant", warmup=0.0, average=0.0)
    model = copy.deepcopy(ready.model)
    read = ready.feed(model)
    learner = Learner(model, ready.task, read, config)
    losses: list[float] = []
    best = math.inf
    for rate in tried or rates():
        learner.config = replace(config, rate=rate)
        try:
            losses.append(learner.step().loss)
        except Diverged:
            if not losses:
                raise
            return
        yield Tried(rate, losses[-1])
        latest = sum(losses[-WINDOW:]) / len(losses[-WINDOW:])
        best = min(best, latest)
        if latest > WORSE * best:
            return


def smoothed(losses: Sequence[float]) -> list[float]:
    """The mean over WINDOW steps around each step, and over fewer at the ends.

    >>> smoothed([1.0] * 20) == [1.0] * 20
    True
    """
    half = WINDOW // 2
    windows = (losses[max(0, i - half) : i + half + 1] for i in range(len(losses)))
    return [sum(window) / len(window) for window in windows]


def choose(tried: Sequence[Tried]) -> Choice:
    """The rate of the steepest fall before the smoothed loss is lowest."""
    half = WINDOW // 2
    if len(tried) < WINDOW:
        raise DivergedError(
            f"The loss ran away after {len(tried)} rates, at {tried[-1].rate:.1e}; {WINDOW} are needed to choose one. "
            "Look at the data and at train.clip."
        )
    logs, losses = [math.log10(step.rate) for step in tried], [step.loss for step in tried]
    means = smoothed(losses)
    lowest = means.index(min(means))
    # a window reaches no further than to the lowest loss: what lies beyond it is no fall any more
    centres = range(half, max(half, lowest - half) + 1)
    slopes = {i: slope(logs[i - half : i + half + 1], losses[i - half : i + half + 1]) for i in centres}
    steepest = min(slopes, key=slopes.__getitem__)
    if slopes[steepest] >= 0:
        raise ModelError(
            f"The loss falls at no rate from {tried[0].rate:.1e} to {tried[-1].rate:.1e}: the model learns nothing here. "
            "Look at the data, at train.freeze and at train.tokens (more of them in a step are less noisy)."
        )
    return Choice(tried[steepest].rate, slopes[steepest], tried[lowest].rate)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the straight line nearest to the points.

    >>> slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    2.0
    """
    middle, mean = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - mean) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)
