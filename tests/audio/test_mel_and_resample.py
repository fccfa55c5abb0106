"""Sound as numbers: the spectrogram equals the published one, a worked filter, resampled sines, and augmentations that fit."""

import math

import numpy as np
import pytest
import torch
from scipy.signal import resample_poly
from torch.testing import assert_close

from saccade.audio.augment import AUGMENTATIONS, change_frame_speed, change_speed, get_augmentation, mask_frames
from saccade.audio.mel import MelConfig, band_edges, log_mel, mel_filters
from saccade.audio.resample import resample
from saccade.errors import UsageError


def tone(hertz, seconds=0.5, rate=16_000, dtype=torch.float64):
    return torch.sin(2 * math.pi * hertz * torch.arange(int(seconds * rate), dtype=dtype) / rate)


def speechlike(seconds=0.7, seed=0):
    """A gliding pitch with four harmonics and pauses."""
    t = torch.arange(int(seconds * 16_000), dtype=torch.float64) / 16_000
    phase = 2 * math.pi * (180 * t + 60 * (2 * math.pi * 1.5 * t).sin())
    voice = sum((k * phase).sin() / k for k in range(1, 30))
    noise = torch.randn(len(t), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (0.1 * voice * (1 + (2 * math.pi * 4 * t).sin()) + 0.001 * noise).float()


@pytest.mark.parametrize("mels", [80, 128])
def test_the_spectrogram_is_that_of_whisper(mels):
    from transformers import WhisperFeatureExtractor

    samples = np.zeros(16_000 * 30, np.float32)
    samples[: 16_000 * 3] = np.random.default_rng(0).normal(0, 0.1, 16_000 * 3)
    theirs = WhisperFeatureExtractor(feature_size=mels)(samples, sampling_rate=16_000, return_tensors="pt")
    assert_close(
        log_mel(torch.from_numpy(samples), MelConfig(mels=mels)), theirs.input_features[0].T, atol=1e-5, rtol=0
    )


def test_three_filters_worked_by_hand():
    """At 2,000 Hz and 3 bands, edges are at 0, 250, 500, 750 and 1,000 Hz (linear there), bins at multiples of 125."""
    config = MelConfig(sample_rate=2_000, mels=3, window=16, hop=4)
    assert_close(band_edges(config), torch.tensor([0.0, 250, 500, 750, 1_000], dtype=torch.float64))
    height = 2 / 500
    rising_and_falling = [0, height / 2, height, height / 2, 0, 0, 0, 0, 0]
    expected = [rising_and_falling[-shift:] + rising_and_falling[:-shift] for shift in (0, 2, 4)]
    assert_close(mel_filters(config), torch.tensor(expected, dtype=torch.float64))


def test_one_frame_worked_as_a_loop():
    config = MelConfig(sample_rate=2_000, mels=3, window=16, hop=4)
    x = torch.randn(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    frame, filters = 5, mel_filters(config)
    logs = []
    for number in range(10):
        windowed = [
            float(x[abs(i) if i < 40 else 78 - i]) * (0.5 - 0.5 * math.cos(2 * math.pi * j / 16))
            for j, i in enumerate(range(number * 4 - 8, number * 4 + 8))
        ]
        power = [
            abs(sum(v * np.exp(-2j * math.pi * k * j / 16) for j, v in enumerate(windowed))) ** 2 for k in range(9)
        ]
        logs.append(
            [math.log10(max(1e-10, sum(float(w) * p for w, p in zip(row, power, strict=True)))) for row in filters]
        )
    highest = max(max(row) for row in logs)
    expected = [(max(value, highest - 8) + 4) / 4 for value in logs[frame]]
    assert log_mel(x, config)[frame].tolist() == pytest.approx(expected, abs=1e-9)


def test_the_loudest_band_of_a_tone_is_its_own():
    config = MelConfig()
    for hertz in (250.0, 1_000.0, 3_333.0):
        band = int(log_mel(tone(hertz), config)[20].argmax())
        low, high = band_edges(config)[band], band_edges(config)[band + 2]
        assert low < hertz < high


@pytest.mark.parametrize("samples", [1, 399, 400, 401, 16_000])
def test_frames_are_as_many_as_promised_and_a_very_short_sound_has_some(samples):
    assert len(log_mel(torch.ones(samples) * 0.1)) == MelConfig().count_frames(samples) >= 2


@pytest.mark.parametrize(
    ("old", "new"), [(8_000, 16_000), (44_100, 16_000), (48_000, 16_000), (11_025, 16_000), (16_000, 8_000)]
)
def test_a_resampled_sine_is_the_sine_at_the_new_rate(old, new):
    y = resample(tone(1_234, rate=old), old, new)
    inner = slice(new // 50, -new // 50)
    assert_close(y[inner], tone(1_234, rate=new)[: len(y)][inner], atol=2e-4, rtol=0)


def test_resampling_agrees_with_scipy_on_what_both_let_pass():
    x = sum(tone(hertz, rate=8_000) for hertz in (100, 700, 2_500))
    theirs = torch.from_numpy(resample_poly(x.numpy(), 2, 1, window=("kaiser", 12.0)))
    assert_close(resample(x, 8_000, 16_000)[400:-400], theirs[400:-400], atol=5e-3, rtol=0)


def test_what_is_above_the_new_nyquist_frequency_is_gone():
    assert float(resample(tone(9_500, rate=44_100), 44_100, 16_000)[500:-500].abs().max()) < 1e-3


def test_the_same_rate_is_the_same_samples_and_a_batch_is_its_rows():
    x = torch.stack([tone(300, dtype=torch.float32), tone(500, dtype=torch.float32)])
    assert resample(x, 16_000, 16_000) is x
    assert_close(resample(x, 16_000, 12_000), torch.stack([resample(row, 16_000, 12_000) for row in x]))
    with pytest.raises(ValueError, match="must be positive"):
        resample(x, 16_000, 0)


@pytest.mark.parametrize("factor", [0.88, 1.12])
def test_a_stretched_spectrogram_is_near_that_of_the_faster_sound(factor):
    x = speechlike()
    frames, exact = log_mel(x), log_mel(change_speed(x, factor))
    fast, keep = change_frame_speed(frames[None], None, torch.tensor([factor]), MelConfig())
    length = min(len(exact), fast.size(1))
    assert keep is None
    assert abs(len(exact) - fast.size(1)) <= 1
    unchanged = torch.nn.functional.interpolate(frames.T[None], length, mode="linear")[0].T  # stretched in time only
    error, stretched_only = (fast[0, :length] - exact[:length]).abs().mean(), (unchanged - exact[:length]).abs().mean()
    assert error < 0.6 * stretched_only


def test_the_same_speed_changes_nothing_and_padding_stays_padding():
    frames = torch.rand(2, 50, 80)
    keep = torch.arange(50) < torch.tensor([[50], [30]])
    same, kept = change_frame_speed(frames, keep, torch.ones(2), MelConfig())
    assert_close(same, frames)
    assert kept is not None
    assert torch.equal(kept, keep)
    _, faster = change_frame_speed(frames, keep, torch.tensor([2.0, 1.5]), MelConfig())
    assert faster is not None
    assert faster.sum(1).tolist() == [25, 20]


def test_masks_hide_whole_bands_and_spans_behind_the_mean_and_no_more_than_they_may():
    torch.manual_seed(0)
    frames = torch.rand(40, 300, 80)
    masked, _ = mask_frames(frames, None)
    hidden = masked != frames
    bands, spans = hidden.all(1).sum(1), hidden.all(2).sum(1)
    assert 0 < int(bands.max()) <= 2 * 16
    assert 0 < int(spans.max()) <= 4 * 24
    assert_close(masked[hidden], frames.mean(1, keepdim=True).expand_as(frames)[hidden])


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_an_augmentation_follows_the_seed_and_keeps_what_is_said(name):
    frames = log_mel(speechlike())[None].repeat(3, 1, 1)
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(get_augmentation(name)(frames, None, MelConfig())[0])
    assert torch.equal(made[0], made[1])
    assert name == "none" or made[0].shape != made[2].shape or not torch.equal(made[0], made[2])
    assert all(x.isfinite().all() and 0.7 < x.size(1) / frames.size(1) < 1.3 for x in made)
    with pytest.raises(UsageError, match="masks"):
        get_augmentation("mask")
