"""Shards against one array in memory: the same windows, whatever the borders, and no file that is not whole is read."""

import json
import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.batching import WindowPlan
from saccade.data.streaming import token_writer
from saccade.data.streaming.token_shards import TokenShards, fingerprint
from saccade.data.streaming.token_writer import tokenize_to_shards

ROWS = [[5, 6, 7], [], [8], [1, 2, 3, 4, 9, 9]]
TEXTS = [" ".join(map(str, row)) for row in ROWS]


def encode(texts):
    return [[int(word) for word in text.split()] for text in texts]


def write_shards(*given, progress=None, **options):
    """What the writing ends with; `progress` hears of the rest."""
    for found in tokenize_to_shards(*given, **options):
        if progress is not None and not isinstance(found, TokenShards):
            progress(found)
    return found


def write(directory, texts=TEXTS, **changes):
    return write_shards(texts, encode, directory, **({"vocab": 10, "separator": 0, "shard_tokens": 4} | changes))


def never(texts):
    raise AssertionError("was tokenised again")


@given(
    st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=9),
    st.integers(1, 12),
    st.sampled_from([None, 0, 99]),
    st.sampled_from([100, 2**16 - 1, 2**16, 10**6]),
    st.integers(1, 40),
)
@settings(deadline=None, max_examples=40)
def test_every_window_is_that_of_one_array(tmp_path_factory, rows, most, separator, vocab, characters):
    whole = np.array([id for row in rows for id in row + ([] if separator is None else [separator])], dtype=int)
    directory = tmp_path_factory.mktemp("shards") / "text"
    texts = [" ".join(map(str, row)) for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_writer, "MAX_BUFFER_CHARACTERS", characters)
        if not len(whole):
            with pytest.raises(ValueError, match="No tokens"):
                write(directory, texts, vocab=vocab, separator=separator, shard_tokens=most)
            assert not list(directory.parent.glob("*text"))
            return
        found = write(directory, texts, vocab=vocab, separator=separator, shard_tokens=most)
    assert len(found) == len(whole)
    for start in range(len(whole) + 1):
        for length in range(len(whole) - start + 1):
            assert found.read_window(start, length).tolist() == whole[start : start + length].tolist()
    assert found[2:7].tolist() == whole[2:7].tolist()
    assert found[-3:].tolist() == whole[-3:].tolist()
    assert found[5:2].tolist() == []
    with pytest.raises(ValueError, match="step of 1; got 2"):
        found[::2]
    found.verify()


def test_files_are_raw_little_endian_numbers(tmp_path):
    found = write(tmp_path / "text")
    assert [path.name for path in found.files] == ["00000.bin", "00001.bin", "00002.bin", "00003.bin"]
    raw = b"".join(path.read_bytes() for path in found.files)
    assert raw == bytes([5, 0, 6, 0, 7, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 9, 0, 9, 0, 0, 0])
    assert found.index["dtype"] == "uint16"
    wide = write(tmp_path / "wide", ["65536"], vocab=2**16 + 1)
    assert wide.index["dtype"] == "uint32"
    assert wide.files[0].read_bytes() == bytes([0, 0, 1, 0, 0, 0, 0, 0])
    assert wide.read_window(0, 2).tolist() == [2**16, 0]


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (0, 15), (14, 1), (15, 0), (3, -1)])
def test_a_window_beyond_the_text_is_refused(tmp_path, start, length):
    with pytest.raises(ValueError, match="there are 14"):
        write(tmp_path / "text").read_window(start, length)


def test_windows_are_copies(tmp_path):
    found = write(tmp_path / "text")
    found.read_window(0, 3)[:] = 1
    assert found.read_window(0, 3).tolist() == [5, 6, 7]


def test_the_same_key_is_not_tokenised_again_and_another_is(tmp_path):
    options = {"vocab": 10, "separator": 0}
    write_shards(TEXTS, encode, tmp_path / "text", key="a", **options)
    again = write_shards(TEXTS, never, tmp_path / "text", key="a", **options)
    assert again.read_window(0, 3).tolist() == [5, 6, 7]
    for changed in ({"key": "b"}, {"key": ""}, {"key": "a", "separator": 1}, {"key": "a", "vocab": 11}):
        with pytest.raises(AssertionError, match="again"):
            write_shards(TEXTS, never, tmp_path / "text", **(options | changed))
    assert TokenShards(tmp_path / "text").index["key"] == "a"  # what failed has left the old one as it was
    new = write_shards(["3 3"], encode, tmp_path / "text", key="b", **options)
    assert new.read_window(0, 3).tolist() == [3, 3, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".text.lock", "text"]


def test_a_spoilt_directory_is_redone(tmp_path):
    found = write(tmp_path / "text", key="a")
    found.files[1].write_bytes(b"")
    assert write(tmp_path / "text", key="a").read_window(0, 14).tolist() == [5, 6, 7, 0, 0, 8, 0, 1, 2, 3, 4, 9, 9, 0]


def test_a_fingerprint_follows_text_and_files(tmp_path):
    (tmp_path / "a").write_text("one")
    first = fingerprint(tmp_path / "a", "tokenizer")
    assert first == fingerprint(tmp_path / "a", b"tokenizer")
    assert first == fingerprint("one", "tokenizer")
    (tmp_path / "a").write_text("two")
    assert first != fingerprint(tmp_path / "a", "tokenizer")
    assert fingerprint("a", "b") != fingerprint("b", "a")


HALFWAY = """
import importlib.util, os, signal, sys
spec = importlib.util.spec_from_file_location("sharding", sys.argv[1])
shards = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shards)
shards.MAX_BUFFER_CHARACTERS = 4

def texts():
    yield from ["5 6 7", "8 9"] * 9
    os.kill(os.getpid(), signal.SIGKILL)

encode = lambda texts: [[int(word) for word in text.split()] for text in texts]
list(shards.tokenize_to_shards(texts(), encode, sys.argv[2], vocab=10, separator=0, key="a", shard_tokens=4))
"""


def test_a_killed_writing_leaves_nothing_to_mistake_and_is_redone(tmp_path):
    done = subprocess.run([sys.executable, "-c", HALFWAY, token_writer.__file__, tmp_path / "text"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list((tmp_path / ".text.part").glob("*.bin"))  # it had begun
    with pytest.raises(ValueError, match="missing"):
        TokenShards(tmp_path / "text")
    assert len(write(tmp_path / "text", key="a")) == 14
    assert sorted(path.name for path in tmp_path.iterdir()) == [".text.lock", "text"]


def test_an_error_halfway_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(token_writer, "MAX_BUFFER_CHARACTERS", 4)

    def texts():
        yield from TEXTS
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        write(tmp_path / "text", texts())
    assert [path.name for path in tmp_path.iterdir()] == [".text.lock"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: (d / "00001.bin").write_bytes(b"123"), r"00001\.bin: 3 bytes, but 8 were written"),
        (lambda d: (d / "00001.bin").write_bytes(b"123456789"), r"00001\.bin: 9 bytes"),
        (lambda d: (d / "00002.bin").unlink(), r"00002\.bin: is missing"),
        (lambda d: (d / "index.json").unlink(), r"index\.json: is missing"),
        (lambda d: (d / "index.json").write_text("{"), r"index\.json: not an index"),
        (lambda d: (d / "index.json").write_text("[]"), r"index\.json: not an index"),
        (lambda d: (d / "index.json").write_bytes(b"\xff"), r"index\.json: not an index"),
        (lambda d: (d / "index.json").write_text("[" * 100_000), r"index\.json: not an index"),
        (lambda d: changed(d, dtype="float64"), "in format 1"),
        (lambda d: changed(d, format=2), "in format 1"),
        (lambda d: changed(d, tokens=13), "in format 1"),
        (lambda d: changed(d, shards=[]), "in format 1"),
        (lambda d: changed_shard(d, file="../text/00000.bin"), "in format 1"),
        (lambda d: changed_shard(d, file="/dev/zero"), "in format 1"),
        (lambda d: changed_shard(d, tokens=-4), "in format 1"),
        (lambda d: changed_shard(d, tokens=True), "in format 1"),
        (lambda d: linked(d), r"00000\.bin: is missing or not a regular file"),
    ],
)
def test_what_is_not_whole_is_refused_by_name(tmp_path, spoil, said):
    write(tmp_path / "text")
    spoil(tmp_path / "text")
    with pytest.raises(ValueError, match=said):
        TokenShards(tmp_path / "text")


def changed(directory, **values):
    path = directory / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def changed_shard(directory, **values):
    index = json.loads((directory / "index.json").read_text())
    changed(directory, shards=[index["shards"][0] | values, *index["shards"][1:]])


def linked(directory):
    (directory / "00000.bin").rename(directory.parent / "elsewhere")
    (directory / "00000.bin").symlink_to(directory.parent / "elsewhere")


def test_a_changed_byte_is_found_by_verify(tmp_path):
    found = write(tmp_path / "text")
    found.verify()
    raw = bytearray(found.files[2].read_bytes())
    raw[3] ^= 1
    found.files[2].write_bytes(raw)
    with pytest.raises(ValueError, match=r"00002\.bin: the checksum differs"):
        TokenShards(tmp_path / "text").verify()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"texts": ["1", "2 10"]}, "Text 1 has the id 10, beyond a vocabulary of 10"),
        ({"texts": ["-1"]}, "Text 0 has the id -1"),
        ({"separator": 10}, "separator 10 is not an id"),
        ({"shard_tokens": 0}, "shard_tokens is 0"),
        ({"texts": [], "separator": 0}, "No tokens to write"),
    ],
)
def test_what_cannot_be_written_is_said(tmp_path, changes, said):
    with pytest.raises(ValueError, match=said):
        write(tmp_path / "text", **changes)
    assert not (tmp_path / "text").exists()


def test_an_encoder_that_loses_a_text_is_caught(tmp_path):
    with pytest.raises(ValueError, match="1 rows of ids for 2 texts"):
        write_shards(["1", "2"], lambda texts: [[1]], tmp_path / "text", vocab=10, separator=0)


def test_other_directories_and_files_are_left_alone(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("more")
    for name in ("notes", "file"):
        with pytest.raises(ValueError, match="holds no token shards"):
            write(tmp_path / name)
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "years of work"


def test_memory_stays_small_however_long_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(token_writer, "MAX_BUFFER_CHARACTERS", 2**14)
    heard = []
    line, count = "1 2 3 4 5 6 7 8 " * 16, 4_000  # a megabyte of text, sixty chunks
    tracemalloc.start()
    try:
        options = {"vocab": 10, "separator": 0, "shard_tokens": 100_000, "progress": heard.append}
        found = write_shards((line for _ in range(count)), encode, tmp_path / "text", **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == count * 129
    assert peak < 1_000_000 < found.index["tokens"] * 2  # less than the ids alone, as bytes on disk
    assert heard == sorted(heard)
    assert heard[-1] == len(found)
    assert len(heard) > 50
    assert found.read_window(129 * 2_000 - 2, 4).tolist() == [8, 0, 1, 2]


def test_a_second_writer_waits_and_finds_the_work_done(tmp_path):
    begun, done = threading.Event(), []

    def texts():
        begun.set()
        time.sleep(0.2)  # time enough for the second to come in, were it let
        yield from TEXTS

    first = threading.Thread(target=lambda: done.append(write(tmp_path / "text", texts(), key="a")))
    first.start()
    begun.wait()
    second = write_shards(TEXTS, never, tmp_path / "text", vocab=10, separator=0, key="a")
    first.join()
    assert len(done[0]) == len(second) == 14


def test_shards_stand_where_an_array_would_for_windows_of_running_text(tmp_path):
    found = write(tmp_path / "text", [str(i) for i in range(100)], vocab=100, separator=None, shard_tokens=7)
    blocks = WindowPlan(len(found), window_tokens=6, batch_size=3)
    for start in np.concatenate(blocks.plan_epoch(1)):
        assert found[start : start + 7].tolist() == list(range(start, start + 7))
