"""Resampling: a low-pass filter (a sinc with a Hann window) evaluated at the new sample times, as one polyphase convolution."""

import math
from fractions import Fraction
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

ZERO_CROSSINGS = 24  # of the sinc, on each side of a sample: more is sharper and slower
ROLLOFF = 0.95  # cutoff of the filter, as a share of the lower Nyquist frequency
MAX_PHASES = 1_000  # different positions of new samples between old ones


def resample(samples: Tensor, old_rate: float, new_rate: float) -> Tensor:
    """Samples (..., L) at one rate as samples at another rate, (..., ceil(L * new / old)).

    >>> resample(torch.ones(800), 8_000, 16_000).shape, resample(torch.ones(801), 48_000, 16_000).shape
    (torch.Size([1600]), torch.Size([267]))
    """
    ratio = Fraction(new_rate / old_rate).limit_denominator(MAX_PHASES)
    if ratio <= 0 or ratio.numerator > 10 * MAX_PHASES:
        raise ValueError(
            f"Cannot resample from {old_rate:g} to {new_rate:g} Hz; the rates must be positive and similar."
        )
    new, old = ratio.numerator, ratio.denominator
    if new == old:
        return samples
    kernel, padding = _make_kernel(old, new)
    length = math.ceil(samples.size(-1) * new / old)
    x = F.pad(samples.reshape(-1, 1, samples.size(-1)), (padding, padding + old))
    out = F.conv1d(x, kernel.to(samples), stride=old)  # (N, phases, L / old)
    return out.transpose(1, 2).reshape(*samples.shape[:-1], -1)[..., :length]


@lru_cache(maxsize=8)
def _make_kernel(old: int, new: int) -> tuple[Tensor, int]:
    """The filter at each of `new` positions among `old` samples, (new, 1, taps), and the padding that it needs."""
    cutoff = min(old, new) * ROLLOFF
    padding = math.ceil(ZERO_CROSSINGS * old / cutoff)
    taps = torch.arange(-padding, padding + old, dtype=torch.float64) / old  # times of old samples, in blocks of `old`
    times = torch.arange(new, dtype=torch.float64) / new
    t = (taps[None, :] - times[:, None]) * cutoff  # (new, taps), in zero crossings
    window = torch.cos((t / ZERO_CROSSINGS).clamp(-1, 1) * math.pi / 2) ** 2
    return (torch.sinc(t) * window * cutoff / old)[:, None], padding
