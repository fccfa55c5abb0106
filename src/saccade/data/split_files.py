"""Files of records into train, dev and test: always the same, and no value of a column stands in two of them.

A record is copied as it stands: a row, a line, a tune, a protein, or an article of a JSON file with its questions. Which part it
goes to is told by a hash of its value, so that a longer file puts the records it had before in the same order.
"""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from saccade.data.example import ROLES, Role
from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.columns import MISSING, get_field, map_columns
from saccade.data.read.formats import find_format
from saccade.data.read.open_text import SourceFile, open_source, read_lines, read_whole_text
from saccade.errors import DataError

MAX_RECORDS_SAMPLED = 200  # records looked at to find the column
SPLITTABLE_FORMATS = ("TSV", "CSV", "CSV with ;", "CSV with |", "JSON lines", "ABC", "FASTA", "plain text")
GROUP_ROLE = Role(
    "group", column_names=tuple(sorted({name for role in ROLES.values() for name in role.column_names}))
)  # any known header


@dataclass(frozen=True)
class SplitSpec:
    """How many records go where, and what may not stand in two places."""

    dev: int = 0
    test: int = 0
    train: int = 0  # the most that are learnt from; 0: all that are left
    group_column: str = ""  # a column, by name or number; none: the record as a whole
    seed: int = 0
    skip_bad_records: bool = False  # leave bad records out
    max_concat: int = 1  # texts of 1 to so many rows of a table with tabs, drawn at random; 1: rows as they are


@dataclass(frozen=True)
class RawRecord:
    """A record as it stands in its file, and the value that keeps it on one side."""

    key: str
    text: str


def split_files(paths: Sequence[str | Path], out_dir: str | Path, spec: SplitSpec) -> dict[str, int]:
    """Write train, dev and test into a directory, and say how many records each has."""
    found: list[RawRecord] = []
    heads: dict[str, Path] = {}
    for path in map(Path, paths):
        head, pieces = _read_raw_records(path, spec)
        heads[head] = path
        found += pieces
    if len(heads) > 1:
        (one, first), (other, second), *_ = heads.items()
        what = f"{first.name} begins with {one[:40]!r} and this file with {other[:40]!r}"
        raise DataError(what, file=second, hint="part files of one kind and one header at a time")
    sides = _assign_splits([piece.key for piece in found], spec)
    target = Path(out_dir)
    target.mkdir(parents=True, exist_ok=True)
    (head,), suffix = heads, open_source(paths[0]).suffix
    counts = {}
    for name in ("train", "dev", "test"):
        chosen = [piece.text for piece, side in zip(found, sides, strict=True) if side == name]
        if spec.max_concat > 1:
            chosen = _concat_rows(chosen, spec)
        if chosen:
            _write_split(target / f"{name}{suffix}", head, chosen)
            counts[name] = len(chosen)
    return counts


def _assign_splits(keys: Sequence[str], spec: SplitSpec) -> list[str]:
    """Where each record goes; records with one key go together, and a part has exactly as many as were asked for."""
    counts = Counter(keys)
    order = sorted(counts, key=lambda key: _hash_key(key, spec.seed))
    side = dict.fromkeys(keys, "")
    for name, wanted in (("test", spec.test), ("dev", spec.dev), ("train", spec.train or len(keys))):
        room = wanted
        for key in order:
            if not side[key] and counts[key] <= room:
                side[key] = name
                room -= counts[key]
        if room and (name != "train" or room == wanted):
            have = f"{len(keys):,} records of {len(counts):,} different values"
            what = f"{have} do not make {wanted:,} for {name}"
            raise DataError(what, hint="ask for fewer, or name another column with --group-column")
    return [side[key] for key in keys]


def _hash_key(key: str, seed: int) -> bytes:
    raw = key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=12, salt=seed.to_bytes(8, "little")).digest()


def _read_raw_records(path: Path, spec: SplitSpec) -> tuple[str, list[RawRecord]]:
    """What stands before the first record, and the records."""
    source = open_source(path)
    ask = ReadRequest((GROUP_ROLE,), {GROUP_ROLE.name: spec.group_column} if spec.group_column else {})
    form = find_format(source, ask)
    if form.name == "JSON":
        return _read_articles(source, spec.group_column)
    if form.name not in SPLITTABLE_FORMATS:
        cure = "give a table, JSON, JSON lines, ABC, FASTA or plain text"
        raise DataError(f"{form.name} is not parted", file=path, value=path.name, hint=cure)
    if spec.group_column and not form.has_columns:
        cure = "leave --group-column out: equal records stay together"
        raise DataError(f"{form.name} has no columns", file=path, value=spec.group_column, hint=cure)
    records = form.read_records(source, ask)
    starts = dict(_read_record_keys(source, ask, records, spec))
    return _slice_records(source, starts, has_header=form.has_columns)


def _read_record_keys(
    source: SourceFile, request: ReadRequest, records: Iterator[Record | DataError], spec: SplitSpec
) -> Iterator[tuple[int, str | None]]:
    """The line at which each record begins, and its value; None for one that is left out."""
    first = list(islice(records, MAX_RECORDS_SAMPLED))
    column = ""
    if spec.group_column:
        column = map_columns(source, request, [record for record in first if isinstance(record, Record)]).columns[
            GROUP_ROLE.name
        ][0]
    for record in chain(first, records):
        if isinstance(record, DataError):
            if not spec.skip_bad_records:
                raise record
            yield record.line, None
            continue
        value = get_field(record.fields, column) if column else ""
        if value is MISSING:
            cure = f"add {column!r} to this record"
            raise DataError(f"this record has no {column}", file=source.path, line=record.line, hint=cure)
        yield record.line, str(value).strip() if column else ""


def _slice_records(
    source: SourceFile, starts: Mapping[int, str | None], *, has_header: bool
) -> tuple[str, list[RawRecord]]:
    """The lines of a file, cut where records begin; what stands before the first is the header of a table, or nothing."""
    head: list[str] = []
    found: list[tuple[str | None, list[str]]] = []
    for number, text in read_lines(source):
        if number in starts:
            found.append((starts[number], []))
        if not isinstance(text, str):
            if found and found[-1][0] is None:
                continue
            raise text
        (found[-1][1] if found else head).append(text if text.endswith("\n") else text + "\n")
    pieces = [(key, "".join(some)) for key, some in found if key is not None]
    return "".join(head) if has_header else "", [RawRecord(key or text.strip(), text) for key, text in pieces]


def _read_articles(source: SourceFile, group_column: str) -> tuple[str, list[RawRecord]]:
    """The objects of an array in a JSON file, each as a whole; SQuAD's are articles with their title."""
    try:
        whole = json.loads(read_whole_text(source))
    except (ValueError, RecursionError) as error:
        cure = "fetch it again, or correct it there"
        raise DataError(f"not JSON that can be read ({error})", file=source.path, value="", hint=cure) from None
    arrays = {"": whole} if isinstance(whole, list) else whole
    key = next((key for key, value in arrays.items() if isinstance(value, list) and value), None)
    if key is None or not all(isinstance(value, dict) for value in arrays[key]):
        raise DataError("no array of objects in it", file=source.path, value="", hint='write [{"text": ...}, ...]')
    found = []
    for value in arrays[key]:
        if group_column and group_column not in value:
            cure = f"name one of {', '.join(value)}"
            raise DataError(
                f"an object of the array has no {group_column!r}", file=source.path, value=group_column, hint=cure
            )
        text = json.dumps(value, ensure_ascii=False)
        found.append(RawRecord(str(value.get(group_column or "title", text)), text))
    return json.dumps({"key": key}), found


def _concat_rows(rows: Sequence[str], spec: SplitSpec) -> list[str]:
    """All rows in a random order, 1 to `join` of them as one: their cells with a space between, column by column.

    >>> sorted(len(row.split()) for row in _concat_rows([f"a{i}\\tb{i}\\n" for i in range(7)], SplitSpec(max_concat=3)))
    [2, 4, 4, 4]
    """
    draw = random.Random(spec.seed)
    left = [row.rstrip("\n").split("\t") for row in rows]
    wide = {len(cells) for cells in left}
    if wide and (len(wide) > 1 or wide == {1}):
        raise DataError(
            "only rows with tabs can be joined", value=rows[0][:50], hint="leave --max-concat out, or write TSV"
        )
    draw.shuffle(left)
    found = []
    while left:
        some = [left.pop() for _ in range(min(len(left), draw.randint(1, spec.max_concat)))]
        found.append("\t".join(" ".join(cells) for cells in zip(*some, strict=True)) + "\n")
    return found


def _write_split(path: Path, header: str, records: Sequence[str]) -> None:
    """The records of one part; an array becomes an array again."""
    if path.suffix == ".json":
        key = json.loads(header)["key"]
        body = "[" + ",\n".join(records) + "]"
        text = f"{{{json.dumps(key, ensure_ascii=False)}: {body}}}\n" if key else body + "\n"
    else:
        text = header + "".join(records)
    path.write_text(text, encoding="utf-8", newline="\n")
