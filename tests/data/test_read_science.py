"""Readers of music, molecules and proteins: what a record is, what is said, and what is refused by name."""

import gzip
import importlib
import json
import sys
from importlib.util import find_spec

import pytest

from saccade.data import Example, open_data, read_examples, write_examples
from saccade.data.example import TEXT, TEXT_LINE
from saccade.data.read.midi import notes_to_text, parse_notes
from saccade.data.samples import get_sample
from saccade.errors import DataError

needs_symusic = pytest.mark.skipif(not find_spec("symusic"), reason="symusic is not installed: the extra music")


def texts(path, role=TEXT_LINE, **asked):
    return [example["text"] for example in read_examples([path], [role], **asked).examples]


# FASTA


def test_sequences_are_joined_and_their_names_left_out(tmp_path):
    path = tmp_path / "a.fasta"
    path.write_text(">one first\nMKV\nLLA\n\n;a remark\n>two\nggw*\n>three\nM K\n")
    assert texts(path) == ["MKVLLA\n", "GGW\n", "MK\n"]
    table = read_examples([path], [TEXT_LINE])
    assert [example.line for example in table.examples] == [1, 6, 8]
    assert "FASTA, a record for each sequence" in table.notes[0]
    assert texts(path, TEXT) == ["MKVLLA", "GGW", "MK"]


def test_fasta_is_told_by_its_content_and_a_quoted_mail_is_not_one(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b">one\nMKV\n>two\nGGW\n"))
    assert texts(path) == ["MKV\n", "GGW\n"]
    mail = tmp_path / "mail.txt"
    mail.write_text("> did you see it?\nI did see it.\n")
    assert texts(mail) == ["> did you see it?\n", "I did see it.\n"]
    only = tmp_path / "only.txt"
    only.write_text("> quoted\n> quoted again\n")
    assert len(texts(only)) == 2


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        (">one\nMKV\n>two\n>three\nGG\n", ":3:", ("a name without a sequence", "'>two'", "remove the name")),
        (">one\nMKV\n>two\nGG7A\n", ":4:", ("not a letter of a sequence", "character 3", "'7'")),
        ("MKV\n>two\nGG\n", ":1:", ("a sequence without a name", "'MKV", ">name")),
        (">one\n", ":1:", ("a name without a sequence", "'>one'")),
    ],
)
def test_bad_fasta_is_named(tmp_path, content, place, words):
    path = tmp_path / "a.fasta"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        texts(path)
    assert str(caught.value).startswith(f"{path}{place}")
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_bad_sequence_may_be_skipped(tmp_path):
    path = tmp_path / "a.fasta"
    path.write_text(">one\nMKV\n>two\nGG7A\nLL\n>three\nWW\n")
    table = read_examples([path], [TEXT_LINE], on_bad_record="skip", max_bad_fraction=0.5)
    assert [example["text"] for example in table.examples] == ["MKV\n", "WW\n"]
    assert len(table.rejects) == 1


# ABC

TUNE = "X:1\nT:A\nM:3/4\nK:G\nG2B2d2|d6|]\n"


def test_a_record_is_a_tune_with_the_empty_line_that_ends_it(tmp_path):
    path = tmp_path / "a.abc"
    path.write_text(
        f"%abc-2.1\nSome words before.\n\n{TUNE}% a remark\n\n\n{TUNE.replace('X:1', 'X: 2')}X:3\nK:D\nd4|\n"
    )
    found = texts(path)
    assert found == [TUNE + "\n", TUNE.replace("X:1", "X: 2") + "\n", "X:3\nK:D\nd4|\n\n"]
    assert [example.line for example in read_examples([path], [TEXT_LINE]).examples] == [4, 12, 17]


def test_abc_is_told_by_its_content_and_prose_is_not_one(tmp_path):
    path = tmp_path / "tunes.txt"
    path.write_text("\n" + TUNE.replace("\n", "\r\n"))
    assert texts(path) == [TUNE + "\n"]
    prose = tmp_path / "prose.txt"
    prose.write_text("A letter about music.\nX:1 is how a tune begins.\nK:G is a key.\n")
    assert len(texts(prose)) == 3


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        (TUNE + "\nX:2\nT:B\nG2|\n\n", ":7:", ("a tune without a key", "'X:2'", "K:G")),
        (TUNE + "\nX:2\nK:D\nP:A\n\n", ":7:", ("a tune without notes", "'X:2'")),
        ("hello\n", ":1:", ("no tune in the file", "'hello'", "X:")),
    ],
)
def test_bad_abc_is_named(tmp_path, content, place, words):
    path = tmp_path / "a.abc"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        texts(path)
    assert str(caught.value).startswith(f"{path}{place}")
    assert all(word in str(caught.value) for word in words), caught.value


# MIDI and piano rolls

PIECE = "60.12 64.12 67.12 +12 62.6 +6 64.6"


@needs_symusic
def test_midi_comes_back_as_the_words_it_was_made_of(tmp_path):
    from saccade.data.read.midi import to_midi

    for name, piece in (("a", PIECE), ("b", "48.3 +4 50.4 +4 52.4")):
        (tmp_path / f"{name}.mid").write_bytes(to_midi(piece))
    assert texts(tmp_path / "a.mid") == [PIECE + "\n"]
    assert "3 notes" in read_examples([tmp_path / "b.mid"], [TEXT_LINE]).notes[0]
    found = open_data([tmp_path], [TEXT_LINE], contiguous=True)
    assert [e["text"] for e in (*found.train.examples, *found.dev.examples)] == [
        PIECE + "\n",
        "48.3 +4 50.4 +4 52.4\n",
    ]


@needs_symusic
def test_another_clock_drums_and_two_tracks(tmp_path):
    import symusic

    score = symusic.Score(480)
    for drum, pitch in ((False, 60), (False, 72), (True, 36)):
        track = symusic.Track(program=0, is_drum=drum, name="t")
        track.notes.append(symusic.Note(480, 241, pitch, 80))  # a quarter in, and a little more than an eighth long
        score.tracks.append(track)
    path = tmp_path / "a.midi"
    path.write_bytes(score.dumps_midi())
    assert texts(path) == ["60.6 72.6\n"]


@needs_symusic
@pytest.mark.parametrize("cut", [14, 20, 30])
def test_midi_that_is_cut_off_or_silent_is_named(tmp_path, cut):
    from saccade.data.read.midi import to_midi

    path = tmp_path / "a.mid"
    path.write_bytes(to_midi(PIECE)[:cut])
    with pytest.raises(DataError, match=rf"^{path}: (not whole MIDI|a MIDI file without notes)"):
        texts(path)


def test_without_symusic_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "symusic", None)
    path = tmp_path / "a.mid"
    path.write_bytes(b"MThd" + bytes(40))
    with pytest.raises(DataError, match=r"needs symusic.*pip install 'saccade\[music\]'"):
        texts(path)


def test_piano_rolls_are_pieces(tmp_path):
    rolls = {"train": [[[60, 64], [], [62.0, -1]], [[70]]], "test": [[[71], [71]]]}
    path = tmp_path / "rolls-16th.json"
    path.write_text(json.dumps(rolls))
    assert texts(path) == ["60.3 64.3 +6 62.3\n", "70.3\n", "71.3 +3 71.3\n"]
    path.write_text(json.dumps([[[60]], [[128]]]))
    with pytest.raises(DataError, match=r"not a piano roll; column \(piece 2\)"):
        texts(path)


def test_words_and_notes():
    assert notes_to_text(parse_notes(PIECE)) == PIECE
    assert parse_notes(PIECE)[-1] == (18, 6, 64)


# what `write` writes is read back


@pytest.mark.parametrize(
    ("name", "file"), [("tunes", "t.abc"), ("proteins", "p.fasta"), ("molecules", "m.smi"), ("tunes", "t.jsonl")]
)
def test_samples_go_to_files_and_back(tmp_path, name, file):
    made = get_sample(name).make(40, 5)
    write_examples(tmp_path / file, made)
    assert texts(tmp_path / file) == [example["text"] for example in made]


def test_what_a_file_cannot_hold_is_refused(tmp_path):
    with pytest.raises(DataError, match="empty line"):
        write_examples(tmp_path / "a.abc", [Example({"text": "X:1\n\nK:G"})])
    with pytest.raises(DataError, match="one sequence"):
        write_examples(tmp_path / "a.fasta", [Example({"text": "M 7"})])


def test_the_package_reads_these_without_the_extras():
    """Neither RDKit nor symusic is imported before it is needed."""
    for name in ("saccade.data.read.midi", "saccade.tasks.records.validity"):
        module = importlib.import_module(name)
        assert not {"rdkit", "symusic"} & set(vars(module))
