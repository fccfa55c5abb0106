"""Tables that are written row by row, as pandas, the csv module and our own reader read them."""

import csv
import json

import pandas as pd
import pytest

from saccade.data import Role, read_examples
from saccade.data.table_writer import MAX_ROWS_BUFFERED, TableWriter, write_table
from saccade.errors import DataError, UsageError

ROWS = [
    {"id": "a1", "text": 'She said "no", twice,\nand left', "score": 0.5, "spans": [{"start": 0}], "none": None},
    {"id": "b2", "text": "ünïcode; 漢字 😀", "score": 1.0, "spans": [], "none": None},
    {"id": "", "text": "=1+1", "score": -2.5, "spans": [{"start": 3}, {"start": 5}], "none": None},
]


def test_csv_is_read_back_by_other_readers(tmp_path):
    assert write_table(tmp_path / "t.csv", ROWS) == 3
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["text"] for row in found] == [row["text"] for row in ROWS]
    assert [json.loads(row["spans"]) for row in found] == [row["spans"] for row in ROWS]
    frame = pd.read_csv(tmp_path / "t.csv")
    assert frame["score"].tolist() == [0.5, 1.0, -2.5]
    assert frame["none"].isna().all()
    ours = read_examples([tmp_path / "t.csv"], [Role("text", "text", ("text",))]).examples
    assert [example["text"] for example in ours] == [row["text"] for row in ROWS]


@pytest.mark.parametrize(
    ("suffix", "read"), [(".jsonl", lambda path: pd.read_json(path, lines=True)), (".parquet", pd.read_parquet)]
)
def test_json_lines_and_parquet_keep_lists(tmp_path, suffix, read):
    write_table(tmp_path / f"t{suffix}", ROWS)
    frame = read(tmp_path / f"t{suffix}")
    assert frame["text"].tolist() == [row["text"] for row in ROWS]
    assert [[dict(span) for span in spans] for spans in frame["spans"]] == [row["spans"] for row in ROWS]
    assert frame["none"].isna().all()


def test_more_rows_than_are_buffered_are_all_written(tmp_path):
    count = 2 * MAX_ROWS_BUFFERED + 7
    for suffix, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        write_table(tmp_path / f"t{suffix}", ({"n": n, "text": f"row {n}"} for n in range(count)))
        assert read(tmp_path / f"t{suffix}")["n"].tolist() == list(range(count))


def test_an_error_leaves_the_old_file_and_no_part_of_the_new_one(tmp_path):
    (tmp_path / "t.csv").write_text("old")
    rows = ({"n": n if n < MAX_ROWS_BUFFERED + 5 else 1 // 0} for n in range(2 * MAX_ROWS_BUFFERED))
    with pytest.raises(ZeroDivisionError):
        write_table(tmp_path / "t.csv", rows)
    with TableWriter(tmp_path / "t.csv") as table:
        for n in range(MAX_ROWS_BUFFERED + 1):
            table.write({"n": n})
        assert len(list(tmp_path.iterdir())) == 2  # the part, and the old file until it is complete
        assert (tmp_path / "t.csv").read_text() == "old"
    assert pd.read_csv(tmp_path / "t.csv")["n"].tolist() == list(range(MAX_ROWS_BUFFERED + 1))
    (tmp_path / "t.csv").write_text("old")
    with pytest.raises(DataError):
        write_table(tmp_path / "t.csv", [{"n": 1}] * MAX_ROWS_BUFFERED + [{"m": 1}])
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert (tmp_path / "t.csv").read_text() == "old"


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"t\.tsv: row 1 has a tab or a line break.*column text"):
        write_table(tmp_path / "t.tsv", ROWS)
    late = [{"n": 1}] * MAX_ROWS_BUFFERED + [{"n": 1, "more": 2}]
    with pytest.raises(DataError, match=r"row 1,001 has the column 'more'.*Write \.jsonl"):
        write_table(tmp_path / "t.csv", late)
    mixed = [{"n": 1}] * MAX_ROWS_BUFFERED + [{"n": "one"}]
    with pytest.raises(DataError, match=r"rows 1,001 to 1,001 have values of another type"):
        write_table(tmp_path / "t.parquet", mixed)
    with pytest.raises(UsageError, match=r"t\.xlsx: the suffix.*\.csv, \.tsv, \.jsonl, \.parquet"):
        write_table(tmp_path / "t.xlsx", ROWS)
    with pytest.raises(UsageError, match="there is no directory"):
        write_table(tmp_path / "none" / "t.csv", ROWS)
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_rows_has_its_columns(tmp_path):
    write_table(tmp_path / "t.csv", [], columns=("a", "b"))
    assert list(pd.read_csv(tmp_path / "t.csv").columns) == ["a", "b"]
    write_table(tmp_path / "t.parquet", [], columns=("a", "b"))
    assert list(pd.read_parquet(tmp_path / "t.parquet").columns) == ["a", "b"]
