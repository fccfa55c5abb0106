"""`saccade transcribe` and `saccade look` for recordings: lines, JSON, word times, subtitles, pictures, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from saccade.audio.load_audio import to_wav
from saccade.audio.spectrogram import draw_spectrogram, load_samples
from saccade.cli import main
from saccade.cli.commands.transcribe import format_srt
from saccade.data.samples import get_sample
from saccade.errors import UsageError
from saccade.explain.look import look
from saccade.explain.overlay import render_overlays
from saccade.serving.session import unavailable_reason
from saccade.tasks.interface.predictions import TimedWord
from saccade.tasks.runs.run import open_run
from saccade.training.events import RunResult
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run of each kind of model, trained for one step, and two recordings."""
    home = tmp_path_factory.mktemp("speech")
    rows = ["audio\ttext\tspeaker\n"]
    for number, example in enumerate(get_sample("syllables").make(20, 5)):
        (home / f"{number}.wav").write_bytes(to_wav(example["audio"]))
        rows.append(f"{number}.wav\t{example['text']}\t{'ann' if number % 2 else 'bob'}\n")
    (home / "speech.tsv").write_text("".join(rows))
    for family in ("speech_encoder", "listen_attend_spell"):
        sizes = {"width": 16, "channels": 2, "layers": 1} | ({"heads": 2} if family == "speech_encoder" else {})
        job = Job("transcribe", (str(home / "speech.tsv"),), family, model_fields=sizes, train_fields={"max_steps": 1})
        assert isinstance([*run_training(prepare(job), home / family)][-1], RunResult)
    return home


def run(home, monkeypatch, capsys, *words):
    monkeypatch.chdir(home)
    code = main([*words])
    out, err = capsys.readouterr()
    return code, out, err


def test_every_form_of_output(home, monkeypatch, capsys):
    call = lambda *words: run(home, monkeypatch, capsys, "transcribe", "speech_encoder", "0.wav", *words)
    code, out, _ = call("1.wav")
    assert (code, len(out.split("\n"))) == (0, 3)
    code, out, _ = call("--json")
    record = json.loads(out)
    assert record.keys() == {"text", "words", "audio"}
    assert record["audio"] == "0.wav"
    assert "".join(word["text"] for word in record["words"]) == record["text"].replace(" ", "")
    _, times, _ = call("--word-times")
    assert times.count("\n") == len(record["words"])
    _, srt, _ = call("--srt")
    assert srt == format_srt([TimedWord(**word) for word in record["words"]])
    assert run(home, monkeypatch, capsys, "asr", "speech_encoder", "0.wav")[0] == 0  # by its other name
    assert run(home, monkeypatch, capsys, "predict", "speech_encoder", "--data", "speech.tsv")[1].count("\n") == 20


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "Give the sound files"),
        (("0.wav", "1.wav", "--srt"), 2, "--srt makes the subtitles of one recording"),
        (("0.wav", "--srt", "--json"), 2, "no --json"),
        (("0.wav", "--decoding", "attention"), 2, "speech_encoder has no decoder"),
        (("speech.tsv",), 3, "speech.tsv: the file is not a recording"),
        (("9999.wav",), 3, "9999.wav: the recording cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said(home, monkeypatch, capsys, words, code, said):
    got, _, err = run(home, monkeypatch, capsys, "transcribe", "speech_encoder", *words)
    assert got == code
    assert said in err


def test_subtitles_break_at_pauses_and_where_a_line_is_full():
    words = [TimedWord("word", 0.5 * i, 0.5 * i + 0.4) for i in range(12)] + [TimedWord("late", 9.0, 9.5)]
    blocks = format_srt(words).strip().split("\n\n")
    assert [block.split("\n")[0] for block in blocks] == ["1", "2", "3"]
    assert [len(block.split("\n")[2].split()) for block in blocks] == [8, 4, 1]
    assert blocks[0].split("\n")[1] == "00:00:00,000 --> 00:00:03,900"
    assert format_srt([]) == ""


@pytest.mark.parametrize("family", ["speech_encoder", "listen_attend_spell"])
def test_a_look_at_a_recording_is_drawn_on_its_spectrogram(home, monkeypatch, capsys, family):
    monkeypatch.chdir(home)
    opened = open_run(home / family)
    frames = len(load_samples("0.wav")) // 160
    maps = look(opened.model, ("0.wav", "ka") if family == "listen_attend_spell" else "0.wav")
    kind = "image" if family == "listen_attend_spell" else "self"
    seen = next(m for m in maps.maps if m.kind == kind)
    assert seen.key.names[:2] == ["0.00s", "0.04s"]
    assert len(seen.key) == -(-frames // 4)
    assert seen.to_dense().sum(-1).allclose(seen.to_dense().sum(-1).new_ones(1), atol=1e-3)
    assert maps.image is not None
    assert maps.image.shape == (80, frames, 1)
    names = [overlay.name for overlay in render_overlays(maps)]
    assert names[:2] == (["k", "a"] if family == "listen_attend_spell" else ["head 0", "head 1"])
    code, out, err = run(
        home, monkeypatch, capsys, "look", family, "0.wav", "--png", f"{family}.png", "--html", "a.html"
    )
    assert code == 0, err
    assert Path(f"{family}.png").stat().st_size > 1_000
    assert re.search(r"→ \d\.\d\ds 0\.\d", out), out


def test_the_page_says_where_to_look_at_a_recording(home):
    opened = open_run(home / "speech_encoder")
    assert "saccade look RUN FILE" in (unavailable_reason(opened.task, opened.model) or "")


def test_python_takes_a_file_its_bytes_or_samples(home, monkeypatch):
    import saccade

    monkeypatch.chdir(home)
    opened = saccade.open_run(home / "speech_encoder")
    samples = load_samples("0.wav")
    texts = [opened.predict(value).text for value in ("0.wav", Path("0.wav"), Path("0.wav").read_bytes(), samples)]
    assert len(set(texts)) == 1
    assert [p.text for p in opened.predict(["0.wav", samples])] == texts[:2]
    for wrong in (samples.astype(np.int16), samples[None]):
        with pytest.raises(UsageError, match="Samples are an array of floats"):
            opened.predict([wrong])


def test_a_spectrogram_is_drawn_with_high_bands_on_top():
    frames = np.zeros((5, 3), np.float32)
    frames[2, 0] = 1.0
    image = draw_spectrogram(frames)
    assert image.shape == (3, 5, 1)
    assert np.argwhere(image[..., 0] == 255).tolist() == [[2, 2]]


def test_training_that_was_stopped_and_resumed_ends_with_the_same_bytes(home, tmp_path):
    """With augmentation, whose chances have to go on where they were."""
    sizes = {"width": 16, "channels": 2, "layers": 1, "heads": 2}

    def train(name, steps):
        fields = {"max_steps": steps, "batch_size": 4, "save_minutes": 0.0}
        job = Job("transcribe", (str(home / "speech.tsv"),), model_fields=sizes, train_fields=fields)
        list(run_training(prepare(job), tmp_path / name))
        return (tmp_path / name / "model" / "model.safetensors").read_bytes()

    at_once = train("whole", 6)
    assert train("parts", 2) != at_once
    assert train("parts", 6) == at_once


def test_error_rates_are_audited_by_speaker(home, monkeypatch, capsys):
    code, out, err = run(
        home, monkeypatch, capsys, "audit", "speech_encoder", "--data", "speech.tsv", "--group-by", "speaker", "--json"
    )
    assert code == 0, err
    assert "Scores by speaker" in out
    assert "ann" in out
    assert '"wer"' in out
