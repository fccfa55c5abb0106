"""Augmentation of log-mel spectrograms in training: masks (SpecAugment), speed, and noise, on a whole batch at once.

Speed is resampling: faster speech is shorter and higher. On a spectrogram this is a stretch in time and a shift in frequency, so
that nothing is decoded again (`tests/audio` compares it with the spectrogram of `change_speed`). Each function samples from
torch's global generator, on the CPU, and returns the frames and their padding mask.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from saccade.audio.mel import MelConfig, band_edges
from saccade.audio.resample import resample
from saccade.errors import UsageError

FREQUENCY_MASKS, MAX_MASKED_BANDS = 2, 0.2  # of each recording, and the share of the bands that one may hide
TIME_MASKS, MAX_MASKED_FRAMES, MAX_MASKED_TIME = 4, 24, 0.1  # the same for frames, at most this share of the recording
MAX_SPEED_CHANGE = 0.12  # of the speed, up or down
MAX_NOISE = 0.35  # of the range of a spectrogram (Whisper's unit: 40 dB), above its quietest band

Frames = tuple[Tensor, Tensor | None]  # (B, T, M), and (B, T), True at frames and False at padding


def change_speed(samples: Tensor, factor: float) -> Tensor:
    """Recorded samples (..., L) played at another speed: 1.1 is shorter and higher (Ko et al. 2015)."""
    return resample(samples, factor, 1.0)


def change_frame_speed(frames: Tensor, keep: Tensor | None, factors: Tensor, config: MelConfig) -> Frames:
    """The spectrograms (B, T, M) of recordings that are played at the speeds `factors`, (B,)."""
    count, length, _ = frames.shape
    lengths = frames.new_full((count,), length) if keep is None else keep.sum(1).to(frames)
    lengths = (lengths / factors).round().clamp(min=1)
    longest = int(lengths.max())
    times = (torch.arange(longest, device=frames.device) * factors[:, None]).clamp(max=length - 1)  # (B, T')
    before = times.floor().long()
    after = (before + 1).clamp(max=length - 1)
    share = (times - before)[..., None]
    rows = torch.arange(count, device=frames.device)[:, None]
    stretched = frames[rows, before] * (1 - share) + frames[rows, after] * share
    shifted = stretched @ _frequency_weights(factors, config).to(frames)  # (B, T', M)
    keep = torch.arange(longest, device=frames.device) < lengths[:, None]
    return shifted, None if bool(keep.all()) else keep


def _frequency_weights(factors: Tensor, config: MelConfig) -> Tensor:
    """Weights (B, old band, new band) by which the content of a band moves to its frequency times the factor."""
    centers = band_edges(config)[1:-1].to(factors)
    source = centers / factors[:, None]  # (B, M): the frequency that a new band had before
    at = torch.searchsorted(centers, source).clamp(1, len(centers) - 1)
    share = ((source - centers[at - 1]) / (centers[at] - centers[at - 1])).clamp(0, 1)
    weights = factors.new_zeros(len(factors), len(centers), len(centers))
    weights.scatter_(1, (at - 1)[:, None], (1 - share)[:, None])
    return weights.scatter_add_(1, at[:, None], share[:, None])


def mask_frames(frames: Tensor, keep: Tensor | None) -> Frames:
    """SpecAugment: hide bands of frequencies and spans of time, filled with the mean (Park et al. 2019, arXiv 1904.08779)."""
    count, length, mels = frames.shape
    lengths = torch.full((count,), length) if keep is None else keep.sum(1).cpu()
    hidden = torch.zeros(count, length, mels, dtype=torch.bool)
    for _ in range(FREQUENCY_MASKS):
        hidden |= _random_spans(torch.full((count,), mels), torch.full((count,), mels * MAX_MASKED_BANDS), mels)[
            :, None
        ]
    for _ in range(TIME_MASKS):
        longest = (lengths * MAX_MASKED_TIME).clamp(max=MAX_MASKED_FRAMES)
        hidden |= _random_spans(lengths, longest, length)[..., None]
    return torch.where(hidden.to(frames.device), mean_frame(frames, keep), frames), keep


def _random_spans(lengths: Tensor, longest: Tensor, size: int) -> Tensor:
    """One random span in each row, (B, size): True inside; it is at most `longest` long and within the row's length."""
    width = (torch.rand(len(lengths)) * (longest + 1)).floor()
    start = (torch.rand(len(lengths)) * (lengths - width + 1)).floor()
    at = torch.arange(size)
    return (at >= start[:, None]) & (at < (start + width)[:, None])


def mean_frame(frames: Tensor, keep: Tensor | None) -> Tensor:
    """The mean of the real frames of each recording, (B, 1, M)."""
    if keep is None:
        return frames.mean(1, keepdim=True)
    real = keep[..., None].to(frames)
    return (frames * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)


def random_speed(frames: Tensor, keep: Tensor | None, config: MelConfig) -> Frames:
    """A random speed for each recording."""
    factors = 1 + MAX_SPEED_CHANGE * (2 * torch.rand(len(frames)) - 1)
    return change_frame_speed(frames, keep, factors.to(frames), config)


def random_noise(frames: Tensor, keep: Tensor | None) -> Frames:
    """Steady noise of a random level and a random slope over the frequencies, below which nothing is heard."""
    count, _, mels = frames.shape
    quiet = frames.amin((1, 2), keepdim=True)
    level = (torch.rand(count, 1, 1) * MAX_NOISE).to(frames)
    slope = ((torch.rand(count, 1, 1) - 0.5) * MAX_NOISE).to(frames) * torch.linspace(-1, 1, mels, device=frames.device)
    return _add_powers(frames, quiet + level + slope), keep


def _add_powers(a: Tensor, b: Tensor) -> Tensor:
    """The log-mel values of the sum of two sounds."""
    scale = 4 * torch.log(torch.tensor(10.0))  # a value is log10(power) / 4 + 1
    return torch.logaddexp(a * scale, b * scale) / scale


AUGMENTATIONS: dict[str, tuple[str, ...]] = {  # the steps of each augmentation, in order
    "none": (),
    "masks": ("masks",),
    "speed": ("speed",),
    "noise": ("noise",),
    "speed_noise_masks": ("speed", "noise", "masks"),
}


def get_augmentation(name: str) -> Callable[[Tensor, Tensor | None, MelConfig], Frames]:
    """Return the augmentation of that name, which maps a batch of frames and its padding mask to another."""
    if name not in AUGMENTATIONS:
        raise UsageError(f"Unknown audio augmentation {name!r}; choose one of {', '.join(AUGMENTATIONS)}.")

    def augment(frames: Tensor, keep: Tensor | None, config: MelConfig) -> Frames:
        for step in AUGMENTATIONS[name]:
            if step == "speed":
                frames, keep = random_speed(frames, keep, config)
            else:
                frames, keep = (random_noise if step == "noise" else mask_frames)(frames, keep)
        return frames, keep

    return augment
