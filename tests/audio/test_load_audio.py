"""Recordings in every format that is read, and some forty that are none, or not whole, or out of bounds: named, with a cure."""

import io
import os
import struct
import sys
import tracemalloc
import wave

import numpy as np
import pytest
import soundfile

from saccade.audio import load_audio as loading
from saccade.audio.load_audio import CLIPPED_NOTE, MONO_NOTE, AudioError, load_audio

RATE = 8_000
SOUND = (0.3 * np.sin(2 * np.pi * 440 * np.arange(2_000) / RATE)).astype(np.float32)


def pcm(samples=SOUND, *, rate=RATE, channels=1, width=2) -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        scaled = np.asarray(samples) * (2 ** (8 * width - 1) - 1)
        integers = scaled.astype("<i4")
        if width == 1:
            file.writeframes((integers + 128).astype(np.uint8).tobytes())
        elif width == 3:
            file.writeframes(integers.view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
        else:
            file.writeframes(integers.astype(f"<i{width}").tobytes())
    return made.getvalue()


def coded(form, subtype=None, samples=SOUND, rate=RATE) -> bytes:
    made = io.BytesIO()
    soundfile.write(made, samples, rate, format=form, subtype=subtype)
    return made.getvalue()


def patched(raw: bytes, at: int, layout: str, *values) -> bytes:
    """Other numbers at an offset of a file."""
    new = struct.pack(layout, *values)
    return raw[:at] + new + raw[at + len(new) :]


def claimed(raw: bytes, data_bytes: int) -> bytes:
    """A WAV header that promises more data than there are."""
    return patched(patched(raw, 4, "<I", min(data_bytes + 36, 2**32 - 1)), 40, "<I", data_bytes)


WAV = pcm()
FLAC = coded("FLAC")
READ = {
    "PCM 8": (pcm(width=1), 0.02),
    "PCM 16": (WAV, 1e-4),
    "PCM 24": (pcm(width=3), 1e-6),
    "PCM 32": (pcm(width=4), 1e-6),
    "float": (coded("WAV", "FLOAT"), 1e-7),
    "double": (coded("WAV", "DOUBLE"), 1e-7),
    "mu-law": (coded("WAV", "ULAW"), 0.03),
    "extensible": (coded("WAVEX", "PCM_16"), 1e-4),
    "FLAC": (FLAC, 1e-4),
    "FLAC 24": (coded("FLAC", "PCM_24"), 1e-6),
    "Ogg Vorbis": (coded("OGG", "VORBIS"), 0.1),
    "MP3": (coded("MP3"), None),
    "AIFF": (coded("AIFF"), 1e-4),
    "AU": (coded("AU"), 1e-4),
    "CAF": (coded("CAF"), 1e-4),
    "W64": (coded("W64"), 1e-4),
}


@pytest.mark.parametrize("name", READ)
def test_each_format_gives_the_sound_that_was_written(name, tmp_path):
    raw, tolerance = READ[name]
    path = tmp_path / "a.bin"  # the content says what it is
    path.write_bytes(raw)
    found = load_audio(path, sample_rate=None)
    assert (found.sample_rate, found.samples.dtype, found.notes) == (RATE, np.float32, ())
    if tolerance is None:  # MP3 adds silence at both ends
        assert abs(np.abs(np.fft.rfft(found.samples, 8_000)).argmax() - 440) <= 2
    else:
        assert np.abs(found.samples - SOUND).max() < tolerance
    assert np.array_equal(load_audio(raw, sample_rate=None).samples, found.samples)


def test_wav_files_of_integers_need_no_other_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for name in ("PCM 8", "PCM 16", "PCM 24", "PCM 32"):
        assert len(load_audio(READ[name][0], sample_rate=None).samples) == len(SOUND)
    for name, word in (("FLAC", "a FLAC file needs"), ("float", "a WAV file of this kind needs")):
        with pytest.raises(AudioError, match=word) as error:
            load_audio(READ[name][0])
        assert "pip install soundfile" in error.value.hint


def test_channels_are_averaged_and_the_rate_is_changed():
    both = np.stack([SOUND, SOUND * 0.5], 1)
    found = load_audio(pcm(both.reshape(-1), channels=2), sample_rate=16_000)
    assert found.notes == (MONO_NOTE,)
    assert (found.sample_rate, len(found.samples)) == (16_000, 4_000)
    assert np.abs(found.samples).max() == pytest.approx(0.75 * 0.3, rel=0.01)
    assert found.seconds == 0.25


def test_a_clipped_recording_is_read_with_a_remark_and_a_loud_one_without():
    assert load_audio(pcm(np.clip(5 * SOUND, -1, 1))).notes == (CLIPPED_NOTE,)
    assert load_audio(pcm(SOUND / np.abs(SOUND).max() * 0.98)).notes == ()


def test_a_header_that_was_written_before_the_length_was_known_is_read_to_the_end():
    """As ffmpeg writes into a pipe."""
    for size in (0xFFFFFFFF, 0xFFFFFFFE):
        raw = patched(patched(WAV, 4, "<I", 0xFFFFFFFF), 40, "<I", size)
        assert np.array_equal(load_audio(raw).samples, load_audio(WAV).samples)


def floats(*values) -> bytes:
    return coded("WAV", "FLOAT", np.concatenate([SOUND[:100], np.array(values, np.float32), SOUND[100:]]))


BAD: dict[str, tuple[bytes, tuple[str, ...]]] = {  # what is in the file, and what must be said
    "0 bytes": (b"", ("0 bytes", "again")),
    "1 byte": (b"R", ("not a recording", "WAV, FLAC")),
    "text": (b"hello, I am text\n" * 9, ("not a recording", "WAV, FLAC")),
    "a web page": (b"<!doctype html><html>404</html>", ("not a recording", "again")),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(99), ("not a recording", "again")),
    "zeros": (bytes(5_000), ("not a recording", "again")),
    "an AVI film": (b"RIFF" + struct.pack("<I", 99) + b"AVI " + bytes(99), ("not a recording", "WAV")),
    "a WebP picture": (b"RIFF" + struct.pack("<I", 99) + b"WEBP" + bytes(99), ("not a recording", "WAV")),
    "an MP4 film": (b"\0\0\0\x20ftypisom" + bytes(99), ("not a recording", "WAV")),
    "a MIDI file": (b"MThd\0\0\0\x06\0\1\0\1\0\x60", ("not a recording", "WAV")),
    "a git-lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", ("not a recording", "again")),
    "only RIFF": (b"RIFF", ("not a recording",)),
    "only a RIFF header": (WAV[:12], ("damaged", "again")),
    "a header without data": (WAV[:36], ("damaged", "again")),
    "a header and no samples": (pcm([]), ("empty", "no samples", "remove")),
    "WAV cut off": (WAV[: len(WAV) // 2], ("truncated", "2,000 samples", "again")),
    "WAV cut in a sample": (WAV[:-1], ("truncated", "1,999", "again")),
    "FLAC cut off": (FLAC[: len(FLAC) * 3 // 5], ("truncated", "again")),
    "FLAC of only its header": (FLAC[:42], ("truncated", "again")),
    "Ogg cut in its header": (READ["Ogg Vorbis"][0][:60], ("damaged", "again")),
    "damaged FLAC": (FLAC[:200] + bytes(len(FLAC) - 200), ("damaged", "again")),
    "1 Hz": (patched(WAV, 24, "<I", 1), ("sample rate is 1 Hz", "4,000", "header")),
    "0 Hz": (patched(WAV, 24, "<I", 0), ("sample rate is 0 Hz",)),
    "4 billion Hz": (patched(WAV, 24, "<I", 4_000_000_000), ("sample rate is 4,000,000,000 Hz",)),
    "0 channels": (patched(WAV, 22, "<H", 0), ("damaged",)),
    "65535 channels": (patched(WAV, 22, "<H", 65_535), ("channels",)),
    "0 bits": (patched(WAV, 34, "<H", 0), ("damaged",)),
    "999 bits": (patched(WAV, 34, "<H", 999), ("damaged",)),
    "an unknown codec": (patched(WAV, 20, "<H", 0x7777), ("damaged",)),
    "10 hours claimed": (claimed(WAV, 10 * 3_600 * RATE * 2), ("too long, 600 minutes", "60", "parts")),
    "30 minutes claimed": (claimed(WAV, 1_800 * RATE * 2), ("truncated", "14,400,000", "2,000")),
    "10 hours claimed in FLAC": (
        patched(FLAC, 22, ">I", int.from_bytes(FLAC[22:26], "big") & 0xFFFFFFFF | 0x0FFFFFFF),
        ("too long", "parts"),
    ),
    "a NaN": (floats(np.nan), ("1 of 2,001 samples", "not a number", "finite")),
    "infinite": (floats(np.inf, -np.inf), ("2 of 2,002 samples", "infinite")),
    "integers as floats": (coded("WAV", "FLOAT", SOUND * 32_767), ("reach 9,8", "-1 to 1", "32768")),
    "1e30": (floats(1e30), ("-1 to 1",)),
    "all zeros": (pcm(SOUND * 0), ("silent", "all samples are 0", "microphone")),
    "a whisper of one bit": (pcm(SOUND * 1.2e-4), ("silent", "-90 dB")),
    "half a tone in each ear": (pcm(np.stack([SOUND, -SOUND], 1).reshape(-1), channels=2), ("silent",)),
    "a WAV header on text": (WAV[:20] + b"this is not a format chunk at all, is it?" * 9, ("damaged",)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_recordings_are_named_and_cured(tmp_path, name):
    raw, said = BAD[name]
    path = tmp_path / "a.wav"
    path.write_bytes(raw)
    tracemalloc.start()
    with pytest.raises(AudioError) as error:
        load_audio(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.value.exit_code == 3
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    for words in said:
        assert words.lower() in message.lower(), message
    assert peak < 50_000_000, "memory was taken before the header was checked"
    with pytest.raises(AudioError):
        load_audio(raw)


def test_what_is_no_file_is_said(tmp_path):
    for path, said in (
        (tmp_path / "none.wav", "cannot be read"),
        (tmp_path, "not a regular file"),
        ("a\0b.wav", "cannot be read"),
    ):
        with pytest.raises(AudioError, match=said):
            load_audio(path)
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(AudioError, match="not a regular file"):
        load_audio(tmp_path / "pipe.wav")


def test_a_file_of_too_many_bytes_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "MAX_FILE_BYTES", 1_000)
    (tmp_path / "a.wav").write_bytes(WAV)
    with pytest.raises(AudioError, match="more than 1,000"):
        load_audio(tmp_path / "a.wav")


def test_a_stream_of_unknown_length_stops_at_the_limit(monkeypatch):
    monkeypatch.setattr(loading, "BLOCK_SAMPLES", 500)
    monkeypatch.setattr(loading, "MAX_SECONDS", 0.2)
    with pytest.raises(AudioError, match="too long"):
        load_audio(patched(WAV, 40, "<I", 0xFFFFFFFF))


@pytest.mark.parametrize("seed", range(30))
def test_random_damage_is_read_or_refused_but_never_something_else(seed):
    rng = np.random.default_rng(seed)
    raw = bytearray([WAV, FLAC, READ["AIFF"][0]][seed % 3])
    for at in rng.integers(0, len(raw) if seed % 2 else 60, 8):
        raw[at] = rng.integers(256)
    try:
        found = load_audio(bytes(raw))
    except AudioError:
        return
    assert np.isfinite(found.samples).all()
