"""Bad data, a line for each way to be bad: the message names file, line, column or value, and what to do; exit 3."""

import gzip
import io
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from saccade.cli import main
from saccade.data import open_data
from saccade.data.example import ROLES
from saccade.errors import DataError
from saccade.tasks.registry import TASKS

DEEP = '{"text": ' + "[" * 10_000 + "]" * 10_000 + ', "label": 1}\n'
GOOD = "text,label\nfine,1\n"


class Bad(NamedTuple):
    name: str
    files: dict[str, bytes | str]  # the first is the one to blame
    place: str  # how the message begins, after the file's name
    said: tuple[str, ...]  # what else it must say: the column or the value, and a word of the cure
    task: str = "label"
    columns: str = ""


def png(mode: str = "RGB", size: tuple[int, int] = (4, 3)) -> bytes:
    made = io.BytesIO()
    Image.new(mode, size).save(made, "PNG")
    return made.getvalue()


def bomb() -> bytes:
    """A PNG whose header says 30,000 by 30,000."""
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunks = [b"IHDR" + header, b"IDAT" + zlib.compress(bytes(99)), b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


def idx(*shape: int, values: int) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(values)


def spans(*given: object) -> str:
    return json.dumps({"text": "Ann is here", "spans": list(given)}) + "\n"


def squad(start: object, text: str = "Ann") -> str:
    asked = {"question": "Who?", "answers": [{"text": text, "answer_start": start}]}
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "Hi, Ann", "qas": [asked]}]}]})


def jsonl(name: str, text: str, place: str, *said: str, task: str = "label") -> Bad:
    return Bad(name, {"a.jsonl": text}, place, said, task)


def tagged(name: str, text: str, *said: str) -> Bad:
    return jsonl(name, text, ":1:", *said, task="tag")


def conll(name: str, text: str, place: str, *said: str, columns: str = "") -> Bad:
    return Bad(name, {"a.conll": text}, place, said, "tag", columns)


def picture(content: bytes, name: str = "a.png") -> dict[str, bytes | str]:
    return {"a.csv": f"image,label\n{name},x\n", name: content}


BAD = [
    # the file as a whole
    Bad("empty", {"a.csv": ""}, ":1:", ("empty", "at least one record")),
    Bad("only empty lines", {"a.csv": "\n\n\n"}, ":1:", ("empty lines", "at least one record")),
    Bad("only a byte order mark", {"a.csv": b"\xef\xbb\xbf"}, ":1:", ("empty", "at least one record")),
    Bad("header only", {"a.csv": "text,label\n"}, ":1:", ("no records", "below the header")),
    Bad("utf-16", {"a.csv": GOOD.encode("utf-16")}, ":1:", ("UTF-16", "iconv -f UTF-16LE", "xff")),
    Bad("utf-16 without a mark", {"a.csv": GOOD.encode("utf-16-be")}, ":1:", ("UTF-16", "iconv -f UTF-16BE")),
    Bad(
        "latin-1",
        {"a.csv": "text,label\ncafé,1\n".encode("latin-1")},
        ":2:",
        ("not UTF-8", "byte 4", "xe9", "café", "iconv"),
    ),
    Bad("NUL", {"a.csv": "text,label\nfi\0ne,1\n"}, ":2:", ("NUL", "character 3", "remove")),
    Bad(
        "xlsx",
        {"a.xlsx": b"PK\x03\x04" + b"\0" * 30 + b"[Content_Types].xml"},
        ":",
        ("spreadsheet", "PK", "save it as CSV"),
    ),
    Bad("xls", {"a.xls": b"\xd0\xcf\x11\xe0" + bytes(90)}, ":", ("old Office", "save it as CSV")),
    Bad("zip", {"a.zip": b"PK\x03\x04" + b"\0" * 30}, ":", ("zip archive", "xtract")),
    Bad("pdf", {"a.csv": b"%PDF-1.7\n" + bytes(99)}, ":", ("PDF", "%PDF", "pdftotext")),
    Bad("picture as a table", {"a.csv": png()}, ":", ("PNG image", "folder per class")),
    Bad("pickle", {"a.csv": b"\x80\x04\x95" + bytes(20)}, ":", ("pickle", "run code", "JSON lines")),
    Bad("bzip2", {"a.csv": b"BZh91AY&SY" + bytes(9)}, ":", ("bzip2", "bunzip2")),
    Bad("web page", {"a.csv": "<!DOCTYPE html><html>"}, ":", ("web page", "ownload the file itself")),
    Bad("lfs pointer", {"a.csv": "version https://git-lfs/spec/v1\noid 1\n"}, ":", ("LFS pointer", "git lfs pull")),
    Bad("binary", {"a.csv": bytes(range(1, 9)) * 20}, ":", ("binary", "UTF-8")),
    Bad("sqlite", {"a.db": b"SQLite format 3\0" + bytes(50)}, ":", ("SQLite", "export")),
    Bad("gzip cut off", {"a.csv.gz": gzip.compress(GOOD.encode() * 99)[:-12]}, ":", ("gzip", "again")),
    Bad("gzip damaged", {"a.csv.gz": b"\x1f\x8b\x08\0" + b"\xff" * 40}, ":", ("gzip", "damaged")),
    Bad("gzip in gzip", {"a.csv.gz": gzip.compress(gzip.compress(GOOD.encode()))}, ":", ("gzip inside gzip", "gunzip")),
    Bad(
        "gzip bomb",
        {"a.csv.gz": gzip.compress(GOOD.encode() + b"a" * (20 << 20))},
        ":",
        ("decompresses from", "times", "gunzip"),
    ),
    Bad("parquet cut off", {"a.parquet": b"PAR1" + bytes(20)}, ":", ("truncated", "again")),
    Bad("arrow cut off", {"a.arrow": b"ARROW1" + bytes(20)}, ":", ("truncated", "again")),
    # tables
    Bad(
        "row too short",
        {"a.csv": GOOD + "bad\n"},
        ":3:",
        ("expected 2 cells, got 1", "label (missing)", "'bad'", "dd the missing"),
    ),
    Bad(
        "row too long",
        {"a.csv": GOOD + "bad, very bad,0\n"},
        ":3:",
        ("expected 2 cells, got 3", "'0'", "ut quotes around"),
    ),
    Bad("ragged tsv", {"a.tsv": "fine\t1\nbad\t0\nso so\n"}, ":3:", ("expected 2 cells, got 1", "'so so'", "missing")),
    Bad("100 k columns", {"a.csv": ",".join(["x"] * 100_000) + "\n"}, ":1:", ("100,000 columns", "'x'", "JSON lines")),
    Bad(
        "name twice",
        {"a.csv": "text,label,text\na,1,b\n"},
        ":1:",
        ("duplicate column name in the header, in columns 1 and 3", "'text'", "ename"),
    ),
    Bad(
        "no known name",
        {"a.csv": "remark,points\nfine,5\nbad,1\nok,3\n"},
        ":1:",
        ("no column for text", "remark, points", "--columns text="),
    ),
    jsonl("nearly a known name", '{"texte": "a", "label": 1}\n', ":1:", "texte, label", "--columns text=texte"),
    Bad(
        "wrong name asked for",
        {"a.csv": GOOD},
        ":1:",
        ("looked for txt", "text, label", "--columns text=text"),
        columns="text=txt",
    ),
    Bad(
        "wrong number asked for", {"a.csv": GOOD}, ":1:", ("looked for 7", "--columns label="), columns="text=1,label=7"
    ),
    Bad(
        "wrong role",
        {"a.csv": GOOD},
        "",
        ("'txt'", "roles of this task are text, label", "--columns text="),
        columns="txt=text",
    ),
    Bad("columns not understood", {"a.csv": GOOD}, "", ("--columns", "'review'", "text=review"), columns="review"),
    Bad("quote never closed", {"a.csv": GOOD + '"bad,0\nso so,1\n'}, ":3:", ("never closed", "bad,0", "lose it")),
    Bad("quote closed early", {"a.csv": GOOD + '"a "good" film",0\n'}, ":3:", ("quote is closed before", "double it")),
    Bad("empty text", {"a.csv": GOOD + ",0\n"}, ":3:", ("text is empty", "column text", "''", "fill it in")),
    Bad("blank text", {"a.tsv": "fine\t1\n  \t0\n"}, ":2:", ("text is empty", "column 1", "fill it in")),
    Bad("empty label", {"a.csv": GOOD + "bad,\n"}, ":3:", ("label is missing", "column label", "''", "write a label")),
    Bad("nan label", {"a.csv": GOOD + "bad,NaN\n"}, ":3:", ("label is missing", "'NaN'", "write a label")),
    Bad("plain text for two roles", {"a.txt": "just a line\n"}, ":1:", ("plain text", "'just a line'", "CSV, TSV")),
    Bad(
        "no tab in a tsv",
        {"a.tsv": "fine 1\nbad 0\n"},
        ":1:",
        ("1 columns are too few", "text and label", "'fine 1'", "tab"),
    ),
    Bad("cr only, bad cell", {"a.csv": "text,label\rfine,1\r,0\r"}, ":3:", ("text is empty", "fill it in")),
    Bad("crlf, bad cell", {"a.csv": "text,label\r\nfine,1\r\n,0\r\n"}, ":3:", ("text is empty", "fill it in")),
    Bad(
        "bad line in a gz",
        {"a.csv.gz": gzip.compress((GOOD + ",0\n").encode())},
        ":3:",
        ("text is empty", "fill it in"),
    ),
    # numbers
    Bad(
        "no number",
        {"a.csv": "x,y\n1,2\n3,two\n"},
        ":3:",
        ("number is needed", "column y", "'two'", "point"),
        "regress",
    ),
    Bad(
        "decimal comma",
        {"a.tsv": "x\ty\n1\t2\n1,5\t2\n"},
        ":3:",
        ("column x", "'1,5'", "decimal comma"),
        "regress",
        "x=x",
    ),
    Bad("infinite", {"a.csv": "x,y\n1,2\ninf,2\n"}, ":3:", ("finite", "column x", "'inf'", "remove"), "regress"),
    Bad("number missing", {"a.csv": "x,y\n1,2\n1,\n"}, ":3:", ("column y", "''", "fill it in"), "regress"),
    jsonl("true as a number", '{"x": [1], "y": true}\n', ":1:", "column y", "True", "write one number", task="regress"),
    # JSON
    jsonl(
        "not json",
        '{"text": "a", "label": 1}\n{"text": oops}\n',
        ":2:",
        "not JSON",
        "character 10",
        "oops",
        "one JSON object",
    ),
    jsonl(
        "json cut off", '{"text": "a", "label": 1}\n{"text": "b", "la', ":2:", "not JSON", "character 15", "truncated"
    ),
    jsonl("a line is a list", '{"text": "a", "label": 1}\n[1]\n', ":2:", "has to be an object", "[1]", "rite {"),
    jsonl("deep json", DEEP, ":1:", "too deeply", "[[[", "few levels"),
    Bad("deep json array", {"a.json": f"[{DEEP}]"}, ":1:", ("too deeply", "[[[", "few levels")),
    jsonl("endless number", '{"text": "a", "label": ' + "9" * 5000 + "}\n", ":1:", "number is too long", "digits"),
    jsonl("half a character", '{"text": "\\ud800", "label": 1}\n', ":1:", "lone surrogate", "ud800", "UTF-8"),
    Bad("array never closed", {"a.json": '[{"text": "a", "label": 1}\n'}, ":2:", ("never closed", "truncated")),
    Bad("array cut off", {"a.json": '[{"text": "a", "label": 1},\n {"text": "b'}, ":2:", ("not JSON", "truncated")),
    Bad(
        "array of numbers",
        {"a.json": '[{"text": "a", "label": 1},\n 7]'},
        ":2:",
        ("has to be an object", "7", "rite [{"),
    ),
    Bad(
        "object without records",
        {"a.json": '{\n"a": 1, "b": 2\n}'},
        ":1:",
        ("no array of records", "a, b", "array of objects"),
    ),
    jsonl("null text", '{"text": null, "label": 1}\n', ":1:", "text is missing", "column text", "None", "fill it in"),
    jsonl("list as text", '{"text": ["a"], "label": 1}\n', ":1:", "got a list", "column text", "['a']", "string"),
    jsonl("null label", '{"text": "a", "label": null}\n', ":1:", "label is missing", "None", "write a label"),
    jsonl("NaN label in json", '{"text": "a", "label": NaN}\n', ":1:", "label is missing", "nan", "write a label"),
    jsonl("two labels", '{"text": "a", "label": ["x", "y"]}\n', ":1:", "one label", "['x', 'y']", "labels"),
    jsonl(
        "a key left out",
        '{"text": "a", "label": 1}\n{"text": "b"}\n',
        ":2:",
        "has no label",
        "column label",
        "add 'label'",
    ),
    # words and tags
    conll(
        "bad tag",
        "Ann\tB-PER\nis\tO\nin\tO\nOslo\tLOC\n\n" + "a\tO\n" * 20,
        ":4:",
        "not a tag of the scheme BIO",
        "'LOC'",
        "B-PER",
    ),
    conll(
        "columns change", "Ann\tB-PER\nis\tO\nhere\n\n", ":3:", "expected 2 columns, got 1", "'here'", "same columns"
    ),
    conll(
        "docstart then a short line",
        "-DOCSTART- -X- O\n\nAnn X O\nhere X\n",
        ":4:",
        "expected 3 columns, got 2",
        "same columns",
    ),
    conll("tag left out", "Ann\tB-PER\nis\t\n", ":2:", "nothing in the column of tags", "column 2", "such as O"),
    conll("one column", "Ann\nis\n", ":1:", "one column", "column 2", "'Ann'", "TAG"),
    conll("no such column", "Ann\tO\n", ":", "1 to 2", "'9'", "--columns tags=2", columns="tags=9"),
    tagged(
        "lists of two lengths",
        '{"words": ["a", "b"], "tags": ["O"]}\n',
        "2 words and 1 tags",
        "column tags",
        "each word one",
    ),
    tagged("empty list of words", '{"words": [], "tags": []}\n', "empty", "column words", "[]", "remove"),
    tagged("a word is null", '{"words": ["a", null], "tags": ["O", "O"]}\n', "not a string", "None", "as a string"),
    tagged("span outside", spans({"start": 5, "end": 50, "label": "X"}), "outside the text of 11", "50", "characters"),
    tagged("span backwards", spans({"start": 5, "end": 2, "label": "X"}), "column spans", "end not included"),
    tagged("span of a space", spans({"start": 3, "end": 4, "label": "X"}), "contains no word", "cover a word"),
    tagged("spans overlap", spans([0, 5, "X"], [3, 8, "Y"]), "overlap", "Y", "keep one"),
    tagged("span without label", spans({"start": 0, "end": 3}), "label of a span", "column spans", "rite {"),
    jsonl(
        "spans are no list", spans() + '{"text": "a", "spans": 3}\n', ":2:", "list of spans", "3", "rite [", task="tag"
    ),
    # pairs and answers
    Bad(
        "unequal files",
        {"train.en": "a\nb\n", "train.de": "c\n"},
        ":2:",
        ("has 1 lines while train.en has 2", "column target", "same number of lines"),
        "translate",
    ),
    Bad(
        "empty side",
        {"train.en": "a\n\n", "train.de": "c\nd\n"},
        ":2:",
        ("line is empty", "'d'", "column source", "both files"),
        "translate",
    ),
    Bad(
        "empty side in a tsv",
        {"a.tsv": "source\ttarget\na\t\n"},
        ":2:",
        ("text is empty", "column target", "remove"),
        "translate",
    ),
    Bad(
        "three languages",
        {"train.en": "a\n", "train.de": "b\n", "train.fr": "c\n"},
        ":",
        ("expected two aligned files, got 3", "--columns source=en"),
        "translate",
    ),
    Bad("one side alone", {"train.en": "a\n"}, ":1:", ("plain text", "source and target", "tab"), "translate"),
    Bad(
        "answer elsewhere",
        {"a.json": squad(0)},
        ":1:",
        ("is not at character 0", "'Ann'", "start to 4"),
        "span",
    ),
    Bad(
        "answer nowhere",
        {"a.json": squad(4, "Bob")},
        ":1:",
        ("column answers", "'Bob'", "correct or remove the answer"),
        "span",
    ),
    Bad("answer before the text", {"a.json": squad(-3)}, ":1:", ("character -3", "start to 4"), "span"),
    Bad("start is no number", {"a.json": squad("4")}, ":1:", ("text and a start", "column answers", "rite {"), "span"),
    # pictures
    Bad(
        "no such picture",
        {"a.csv": "image,label\nb.png,x\n"},
        ":2:",
        ("no such image", "column image", "'b.png'", "correct its name"),
    ),
    Bad("0 bytes", picture(b""), ":2:", ("0 bytes", "'a.png'", "again")),
    Bad("cut off in the header", picture(png()[:20]), ":2:", ("damaged or truncated", "'a.png'", "again")),
    Bad("renamed text", picture(b"hello, I am text"), ":2:", ("not an image", "'a.png'", "png")),
    Bad(
        "renamed fits",
        picture(b"SIMPLE  =                    T" + b" " * 2850),
        ":2:",
        ("not an image", "'a.png'", "png"),
    ),
    Bad("bomb", picture(bomb()), ":2:", ("too large", "'a.png'", "smaller")),
    Bad("1 x 50,000", picture(png("L", (1, 50_000))), ":2:", ("1 x 50,000", "'a.png'", "smaller")),
    Bad("slim", picture(png("L", (1, 500))), ":2:", ("too narrow to be cropped", "'a.png'", "crop")),
    Bad(
        "leaves by dots",
        {"a.csv": "image,label\n../a.png,x\n"},
        ":2:",
        ("leads out", "'../a.png'", "into the folder"),
    ),
    Bad(
        "absolute path",
        {"a.csv": "image,label\n/etc/hostname.png,x\n"},
        ":2:",
        ("leads out", "'/etc/hostname.png'", "into the folder"),
    ),
    Bad(
        "no path",
        {"a.jsonl": '{"image": 3, "label": 1}\n'},
        ":1:",
        ("path of an image", "column image", "3", "relative to"),
        columns="image=image",
    ),
    # idx
    Bad(
        "idx without labels",
        {"train-images-idx3-ubyte": idx(2, 3, 3, values=18)},
        ":",
        ("without labels", "column label", "labels-idx1"),
    ),
    Bad(
        "idx cut off",
        {"train-images-idx3-ubyte": idx(3, 3, 3, values=20), "train-labels-idx1-ubyte": idx(3, values=3)},
        ":3:",
        ("1 of 3 items are missing", "again"),
    ),
    Bad(
        "idx of two counts",
        {"train-labels-idx1-ubyte": idx(3, values=3), "train-images-idx3-ubyte": idx(2, 3, 3, values=18)},
        ":",
        ("3 labels for 2 images", "belong together"),
    ),
    Bad(
        "idx that claims too much",
        {"train-images-idx3-ubyte": idx(65535, 65535, 65535, values=1)},
        ":",
        ("claims", "damaged"),
    ),
    Bad("idx header cut off", {"train-images-idx3-ubyte": b"\0\0\x08\x03\0\0"}, ":", ("incomplete", "again")),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_bad_data_is_named_and_cured(tmp_path, capsys, monkeypatch, bad):
    monkeypatch.chdir(tmp_path)
    for name, content in bad.files.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    names = [name for name in bad.files if not name.endswith(".png")]
    given = [*names, "--task", bad.task, *(["--columns", bad.columns] if bad.columns else [])]
    assert main(["data", "check", *given]) == 3
    message = capsys.readouterr().err
    blamed = names[1] if bad.name == "unequal files" else names[0]
    assert message.startswith(f"saccade data: {blamed}{bad.place} " if bad.place else "saccade data: "), message
    for words in bad.said:
        assert words.lower() in message.lower(), message
    assert "Traceback" not in message
    assert message.count("\n") == 1


def test_there_are_enough_of_them():
    assert len({bad.name for bad in BAD}) == len(BAD) >= 70


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bad")


def _folder(path: Path) -> str:
    path.mkdir()
    return "no data in this directory"


def _pipe(path: Path) -> str:
    os.mkfifo(path)
    return "not a regular file"


def _link(path: Path) -> str:
    path.symlink_to(path)
    return "cannot be read"


@pytest.mark.parametrize("make", [_folder, _pipe, _link, lambda path: "did you mean right.csv"])
def test_what_is_no_ordinary_file(tmp_path, capsys, make: Callable[[Path], str]):
    (tmp_path / "right.csv").write_text(GOOD)
    path = tmp_path / "rigth.csv"
    wanted = make(path)
    assert main(["data", "check", str(path)]) == 3
    message = capsys.readouterr().err
    assert str(path) in message
    assert wanted in message.replace("Did", "did")


def test_a_link_that_leads_out_of_the_folder(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "out.png").write_bytes(png())
    (tmp_path / "in" / "a.png").symlink_to(tmp_path / "out.png")
    (tmp_path / "in" / "a.csv").write_text("image,label\na.png,x\n")
    assert main(["data", "check", str(tmp_path / "in" / "a.csv"), "--columns", "image=image"]) == 3
    assert "leads out of the folder; column image is 'a.png'" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path, capsys):
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "a.csv").chmod(0)
    assert main(["data", "check", str(tmp_path / "a.csv")]) == 3
    assert "chmod u+r" in capsys.readouterr().err


def test_pictures_of_every_ordinary_mode_pass(tmp_path):
    from saccade.data import read_examples
    from saccade.data.example import IMAGE, LABEL

    (tmp_path / "x").mkdir()
    for mode in ("1", "L", "P", "RGB", "RGBA", "I;16"):
        (tmp_path / "x" / f"{mode[0]}{len(mode)}.png").write_bytes(png(mode))
    Image.new("CMYK", (4, 3)).save(tmp_path / "x" / "cmyk.jpg")
    frames = [Image.new("L", (4, 3), shade) for shade in (0, 255)]
    frames[0].save(tmp_path / "x" / "moving.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "x" / "dot.png").write_bytes(png("L", (1, 1)))
    assert len(read_examples([tmp_path], [IMAGE, LABEL]).examples) == 9


def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch):
    from saccade.data import read_examples
    from saccade.data.example import LABEL, TEXT
    from saccade.data.read import reader

    path = tmp_path / "a.csv"
    path.write_text(GOOD)
    digest = reader.hash_data
    monkeypatch.setattr(reader, "hash_data", lambda *given: (path.write_text(GOOD + "more,1\n"), digest(*given))[1])
    with pytest.raises(DataError, match=r"a\.csv: the file changed while it was read.*again"):
        read_examples([path], [TEXT, LABEL])


PIECES = [
    b'"',
    b",",
    b"\t",
    b"\n",
    b"\r",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"text",
    b"label",
    b"O",
]
PIECES += [
    b"B-X",
    b" ",
    b"1",
    b"a",
    b'{"text": "a", "label": 1}\n',
    b"text,label\n",
    b"a\tO\n",
    b"\\ud800",
    b"NaN",
    b"null",
    b"\x1f\x8b",
]
PIECES += [
    b'"spans": [[0, 1, "X"]]',
    b'"words": ["a"]',
    b"\0\0\x08\x01",
    b"PAR1",
    b"ARROW1",
    b"\xff\xff\xff\xff",
    b"-DOCSTART-",
    b"#",
]


@settings(deadline=None, max_examples=400)
@given(
    content=st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join) | st.binary(max_size=60),
    suffix=st.sampled_from(["csv", "tsv", "json", "jsonl", "txt", "conll", "csv.gz", "parquet", "arrow", "en"]),
    task=st.sampled_from(TASKS),
    on_bad=st.sampled_from(["error", "skip"]),
)
def test_whatever_comes_it_is_read_or_refused(folder, content, suffix, task, on_bad):
    path = folder / f"fuzz.{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    for roles in [task().roles(()), *([(ROLES["image"], ROLES["label"])] if task.name == "label" else [])]:
        try:
            found = open_data([path], roles, on_bad_record=on_bad, max_bad_fraction=0.5)
        except DataError as error:
            assert path.name in str(error)  # noqa: PT017 - to be read or to be refused are both right
        else:
            assert found.train.examples
            assert all(role.name in example for example in found.train.examples for role in roles)


MEMORY = """
import sys
from saccade.data.example import LABEL, TEXT
from saccade.data.read import read_examples
for path in sys.argv[1:]:
    (found,) = read_examples([path], [TEXT, LABEL]).examples
    assert len(found["text"].encode()) >= 10_000_000
# not ru_maxrss, which a child takes over from its parent
print(int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]))
"""


def test_a_line_of_ten_megabytes_stays_below_500(tmp_path):
    text = "wörd " * 1_700_000
    (tmp_path / "a.csv").write_text(f"text,label\n{text},1\n", "utf-8")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "label": 1}, ensure_ascii=False) + "\n", "utf-8")
    paths = [str(tmp_path / name) for name in ("a.csv", "a.jsonl")]
    done = subprocess.run([sys.executable, "-c", MEMORY, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 500 << 20
