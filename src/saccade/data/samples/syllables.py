"""Synthetic speech: words of a few syllables, spoken by voices of different pitch, size and speed, with no recording behind it.

A vowel is a buzz (harmonics of the pitch of the voice) shaped by the two formants of the vowel (Peterson and Barney 1952); a
consonant is a hum, a hiss or a burst of noise. The voice, its melody and the loudness of its room are random. No language is
spoken, but the spelling is exactly true of the sound.

>>> example = make(1, 0)[0]
>>> example["text"], example["audio"].dtype, len(example["audio"]) > 8_000
('fi ku kilo', dtype('float32'), True)
"""

from dataclasses import dataclass
from random import Random

import numpy as np

from saccade.data.example import Example
from saccade.data.samples.base import Sample, check_count, make_examples, make_random

SAMPLE_RATE = 16_000
VOWELS = {"a": (730, 1_090), "e": (530, 1_840), "i": (270, 2_290), "o": (570, 840), "u": (300, 870)}  # formants, hertz
SONORANTS = {"m": (250, 1_000), "n": (250, 1_700), "l": (360, 2_600)}  # the same for voiced consonants
NOISES = {
    "s": (5_500, 0.11),
    "f": (2_500, 0.10),
    "t": (4_000, 0.025),
    "k": (1_800, 0.035),
    "p": (700, 0.025),
}  # center, seconds
BANDWIDTH = 90.0  # of a formant, in hertz
VOWEL_SECONDS, HUM_SECONDS, CLOSURE_SECONDS, PAUSE_SECONDS = 0.12, 0.07, 0.04, 0.12
PLOSIVES = ("t", "k", "p")  # a short silence comes before them


@dataclass(frozen=True)
class Voice:
    """The speaker of one recording."""

    pitch: float  # hertz
    size: float  # factor of all formants: a smaller head has higher ones
    speed: float
    noise: float  # loudness of the room


def draw_voice(random: Random) -> Voice:
    return Voice(random.uniform(90, 250), random.uniform(0.9, 1.15), random.uniform(0.85, 1.2), random.uniform(0, 0.01))


def draw_text(random: Random) -> str:
    """One to three words of one or two syllables."""
    consonants = [*SONORANTS, *NOISES]
    words = []
    for _ in range(random.randint(1, 3)):
        words.append("".join(random.choice(consonants) + random.choice([*VOWELS]) for _ in range(random.randint(1, 2))))
    return " ".join(words)


def speak(text: str, voice: Voice, seed: int = 0) -> np.ndarray:
    """The samples of a text, in float32 at 16,000 Hz."""
    chance = np.random.Generator(np.random.PCG64(seed))
    parts = [_silence(PAUSE_SECONDS, voice)]
    for letter in text:
        if letter == " ":
            parts.append(_silence(PAUSE_SECONDS, voice))
        elif letter in NOISES:
            center, seconds = NOISES[letter]
            parts += [_silence(CLOSURE_SECONDS, voice)] * (letter in PLOSIVES)
            parts.append(_hiss(center * voice.size, seconds / voice.speed, chance))
        else:
            is_vowel = letter in VOWELS
            seconds = (VOWEL_SECONDS if is_vowel else HUM_SECONDS) / voice.speed * chance.uniform(0.85, 1.2)
            loudness = 0.2 if is_vowel else 0.08
            parts.append(loudness * _buzz((VOWELS | SONORANTS)[letter], seconds, voice, chance))
    parts.append(_silence(PAUSE_SECONDS, voice))
    samples = np.concatenate(parts)
    return (samples + voice.noise * chance.standard_normal(len(samples))).astype(np.float32)


def _silence(seconds: float, voice: Voice) -> np.ndarray:
    return np.zeros(int(seconds / voice.speed * SAMPLE_RATE))


def _buzz(formants: tuple[float, float], seconds: float, voice: Voice, chance: np.random.Generator) -> np.ndarray:
    """Harmonics of the pitch, each as loud as the formants let it through; the peak is 1."""
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    pitch = voice.pitch * chance.uniform(0.9, 1.1)
    harmonics = pitch * np.arange(1, int(4_000 / pitch) + 1)
    gains = sum(1 / (1 + ((harmonics - f * voice.size) / BANDWIDTH) ** 2) for f in formants) + 0.01
    samples = gains @ np.sin(2 * np.pi * np.outer(harmonics, t) + chance.uniform(0, 2 * np.pi, (len(harmonics), 1)))
    return samples / np.abs(samples).max() * _fade(len(t))


def _hiss(center: float, seconds: float, chance: np.random.Generator) -> np.ndarray:
    """Noise around a frequency."""
    count = int(seconds * SAMPLE_RATE)
    spectrum = np.fft.rfft(chance.standard_normal(count))
    frequencies = np.fft.rfftfreq(count, 1 / SAMPLE_RATE)
    samples = np.fft.irfft(spectrum * np.exp(-(((frequencies - center) / (0.35 * center)) ** 2)), count)
    return 0.1 * samples / np.abs(samples).max() * _fade(count)


def _fade(count: int) -> np.ndarray:
    """An envelope that rises and falls within 10 ms."""
    edge = np.minimum(np.arange(count), np.arange(count)[::-1]) / (0.01 * SAMPLE_RATE)
    return np.minimum(edge, 1.0)


def make(count: int, seed: int) -> list[Example]:
    """Examples with `audio`, the samples of a recording, and `text`, what is said."""
    check_count("syllables", count)
    random = make_random("syllables", seed)
    rows = []
    for _ in range(count):
        text, voice = draw_text(random), draw_voice(random)
        rows.append({"audio": speak(text, voice, random.getrandbits(32)), "text": text})
    return make_examples("syllables", rows)


SAMPLE = Sample("syllables", "synthetic speech: spoken syllables of no language", ("transcribe",), make, 600)
