"""Spectrograms of recordings: a file, its bytes or an array of samples as a log-mel array (frames, mels).

>>> load_spectrogram(np.ones(16_000, np.float32)).shape
(100, 80)
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from saccade.audio.load_audio import load_audio
from saccade.audio.mel import MelConfig, log_mel
from saccade.errors import UsageError

MAX_SPECTROGRAM_BYTES = 1 << 30  # of the spectrograms that a dataset may hold in memory

Recording = str | os.PathLike[str] | bytes | np.ndarray  # an array has the sample rate of the spectrogram


def load_samples(source: Recording, config: MelConfig | None = None) -> np.ndarray:
    """The mono samples of a recording at the sample rate of a spectrogram; an array of samples is returned as it is."""
    if isinstance(source, np.ndarray):
        if source.ndim != 1 or not np.issubdtype(source.dtype, np.floating):
            raise UsageError(
                f"Samples are an array of floats from -1 to 1 with one axis; got {source.dtype} {source.shape}. Average the "
                "channels, and divide integers by the largest value of their type."
            )
        return source.astype(np.float32, copy=False)
    return load_audio(source, sample_rate=(config or MelConfig()).sample_rate).samples


def load_spectrogram(source: Recording, config: MelConfig | None = None) -> np.ndarray:
    """The log-mel spectrogram of a recording, (frames, mels) in float32."""
    return log_mel(torch.tensor(load_samples(source, config)), config).numpy()


@dataclass(frozen=True)
class LazySpectrogram:
    """A spectrogram that is computed each time it is converted with `numpy.asarray`."""

    source: Recording
    config: MelConfig
    frames: int
    ndim: ClassVar[int] = 2

    def __len__(self) -> int:
        return self.frames

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return load_spectrogram(self.source, self.config).astype(dtype or np.float32, copy=False)


def lazy_spectrograms(
    sources: Sequence[Recording], config: MelConfig, *, max_bytes: int = MAX_SPECTROGRAM_BYTES
) -> list[np.ndarray | LazySpectrogram]:
    """The spectrograms of all recordings; those after the first `max_bytes` of them are computed anew each time."""
    found: list[np.ndarray | LazySpectrogram] = []
    size = 0
    for source in sources:
        spectrogram = load_spectrogram(source, config)
        size += spectrogram.nbytes
        found.append(spectrogram if size <= max_bytes else LazySpectrogram(source, config, len(spectrogram)))
    return found


def draw_spectrogram(frames: np.ndarray) -> np.ndarray:
    """A spectrogram (frames, mels) as a gray image, (mels, frames, 1) in uint8: time from left to right, high bands on top.

    >>> draw_spectrogram(np.array([[0.0, 1.0], [0.5, 0.0]]))[..., 0].tolist()
    [[255, 0], [0, 127]]
    """
    low, high = float(frames.min()), float(frames.max())
    scaled = (frames - low) / max(high - low, 1e-9) * 255
    return np.ascontiguousarray(scaled.T[::-1, :, None]).astype(np.uint8)
