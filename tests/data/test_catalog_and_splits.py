"""Sets and their parts: what is held out is apart, and what is fetched is whole, checked, and never half there."""

import csv
import gzip
import hashlib
import json
import threading
import zipfile
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.cli import main
from saccade.cli.download_data import get_dataset
from saccade.data.catalog import DATASETS, DatasetFile, DatasetInfo
from saccade.data.read.formats import DELIMITERS
from saccade.data.split_files import SplitSpec, split_files
from saccade.errors import DataError
from saccade.models.io.hub import Download, download

ROWS = [f"{'abcdefgh'[i % 8]} {i % 8}\tline {i}" for i in range(40)]


def rows_of(path):
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


@settings(deadline=None, max_examples=40)
@given(
    keys=st.lists(st.sampled_from("abcdefghijkl"), min_size=6, max_size=60),
    dev=st.integers(0, 4),
    test=st.integers(1, 4),
    seed=st.integers(0, 3),
)
def test_no_value_stands_in_two_parts_and_nothing_is_lost(tmp_path_factory, keys, dev, test, seed):
    home = tmp_path_factory.mktemp("parts")
    lines = [f"{key}\t{i}" for i, key in enumerate(keys)]
    (home / "all.txt").write_text("\n".join(lines) + "\n")
    try:
        counts = split_files(
            [home / "all.txt"], home / "out", SplitSpec(dev=dev, test=test, group_column="1", seed=seed)
        )
    except DataError as error:
        assert "cannot take" in str(error)  # noqa: PT017 - whether it can be done depends on what was drawn
        return
    found = {name: rows_of(home / "out" / f"{name}.txt") for name in ("train", "dev", "test")}
    assert Counter(line for some in found.values() for line in some) == Counter(lines)
    assert (len(found["dev"]), len(found["test"])) == (dev, test)
    assert {name: len(some) for name, some in found.items() if some} == counts
    values = [{line.split("\t")[0] for line in some} for some in found.values()]
    assert sum(map(len, values)) == len(set.union(*values))
    again = split_files([home / "all.txt"], home / "again", SplitSpec(dev=dev, test=test, group_column="1", seed=seed))
    assert again == counts
    assert rows_of(home / "again" / "test.txt") == found["test"]


def test_a_table_keeps_its_header_its_quotes_and_its_line_ends(tmp_path):
    rows = [[f"text {i}\nof two lines", f'a "{i}"'] for i in range(12)]
    with (tmp_path / "all.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["review", "label"], *rows])
    assert main(["data", "split", str(tmp_path / "all.csv"), "--test", "3", "--out", str(tmp_path / "out")]) == 0
    found = []
    for name in ("train", "test"):
        with (tmp_path / "out" / f"{name}.csv").open(newline="") as file:
            header, *some = csv.reader(file)
        assert header == ["review", "label"]
        found += some
    assert sorted(found) == sorted(rows)


@pytest.mark.parametrize("mark", DELIMITERS)
def test_tables_with_every_mark_between_cells_are_parted(tmp_path, mark):
    rows = [["review", "label"], *([f"text {i}", f"{i % 3}"] for i in range(12))]
    (tmp_path / "all.csv").write_text("".join(mark.join(row) + "\n" for row in rows))
    counts = split_files([tmp_path / "all.csv"], tmp_path / "out", SplitSpec(test=4, group_column="label"))
    assert counts == {"train": 8, "test": 4}
    train, test = ([line.split(mark) for line in rows_of(tmp_path / "out" / f"{name}.csv")] for name in counts)
    assert train[0] == test[0] == rows[0]
    assert sorted([*train[1:], *test[1:]]) == sorted(rows[1:])
    assert {row[1] for row in train[1:]} & {row[1] for row in test[1:]} == set()


def test_rows_are_joined_column_by_column_and_none_is_lost(tmp_path):
    (tmp_path / "all.txt").write_text("".join(f"a{i}\tb{i}\n" for i in range(200)))
    split_files([tmp_path / "all.txt"], tmp_path / "out", SplitSpec(test=40, max_concat=6))
    found = [line.split("\t") for name in ("train", "test") for line in rows_of(tmp_path / "out" / f"{name}.txt")]
    assert all(a.replace("a", "b") == b for a, b in found)
    assert sorted(word for a, _ in found for word in a.split()) == sorted(f"a{i}" for i in range(200))
    assert {len(a.split()) for a, _ in found} == {1, 2, 3, 4, 5, 6}
    (tmp_path / "plain.txt").write_text("one\ntwo\nthree\n")
    with pytest.raises(DataError, match="only rows of a TSV file"):
        split_files([tmp_path / "plain.txt"], tmp_path / "plain", SplitSpec(test=1, max_concat=2))


def test_articles_go_as_a_whole_and_equal_records_stay_together(tmp_path):
    articles = [{"title": f"t{i}", "paragraphs": [{"context": "c", "qas": []}] * i} for i in range(6)]
    (tmp_path / "dev.json").write_text(json.dumps({"version": 1, "data": articles}))
    assert split_files([tmp_path / "dev.json"], tmp_path / "a", SplitSpec(dev=1, test=2)) == {
        "train": 3,
        "dev": 1,
        "test": 2,
    }
    parts = [json.loads((tmp_path / "a" / f"{name}.json").read_text())["data"] for name in ("train", "dev", "test")]
    assert sorted((one for some in parts for one in some), key=lambda one: one["title"]) == articles
    (tmp_path / "lines.txt").write_text("same\n" * 5 + "".join(f"other {i}\n" for i in range(9)))
    split_files([tmp_path / "lines.txt"], tmp_path / "b", SplitSpec(test=3))
    assert "same" not in rows_of(tmp_path / "b" / "test.txt")  # five would be too many


def test_tunes_of_several_files_and_a_bound_on_what_is_learnt(tmp_path):
    for n in range(2):
        tunes = "".join(f"X:{i}\nT:{n}-{i}\nK:G\nGABc|\n\n" for i in range(1, 6))
        (tmp_path / f"{n}.abc").write_text("% a remark before\n" + tunes)
    counts = split_files([tmp_path / "0.abc", tmp_path / "1.abc"], tmp_path / "out", SplitSpec(test=2, train=3))
    assert counts == {"train": 3, "test": 2}
    assert sum(line.startswith("T:") for line in rows_of(tmp_path / "out" / "train.abc")) == 3


@pytest.mark.parametrize(
    ("lines", "words", "said"),
    [
        (ROWS, ("--test", "41"), "cannot take 41 records for test"),
        (ROWS, ("--test", "4", "--group-column", "label"), "no column"),
        (
            ["1,2,3,4", "AAA, 1", "CCC, 0", "GGG, 1"],
            ("--test", "1", "--group-column", "1"),
            "expected 2 cells, got 4",
        ),
        (["one", "two"], ("--test", "1", "--group-column", "1"), "has no columns"),
    ],
)
def test_what_cannot_be_parted_is_said(lines, words, said, tmp_path, capsys):
    path = tmp_path / ("all.csv" if "," in lines[0] else "all.txt")
    path.write_text("\n".join(lines) + "\n")
    assert main(["data", "split", str(path), *words, "--out", str(tmp_path / "out")]) == 3
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_bad_record_can_be_left_out(tmp_path):
    (tmp_path / "all.csv").write_text("1,2,3,4\nAAA, 1\nCCC, 0\nGGG, 1\nTTT, 0\n")
    words = [
        "data",
        "split",
        str(tmp_path / "all.csv"),
        "--test",
        "1",
        "--group-column",
        "1",
        "--on-bad-record",
        "skip",
    ]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    both = rows_of(tmp_path / "out" / "train.csv") + rows_of(tmp_path / "out" / "test.csv")
    assert sorted(both) == ["AAA, 1", "CCC, 0", "GGG, 1", "TTT, 0"]


BODY = b"some bytes\n" * 1000


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server on this machine, which says how long its answers are, or lies, or does not say."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    packed = tmp_path / "server.zip"
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("inside/fra.txt", "Go.\tVa !\n")

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/gone":
                self.send_error(404)
                return
            body = packed.read_bytes() if self.path == "/set.zip" else BODY
            self.send_response(302 if self.path == "/away" else 200)
            if self.path == "/away":
                self.send_header("Location", "http://example.org/elsewhere")
            if self.path != "/unsaid":
                self.send_header("Content-Length", str(len(body) * (2 if self.path == "/cut" else 1)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *args):
            pass

    served = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.mark.parametrize("where", ["/plain", "/unsaid"])
def test_a_download_is_whole_and_tells_how_far_it_is(server, where, tmp_path):
    told = []
    wanted = Download(server + where, 10**6, hashlib.sha256(BODY).hexdigest())
    download(wanted, tmp_path / "file", lambda done, all: told.append((done, all)))
    assert (tmp_path / "file").read_bytes() == BODY
    assert told[-1] == (len(BODY), 0 if where == "/unsaid" else len(BODY))


@pytest.mark.parametrize(
    ("where", "most", "sha", "said"),
    [
        ("/plain", 100, "", "at most 100 are expected"),
        ("/unsaid", 100, "", "at most 100 are expected"),
        ("/plain", 10**6, "0" * 64, "its SHA-256 is"),
        ("/cut", 10**6, "", "of 22,000 bytes"),
        ("/gone", 10**6, "", "cannot be downloaded"),
        ("/away", 10**6, "", "only https is allowed"),
    ],
)
def test_what_is_wrong_is_said_and_leaves_nothing(server, where, most, sha, said, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "file").write_text("what was there before")
    with pytest.raises(ValueError, match=said):
        download(Download(server + where, most, sha), out / "file")
    assert [path.name for path in out.iterdir()] == ["file"]
    assert (out / "file").read_text() == "what was there before"


def test_without_a_connection_and_without_https(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="only https"):
        download(Download("http://example.org/a", 10), tmp_path / "a")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="--mirror DIR"):
        download(Download("https://example.org/a", 10), tmp_path / "a")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with pytest.raises(ValueError, match=r"cannot be downloaded.*--mirror DIR"):
        download(Download("http://127.0.0.1:9/a", 10), tmp_path / "a")  # the port that throws everything away


def test_a_set_is_fetched_once_and_unpacked(server, tmp_path, monkeypatch, capsys):
    entry = DatasetInfo(
        "tried", "said", "a licence", "a page", (DatasetFile("fra.txt", f"{server}/set.zip", "inside/fra.txt"),)
    )
    monkeypatch.setitem(DATASETS, "tried", entry)
    assert main(["data", "get", "tried", "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["fra.txt"]
    assert (tmp_path / "out" / "fra.txt").read_text() == "Go.\tVa !\n"
    said = capsys.readouterr().out
    assert "a licence" in said
    assert "it may have changed" in said
    monkeypatch.setitem(
        DATASETS, "tried", replace(entry, files=(replace(entry.files[0], url="https://127.0.0.1:9/x"),))
    )
    assert main(["data", "get", "tried", "--out", str(tmp_path / "out")]) == 0  # it is there already
    lost = replace(entry, files=(replace(entry.files[0], zip_member="other.txt"),))
    with pytest.raises(DataError, match=r"not a zip archive with other.txt"):
        get_dataset(lost, tmp_path / "lost", None)
    assert list((tmp_path / "lost").iterdir()) == []


def test_the_digest_of_a_file_in_a_zip_is_that_of_the_file(server, tmp_path):
    file = DatasetFile("fra.txt", f"{server}/set.zip", "inside/fra.txt")
    digest = hashlib.sha256(b"Go.\tVa !\n").hexdigest()
    entry = DatasetInfo("tried", "said", "a licence", "a page", (replace(file, sha256=digest),))
    get_dataset(entry, tmp_path / "out", None)
    assert (tmp_path / "out" / "fra.txt").is_file()
    with pytest.raises(DataError, match=rf"its SHA-256 is {digest}, not 00"):
        get_dataset(replace(entry, files=(replace(file, sha256="00" * 32),)), tmp_path / "other", None)
    assert list((tmp_path / "other").iterdir()) == []


def test_a_mirror_takes_the_place_of_the_network(tmp_path, capsys):
    mirror = tmp_path / "mirror" / "sick"
    mirror.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (mirror / name).write_text(name)
    (mirror / "test.tsv.gz").write_bytes(gzip.compress(b"test"))
    words = ["data", "get", "sick", "--out", str(tmp_path / "out")]
    assert main([*words, "--mirror", str(tmp_path / "mirror")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dev.tsv", "test.tsv.gz", "train.tsv"]
    assert "non-commercial use" in capsys.readouterr().out
    assert main(words) == 3  # its licence is not open, so it is left to the user
    assert "--mirror DIR" in capsys.readouterr().err


def test_a_mirror_is_checked_like_a_download(tmp_path, capsys):
    (tmp_path / "input.txt").write_text("not Shakespeare")
    words = ["data", "get", "tinyshakespeare", "--out", str(tmp_path / "out"), "--mirror", str(tmp_path)]
    assert main(words) == 3
    assert "SHA-256" in capsys.readouterr().err
    (tmp_path / "input.txt").unlink()
    assert main(words) == 3
    assert "has no input.txt" in capsys.readouterr().err
    assert not list(Path(tmp_path / "out").iterdir())


def test_an_unknown_name_gets_the_nearest(capsys):
    assert main(["data", "get", "multi30"]) == 2
    assert "did you mean 'multi30k'?" in capsys.readouterr().err
    assert main(["data", "get"]) == 2
    assert "fashion_mnist" in capsys.readouterr().err


def test_every_set_says_its_licence_and_is_fetched_by_https():
    for name, entry in DATASETS.items():
        assert entry.name == name
        assert entry.license
        assert entry.description
        assert entry.files
        assert all(
            url.startswith("https://") for url in [entry.homepage, *(file.url for file in entry.files if file.url)]
        )
        assert len({file.name for file in entry.files}) == len(entry.files)
