"""Log-mel spectrograms as Whisper computes them: for each 10 ms, how loud each band of frequencies is (Radford et al. 2022).

The mel scale (Slaney's, as in librosa) is linear in hertz up to 1,000 Hz and logarithmic above, as people hear pitch.

>>> round(hz_to_mel(1000.0), 6), round(mel_to_hz(hz_to_mel(4321.0)), 6)
(15.0, 4321.0)
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

LINEAR_HZ_PER_MEL = 200 / 3  # below 1,000 Hz
LOG_START_HZ, LOG_START_MEL = 1_000.0, 15.0
LOG_STEP = math.log(6.4) / 27  # natural logarithm of the frequency ratio of one mel, above 1,000 Hz
MIN_POWER = 1e-10
DYNAMIC_RANGE = 8.0  # decimal orders of magnitude below the loudest band that are kept: 80 dB


@dataclass(frozen=True)
class MelConfig:
    """The sizes of a log-mel spectrogram."""

    sample_rate: int = 16_000  # Sample rate of the recordings in hertz.
    mels: int = 80  # Number of mel bands.
    window: int = 400  # Samples of a window of the Fourier transform.
    hop: int = 160  # Samples from one frame to the next.

    @property
    def frames_per_second(self) -> float:
        return self.sample_rate / self.hop

    def count_frames(self, samples: int) -> int:
        """The number of frames of so many samples."""
        return max(samples, self.window) // self.hop


def hz_to_mel(hz: float) -> float:
    """A frequency in hertz on the mel scale."""
    return hz / LINEAR_HZ_PER_MEL if hz < LOG_START_HZ else LOG_START_MEL + math.log(hz / LOG_START_HZ) / LOG_STEP


def mel_to_hz(mel: float) -> float:
    """A position on the mel scale in hertz."""
    return mel * LINEAR_HZ_PER_MEL if mel < LOG_START_MEL else LOG_START_HZ * math.exp((mel - LOG_START_MEL) * LOG_STEP)


@lru_cache(maxsize=8)
def band_edges(config: MelConfig) -> Tensor:
    """The edges of the mel bands in hertz, (mels + 2,): band i rises from edge i to i + 1 and falls to i + 2."""
    top = hz_to_mel(config.sample_rate / 2)
    count = config.mels + 2
    return torch.tensor([mel_to_hz(top * i / (count - 1)) for i in range(count)], dtype=torch.float64)


@lru_cache(maxsize=8)
def mel_filters(config: MelConfig) -> Tensor:
    """The triangular filters, (mels, frequencies); each has the area 2 / (width in hertz), so wide bands are not louder."""
    frequencies = torch.linspace(0, config.sample_rate / 2, config.window // 2 + 1, dtype=torch.float64)
    edges = band_edges(config)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0) * 2 / (high - low)


def log_mel(samples: Tensor, config: MelConfig | None = None) -> Tensor:
    """The log-mel spectrogram of samples (L,), (frames, mels); each frame is centered at its time, the first at 0."""
    config = config or MelConfig()
    if samples.size(-1) < config.window:
        samples = F.pad(samples, (0, config.window - samples.size(-1)))
    window = torch.hann_window(config.window, dtype=samples.dtype, device=samples.device)
    spectrum = torch.stft(samples, config.window, config.hop, window=window, center=True, return_complex=True)
    power = spectrum[..., :-1].abs() ** 2  # (frequencies, frames); the frame at the very end is left out
    mel = mel_filters(config).to(samples) @ power
    log = mel.clamp(min=MIN_POWER).log10()
    log = torch.maximum(log, log.amax() - DYNAMIC_RANGE)
    return ((log + 4) / 4).transpose(-1, -2).contiguous()
