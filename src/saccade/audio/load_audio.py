"""Safe loading of sound files: mono float32 samples at the rate that is asked for; any other file raises an error with a hint.

The format is detected by its first bytes, and the length is read from the header before anything is decoded. WAV files of integer
samples (PCM) are read by the standard library; FLAC, Ogg, MP3, AIFF and other WAV files by libsndfile (pip install soundfile).
"""

import io
import os
import stat
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch

from saccade.audio.resample import resample
from saccade.errors import DataError

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64")
FORMATS = ("WAV", "FLAC", "Ogg", "MP3", "AIFF")
SAMPLE_RATE = 16_000  # hertz, of the samples that a speech model reads
MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 4_000, 400_000  # hertz
MAX_SECONDS = 3_600  # of one recording
MAX_CHANNELS = 64
MAX_FILE_BYTES = 1 << 30
BLOCK_SAMPLES = 1 << 20  # of each channel, decoded at a time
SILENT_PEAK = 1e-4  # of full scale, -80 dB: a recording that is never louder is silence
MAX_PEAK = 8.0  # of full scale: larger values are not in the unit of floating-point sound
CLIPPED_PEAK, MAX_CLIPPED_FRACTION = 0.999, 0.001  # of full scale, and of the samples
UNKNOWN_BYTES = (1 << 32) - 1 - (1 << 16)  # a WAV header that claims more was written before the length was known

MONO_NOTE = "the channels of a recording are averaged"
CLIPPED_NOTE = "a recording is clipped: it was recorded too loud, so its loudest parts are distorted"
REFETCH_HINT = "download it again or remove it"
FORMAT_HINT = f"save it as one of {', '.join(FORMATS)}"


class AudioError(DataError):
    """A recording that cannot be read: the problem, and what to do about it."""

    def __init__(self, problem: str, hint: str, file: object = ""):
        super().__init__(problem, file=file or "a recording", hint=hint)


class LoadedAudio(NamedTuple):
    """Mono samples from -1 to 1, their rate in hertz, and notes for the user about what was found or changed."""

    samples: np.ndarray
    sample_rate: int
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


@dataclass(frozen=True)
class AudioHeader:
    """What the header of a recording says: its rate in hertz, its channels, and its samples per channel, if it says so."""

    sample_rate: int
    channels: int
    samples: int | None


AudioSource = str | os.PathLike[str] | bytes


def load_audio(source: AudioSource, *, sample_rate: int | None = SAMPLE_RATE) -> LoadedAudio:
    """Load a recording from a file or its bytes, averaged to mono and resampled; a rate of None keeps its own."""
    name = "" if isinstance(source, bytes) else os.fspath(source)
    try:
        with _open_file(source) as file:
            samples, header = _decode(file)
        notes = (MONO_NOTE,) * (header.channels > 1) + _check_samples(samples)
        rate = header.sample_rate
        if sample_rate is not None and rate != sample_rate:
            samples, rate = resample(torch.from_numpy(samples), rate, sample_rate).numpy(), sample_rate
        return LoadedAudio(samples, rate, notes)
    except AudioError as error:
        raise AudioError(error.problem, error.hint, name) from None
    except MemoryError:
        raise
    except Exception as error:  # decoders raise almost any exception for a damaged file
        reason = str(getattr(error, "strerror", None) or error or type(error).__name__).rstrip(".")
        raise AudioError(f"the recording is damaged or truncated ({reason})", REFETCH_HINT, name) from None


def to_wav(samples: np.ndarray, sample_rate: int = SAMPLE_RATE) -> bytes:
    """Mono samples from -1 to 1 as a WAV file with 16 bits per sample.

    >>> load_audio(to_wav(np.array([0.0, 0.5, -0.25]))).samples.tolist()
    [0.0, 0.5, -0.25]
    """
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setparams((1, 2, sample_rate, 0, "NONE", ""))
        file.writeframes((np.clip(samples * 32_768, -32_768, 32_767)).round().astype("<i2").tobytes())
    return made.getvalue()


def _open_file(source: AudioSource) -> BinaryIO:
    """Open a non-empty regular file, or the bytes of one."""
    try:
        status = None if isinstance(source, bytes) else os.stat(source)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AudioError(f"the recording cannot be read ({reason})", "check its path and permissions") from None
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise AudioError("this is not a regular file", "give the path of a sound file")
    size = len(source) if isinstance(source, bytes) else status.st_size if status is not None else 0
    if not size:
        raise AudioError("the sound file is empty (0 bytes)", REFETCH_HINT)
    if size > MAX_FILE_BYTES:
        raise AudioError(f"the sound file has {size:,} bytes, more than {MAX_FILE_BYTES:,}", "cut it into parts")
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if not os.access(source, os.R_OK):
        raise AudioError("no permission to read the recording", "change its permissions, for example with chmod u+r")
    return open(source, "rb")


def detect_format(head: bytes) -> str | None:
    """The format of a sound file by its first twelve bytes; None for any other file.

    >>> detect_format(b"RIFF....WAVE"), detect_format(b"fLaC...."), detect_format(b"<!doctype ht")
    ('WAV', 'FLAC', None)
    """
    kind = head[8:12]
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and kind == b"WAVE":
        return "WAV"
    if head[:4] == b"FORM" and kind in (b"AIFF", b"AIFC"):
        return "AIFF"
    if head[:3] == b"ID3" or (
        head[:1] == b"\xff" and len(head) > 1 and head[1] in (0xFA, 0xFB, 0xF2, 0xF3, 0xE2, 0xE3)
    ):
        return "MP3"
    names = {b"fLaC": "FLAC", b"OggS": "Ogg", b".snd": "AU", b"caff": "CAF", b"riff": "W64"}
    return names.get(head[:4])


def _decode(file: BinaryIO) -> tuple[np.ndarray, AudioHeader]:
    """The mono samples of an open file, and its header, which is checked before a sample is decoded."""
    form = detect_format(file.read(12))
    file.seek(0)
    if form is None:
        raise AudioError("the file is not a recording, or it is damaged", f"{FORMAT_HINT}, or {REFETCH_HINT}")
    pcm = _open_pcm(file) if form == "WAV" else None
    blocks = _decode_with_libsndfile(file, form) if pcm is None else _decode_pcm(pcm)
    header = next(blocks)
    assert isinstance(header, AudioHeader)
    _check_header(header)
    parts, count = [np.empty(0, np.float32)], 0
    for block in blocks:
        assert isinstance(block, np.ndarray)  # (samples, channels)
        parts.append(block.mean(1, dtype=np.float32))
        count += len(block)
        _check_length(count, header.sample_rate)
    if header.samples is not None and count < header.samples:
        what = f"its header promises {header.samples:,} samples, and it has {count:,}"
        raise AudioError(f"the recording is damaged or truncated ({what})", REFETCH_HINT)
    return np.concatenate(parts), header


def _open_pcm(file: BinaryIO) -> wave.Wave_read | None:
    """A WAV file of integer samples, opened by the standard library; None for any other WAV file."""
    try:
        return wave.open(file, "rb")
    except (wave.Error, EOFError):
        file.seek(0)
        return None


def _decode_pcm(pcm: wave.Wave_read) -> Iterator[AudioHeader | np.ndarray]:
    """The header of a WAV file, then blocks of its samples as floats, (samples, channels)."""
    width, channels, samples = pcm.getsampwidth(), pcm.getnchannels(), pcm.getnframes()
    is_known = samples * width * channels < UNKNOWN_BYTES
    yield AudioHeader(pcm.getframerate(), channels, samples if is_known else None)
    while raw := pcm.readframes(BLOCK_SAMPLES // channels):
        raw = raw[: len(raw) // (width * channels) * (width * channels)]
        if not raw:
            return
        yield _integers_to_floats(raw, width).reshape(-1, channels)


def _integers_to_floats(raw: bytes, width: int) -> np.ndarray:
    """Little-endian integers of 1 (unsigned), 2, 3 or 4 bytes as floats from -1 to 1.

    >>> _integers_to_floats(bytes([0, 128, 192]), 1).tolist(), _integers_to_floats(bytes([0, 128, 0, 64]), 2).tolist()
    ([-1.0, 0.0, 0.5], [-1.0, 0.5])
    >>> _integers_to_floats(bytes([0, 0, 128, 0, 0, 64]), 3).tolist()
    [-1.0, 0.5]
    """
    if width == 1:
        return (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
    if width == 3:  # the upper three bytes of four
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        raw, width = wide.tobytes(), 4
    return np.frombuffer(raw, f"<i{width}").astype(np.float32) / float(1 << (8 * width - 1))


def _decode_with_libsndfile(file: BinaryIO, form: str) -> Iterator[AudioHeader | np.ndarray]:
    """The header of a file that libsndfile reads, then blocks of its samples, (samples, channels)."""
    soundfile = _import_soundfile(form)
    with soundfile.SoundFile(file) as opened:
        samples = opened.frames if 0 < opened.frames < 1 << 62 else None  # a streamed file does not say
        yield AudioHeader(opened.samplerate, opened.channels, samples if form != "MP3" else None)
        while len(block := opened.read(max(1, BLOCK_SAMPLES // opened.channels), dtype="float32", always_2d=True)):
            yield block


def _import_soundfile(form: str) -> Any:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the package without its library
        problem = f"reading a {form} file{' of this kind' * (form == 'WAV')} needs the package soundfile"
        raise AudioError(problem, "pip install soundfile, or save it as WAV with 16 bits per sample") from None
    return soundfile


def _check_header(header: AudioHeader) -> None:
    """Raise an error for a recording that is out of bounds, by its header, before a sample is decoded."""
    if not MIN_SAMPLE_RATE <= header.sample_rate <= MAX_SAMPLE_RATE:
        problem = f"the sample rate is {header.sample_rate:,} Hz; recordings have from {MIN_SAMPLE_RATE:,} to {MAX_SAMPLE_RATE:,}"
        raise AudioError(problem, "correct the header, or record it again with 16,000 Hz")
    if not 1 <= header.channels <= MAX_CHANNELS:
        raise AudioError(f"the recording has {header.channels} channels, not 1 to {MAX_CHANNELS}", "save it as mono")
    if header.samples == 0:
        raise AudioError("the recording is empty: it has a header and no samples", "record it again or remove it")
    _check_length(header.samples or 0, header.sample_rate)


def _check_length(samples: int, sample_rate: int) -> None:
    if samples > MAX_SECONDS * sample_rate:
        minutes = samples / sample_rate / 60
        problem = f"the recording is too long, {minutes:,.0f} minutes: more than {MAX_SECONDS // 60}"
        raise AudioError(problem, "cut it into parts")


def _check_samples(samples: np.ndarray) -> tuple[str, ...]:
    """Raise an error for samples that are no sound; returns a note if they are clipped."""
    if not len(samples):
        raise AudioError("the recording is empty: it has a header and no samples", "record it again or remove it")
    bad = len(samples) - int(np.isfinite(samples).sum())
    if bad:
        hint = "write finite numbers from -1 to 1"
        raise AudioError(f"{bad:,} of {len(samples):,} samples are not a number or infinite", hint)
    loudness = np.abs(samples)
    peak = float(loudness.max())
    if peak > MAX_PEAK:
        problem = f"the samples reach {peak:,.0f}; floating-point samples range from -1 to 1"
        raise AudioError(problem, "divide them by the largest value of their integer type, such as 32768")
    if peak < SILENT_PEAK:
        level = "all samples are 0" if peak == 0 else f"its peak is {20 * np.log10(peak):.0f} dB of full scale"
        raise AudioError(f"the recording is silent: {level}", "check the microphone, or remove it")
    clipped = float((loudness >= CLIPPED_PEAK).mean())
    return (CLIPPED_NOTE,) if clipped > MAX_CLIPPED_FRACTION else ()
