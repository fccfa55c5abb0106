"""A file of data is opened at most twice and hashed once, and what is remembered of it is never that of another content."""

import csv
import gzip
import hashlib
import json
import os
import sys
import time

import pytest

from saccade.cli import main
from saccade.data.read.open_text import HEAD_CACHE, hash_file, open_source, read_lines
from saccade.data.read.reader import hash_data
from saccade.data.streaming import text as streamed_text

opens: list[str] = []


def _note(event, arguments):
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        opens.append(os.path.realpath(os.fsdecode(arguments[0])))


sys.addaudithook(_note)  # stays, as hooks do, and costs little
TINY = [
    "--train.max-steps",
    "1",
    "--model.width",
    "16",
    "--model.layers",
    "1",
    "--model.ffn-width",
    "16",
    "--model.heads",
    "2",
    "--task.tokenizer",
    "words",
]


def rows(count):
    return [(f"this is the text of number {i} and it goes on for a while", "ab"[i % 2]) for i in range(count)]


def write(path, count):
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w", newline="") as file:
        if ".jsonl" in path.name:
            file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows(count))
        else:
            table = csv.writer(file, delimiter="\t" if ".tsv" in path.name else ",")
            table.writerows([("text", "label"), *rows(count)])
    time.sleep(0.05)  # what was written a moment ago is not remembered


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.tsv.gz"])
@pytest.mark.parametrize("count", [40, 30_000])
def test_training_opens_its_data_once(name, count, tmp_path, capsys):
    path = tmp_path / name
    write(path, count)
    opens.clear()
    assert main(["train", "label", "--data", str(path), "--dry-run", *TINY]) == 0
    assert opens.count(os.path.realpath(path)) == 1


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
def test_parquet_and_arrow_are_opened_once_for_the_rows_and_once_for_the_head_and_the_digest(
    kind, tmp_path, monkeypatch
):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    path = tmp_path / ("a.parquet" if kind == "parquet" else "a.arrow")
    table = pyarrow.table(dict(zip(("text", "label"), map(list, zip(*rows(30_000), strict=True)), strict=True)))
    if kind == "parquet":
        parquet.write_table(table, path)
    else:
        writer = (ipc.new_file if kind == "arrow" else ipc.new_stream)(path, table.schema)
        with writer:
            writer.write_table(table)
    time.sleep(0.05)
    opened = []
    parquet_file, memory_map = parquet.ParquetFile, pyarrow.memory_map
    monkeypatch.setattr(parquet, "ParquetFile", lambda file: opened.append(file) or parquet_file(file))
    monkeypatch.setattr(pyarrow, "memory_map", lambda file: opened.append(file) or memory_map(file))
    opens.clear()
    assert main(["train", "label", "--data", str(path), "--dry-run", *TINY]) == 0
    assert (len(opened), opens.count(os.path.realpath(path))) == (1, 1)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.tsv.gz", "a.json", "squad.json"])
def test_a_check_that_infers_the_task_opens_its_data_at_most_twice(name, tmp_path, capsys):
    path = tmp_path / name
    if name == "a.json":
        path.write_text(json.dumps([{"text": text, "label": label} for text, label in rows(30_000)], indent=1))
    elif name == "squad.json":
        articles = [{"title": "a", "paragraphs": [question(i) for i in range(k, k + 50)]} for k in range(0, 5_000, 50)]
        path.write_text(json.dumps({"version": "1", "data": articles}))
    else:
        write(path, 30_000)
    time.sleep(0.05)
    opens.clear()
    assert main(["data", "check", str(path)]) == 0
    assert 1 <= opens.count(os.path.realpath(path)) <= 2
    assert f"task: {'span' if name == 'squad.json' else 'label'}" in capsys.readouterr().out


def question(number):
    text = f"The answer to question {number} is {number * 7}, and that is all there is to say of it here."
    answer = {"text": str(number * 7), "answer_start": text.index(f"is {number * 7},") + 3}
    return {"context": text, "qas": [{"id": str(number), "question": f"What is {number}?", "answers": [answer]}]}


@pytest.mark.parametrize("end", ["--dry-run", "--train.max-steps=2"])
def test_a_text_larger_than_memory_is_opened_for_its_index_and_for_its_tokens(end, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(streamed_text, "MIN_STREAMED_BYTES", 1 << 20)
    monkeypatch.setattr(streamed_text, "MAX_DEV_CHARACTERS", 1 << 16)
    path = tmp_path / "a.txt"
    path.write_text("".join(text + "\n" for text, _ in rows(40_000)))
    time.sleep(0.05)
    opens.clear()
    assert main(["train", "language", "--data", str(path), "--out", str(tmp_path / "run"), *TINY, end]) == 0
    assert opens.count(os.path.realpath(path)) <= (1 if end == "--dry-run" else 2)


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
@pytest.mark.parametrize("count", [40, 30_000])
def test_the_digest_is_that_of_the_bytes_and_takes_no_opening_of_its_own(name, count, tmp_path):
    path = tmp_path / name
    write(path, count)
    assert len(list(read_lines(open_source(path)))) == count + 1
    opens.clear()
    assert hash_file(path) == hashlib.sha256(path.read_bytes()).digest()
    assert opens.count(os.path.realpath(path)) == 1  # ours, here


def test_what_is_remembered_of_a_file_is_forgotten_when_it_changes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    before = hash_data([path])
    assert [line for _, line in read_lines(open_source(path))] == ["one\n"]
    time.sleep(0.05)
    list(read_lines(open_source(path)))  # now it is remembered
    path.write_text("two\n")  # of the same size
    assert [line for _, line in read_lines(open_source(path))] == ["two\n"]
    assert hash_data([path]) != before
    other = tmp_path / "b.txt"
    other.write_text("six\n")
    other.replace(path)
    assert [line for _, line in read_lines(open_source(path))] == ["six\n"]


def test_what_was_written_a_moment_ago_is_not_remembered_since_a_clock_goes_in_steps(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    os.utime(path, (time.time() + 60, time.time() + 60.5))  # as of another machine's clock: it may be written to again
    open_source(path)
    assert HEAD_CACHE.get(path) is None
    os.utime(path, (1, 1.5))
    time.sleep(0.05)
    open_source(path)
    assert HEAD_CACHE.get(path) is not None


def test_a_file_that_is_left_before_its_end_is_hashed_anew(tmp_path):
    path = tmp_path / "a.tsv"
    write(path, 60_000)
    found = read_lines(open_source(path))
    next(found)
    found.close()
    assert hash_file(path) == hashlib.sha256(path.read_bytes()).digest()
