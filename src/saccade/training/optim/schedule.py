"""Learning-rate schedules: linear warmup, then linear, cosine, inverse square root or no decay."""

import math
from collections.abc import Callable

# (n, last, warm) -> fraction of the peak learning rate at step n of `last`, counted from the end of the `warm` warmup steps
DecayCurve = Callable[[float, float, float], float]

SCHEDULES: dict[str, DecayCurve] = {
    "linear": lambda n, last, warm: 1 - n / last,
    "cosine": lambda n, last, warm: (1 + math.cos(math.pi * n / last)) / 2,
    "inverse_sqrt": lambda n, last, warm: math.sqrt(warm / (warm + n)),  # Vaswani et al. 2017: 1/√step after warmup
    "constant": lambda n, last, warm: 1.0,
}


def lr_at(step: int, total_steps: int, *, max_lr: float, schedule: str = "linear", warmup: float = 0.1) -> float:
    """The learning rate of step 0, 1, ...; `warmup` is a fraction of `total_steps`, or a number of steps if 1 or more.

    >>> [round(lr_at(n, 10, max_lr=1.0, warmup=2), 2) for n in range(10)]
    [0.5, 1.0, 1.0, 0.88, 0.75, 0.62, 0.5, 0.38, 0.25, 0.12]
    >>> [round(lr_at(n, 10, max_lr=1.0, schedule="inverse_sqrt", warmup=4), 2) for n in (3, 4, 9)]
    [1.0, 1.0, 0.67]
    """
    warm = warmup if warmup >= 1 else round(warmup * total_steps)
    if step < warm:
        return max_lr * (step + 1) / warm
    last = max(1.0, total_steps - warm)
    return max_lr * SCHEDULES[schedule](min(step - warm, last), last, max(1.0, warm))
