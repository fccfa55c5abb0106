"""Recordings as data: tables, JSON lines, folders of classes, LibriSpeech and Common Voice are found, checked and split."""

import json
import wave
from pathlib import Path

import numpy as np
import pytest

from saccade.data import Audio, open_data, read_examples
from saccade.data.example import AUDIO, LABEL, TRANSCRIPT
from saccade.data.infer_task import infer_input_kind
from saccade.errors import DataError
from saccade.tasks.infer_task import infer_task

ROLES = (AUDIO, TRANSCRIPT)


def write_sound(path: Path, hertz: float = 440.0, seconds: float = 0.1) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    t = np.arange(int(8_000 * seconds)) / 8_000
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes((10_000 * np.sin(2 * np.pi * hertz * t)).astype("<i2").tobytes())
    return str(path)


def names_and_texts(examples):
    return [(Path(e["audio"]).name, e["text"]) for e in examples]


def test_a_table_and_json_lines_name_recordings_by_their_usual_columns(tmp_path):
    for number in range(3):
        write_sound(tmp_path / f"wav/{number}.wav", 300 + number)
    rows = [(f"wav/{n}.wav", f"number {n}") for n in range(3)]
    (tmp_path / "a.tsv").write_text("audio\ttext\tspeaker\n" + "".join(f"{a}\t{b}\tann\n" for a, b in rows))
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"audio_filepath": a, "duration": 0.1, "text": b}) + "\n" for a, b in rows)
    )
    (tmp_path / "c.csv").write_text("file_name,transcription\n" + "".join(f"{a},{b}\n" for a, b in rows))
    expected = [(f"{n}.wav", f"number {n}") for n in range(3)]
    for name in ("a.tsv", "b.jsonl", "c.csv"):
        assert names_and_texts(read_examples([tmp_path / name], ROLES).examples) == expected


def test_the_task_of_recordings_is_inferred(tmp_path):
    for number in range(6):
        write_sound(tmp_path / f"{number}.wav", 300 + number)
    (tmp_path / "a.tsv").write_text("audio\ttext\n" + "".join(f"{n}.wav\tnumber {n}\n" for n in range(6)))
    (tmp_path / "b.tsv").write_text("path\tsentence\tage\n" + "".join(f"{n}.wav\tNumber {n}.\t30\n" for n in range(6)))
    (tmp_path / "c.csv").write_text("audio,label\n" + "".join(f"{n}.wav,{'xy'[n % 2]}\n" for n in range(6)))
    found = [infer_task([str(tmp_path / name)])[0].name for name in ("a.tsv", "b.tsv", "c.csv")]
    assert found == ["transcribe", "transcribe", "label"]


def test_librispeech_is_recognized_with_its_subsets(tmp_path):
    for subset, speaker, chapter in (("train-clean-5", 19, 198), ("train-clean-5", 26, 495), ("dev-clean-2", 84, 121)):
        folder, stem = tmp_path / subset / f"{speaker}" / f"{chapter}", f"{speaker}-{chapter}"
        for number in range(2):
            write_sound(folder / f"{stem}-000{number}.wav", 300 + speaker + number)
        lines = "".join(f"{stem}-000{number} WORDS OF {speaker} {number}\n" for number in range(2))
        (folder / f"{stem}.trans.txt").write_text(lines)
    (tmp_path / "SPEAKERS.TXT").write_text("; nothing to learn from")
    splits = open_data([tmp_path], ROLES)
    assert names_and_texts(splits.dev.examples) == [
        ("84-121-0000.wav", "WORDS OF 84 0"),
        ("84-121-0001.wav", "WORDS OF 84 1"),
    ]
    assert [e["text"] for e in splits.train.examples] == [f"WORDS OF {s} {n}" for s in (19, 26) for n in range(2)]
    one_chapter = open_data([tmp_path / "train-clean-5" / "19" / "198"], ROLES)
    assert len(one_chapter.train.examples) + len(one_chapter.dev.examples) == 2


def test_common_voice_is_recognized_and_rejected_clips_are_left_out(tmp_path):
    header = "client_id\tpath\tsentence\tup_votes\n"
    for split, numbers in {"train": (0, 1), "dev": (2,), "test": (3,), "invalidated": (4,), "other": (5,)}.items():
        rows = "".join(f"ab{n}\tclip_{n}.wav\tSentence {n}.\t2\n" for n in numbers)
        (tmp_path / f"{split}.tsv").write_text(header + rows)
        for n in numbers:
            write_sound(tmp_path / f"clips/clip_{n}.wav", 300 + n)
    splits = open_data([tmp_path], ROLES)
    assert splits.test is not None
    read = [[text for _, text in names_and_texts(t.examples)] for t in (splits.train, splits.dev, splits.test)]
    assert read == [["Sentence 0.", "Sentence 1."], ["Sentence 2."], ["Sentence 3."]]


def test_a_folder_for_each_class_of_sounds(tmp_path):
    for label, hertz in (("high", 900), ("low", 200)):
        for number in range(4):
            write_sound(tmp_path / label / f"{number}.wav", hertz + number)
    assert infer_input_kind([tmp_path]) == "audio"
    found = read_examples([tmp_path], (AUDIO, LABEL)).examples
    assert {(Path(e["audio"]).parts[-2], e["label"]) for e in found} == {("high", "high"), ("low", "low")}


@pytest.mark.parametrize(
    ("text", "columns", "kind"),
    [
        ("audio,label\na.wav,x\n", None, "audio"),
        ("path,label\na.wav,x\n", None, "audio"),
        ("recording,label\nanything,x\n", None, "audio"),
        ("audio,text\na.wav,x\n", None, "text"),
        ("audio,text\na.wav,x\n", {"audio": "audio", "label": "text"}, "audio"),
        ("file_name,label\na.png,x\n", None, "image"),
        ("sound,label\nbang,x\n", None, "text"),
    ],
)
def test_the_kind_of_labeled_data_is_inferred(tmp_path, text, columns, kind):
    write_sound(tmp_path / "a.wav")
    (tmp_path / "a.csv").write_text(text)
    assert infer_input_kind([tmp_path / "a.csv"], columns) == kind


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("b.wav", "no such recording"),
        ("../a.wav", "leads out"),
        ("https://x.org/a.wav", "Download the recordings first"),
        ("text.wav", "not a recording"),
        ("silent.wav", "silent"),
        ("", "path of a recording is needed"),
    ],
)
def test_a_bad_recording_in_a_table_is_named_with_its_line(tmp_path, capsys, monkeypatch, cell, said):
    monkeypatch.chdir(tmp_path)
    for name in ("a.wav", "../a.wav"):
        write_sound(tmp_path / name)
    Path("text.wav").write_text("hello, I am text\n" * 9)
    silent = bytearray(Path("a.wav").read_bytes())
    silent[44:] = bytes(len(silent) - 44)
    Path("silent.wav").write_bytes(silent)
    Path("a.tsv").write_text(f"audio\ttext\na.wav\tone\n{cell}\ttwo\n")
    with pytest.raises(DataError) as error:
        read_examples(["a.tsv"], ROLES)
    message = str(error.value)
    assert message.startswith("a.tsv:3: ")
    assert said in message
    assert "column audio" in message
    assert error.value.hint


def test_what_was_found_out_is_told_once_and_the_same_bytes_are_a_duplicate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    loud = np.clip(5 * np.sin(np.arange(800)), -1, 1)
    for name in ("a.wav", "b.wav"):
        with wave.open(name, "wb") as file:
            file.setparams((1, 2, 8_000, 0, "NONE", ""))
            file.writeframes((loud * 32_767).astype("<i2").tobytes())
    write_sound(Path("c.wav"))
    Path("train.tsv").write_text("audio\ttext\na.wav\tone\nb.wav\tone\nc.wav\ttwo\n")
    notes = read_examples(["train.tsv"], ROLES).notes
    assert sum("clipped" in note for note in notes) == 1


def test_a_padded_batch_gives_its_rows_back():
    import torch

    rows = [torch.rand(5, 3), torch.rand(2, 3)]
    batch = Audio.pad(rows)
    assert batch.keep is not None
    assert batch.keep.sum(1).tolist() == [5, 2]
    assert all(torch.equal(batch.row(i).frames[0], rows[i]) for i in range(2))
    joined = Audio.join([batch.row(1), batch.row(0)])
    assert torch.equal(joined.frames[1], rows[0])
    assert len(joined) == 2
    assert joined.to("meta").frames.is_meta
