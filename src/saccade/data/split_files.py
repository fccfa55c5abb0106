"""Split a file of records into train, dev and test, reproducibly, with the records of one group in one split.

Records are copied unchanged: a row, a line, a tune, a protein, or an article of a JSON file with its questions. The split of a
record depends on a hash of its value, so that records that are added to a file keep the order of those it had before.
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

MAX_RECORDS_SAMPLED = 200  # records that are read to find the column
SPLITTABLE_FORMATS = ("TSV", "CSV", "CSV with ;", "CSV with |", "JSON lines", "ABC", "FASTA", "plain text")
# any known column name, so that a header row is recognized
GROUP_ROLE = Role("group", column_names=tuple(sorted({name for role in ROLES.values() for name in role.column_names})))


@dataclass(frozen=True)
class SplitSpec:
    """The sizes of the splits, and the column whose equal values stay in one split."""

    dev: int = 0
    test: int = 0
    train: int = 0  # maximum number of training records; 0 takes all that are left
    group_column: str = ""  # by name or number; "" groups by the whole record
    seed: int = 0
    skip_bad_records: bool = False
    max_concat: int = 1  # concatenate 1 to this many random rows of a TSV file to one; 1 keeps the rows as they are


@dataclass(frozen=True)
class RawRecord:
    """The unchanged text of a record, and the key of its group."""

    key: str
    text: str


def split_files(paths: Sequence[str | Path], out_dir: str | Path, spec: SplitSpec) -> dict[str, int]:
    """Write the files of train, dev and test into a directory; returns the number of records of each."""
    records: list[RawRecord] = []
    headers: dict[str, Path] = {}
    for path in map(Path, paths):
        header, file_records = _read_raw_records(path, spec)
        headers[header] = path
        records += file_records
    if len(headers) > 1:
        (header, first), (other, second), *_ = headers.items()
        what = f"the header of {first.name} is {header[:40]!r}, that of this file is {other[:40]!r}"
        raise DataError(what, file=second, hint="split files with different headers one at a time")
    assigned = _assign_splits([record.key for record in records], spec)
    target = Path(out_dir)
    target.mkdir(parents=True, exist_ok=True)
    (header,), suffix = headers, open_source(paths[0]).suffix
    counts = {}
    for split in ("train", "dev", "test"):
        texts = [record.text for record, name in zip(records, assigned, strict=True) if name == split]
        if spec.max_concat > 1:
            texts = _concat_rows(texts, spec)
        if texts:
            _write_split(target / f"{split}{suffix}", header, texts)
            counts[split] = len(texts)
    return counts


def _assign_splits(keys: Sequence[str], spec: SplitSpec) -> list[str]:
    """The split of each record; records with one key share a split, and dev and test have exactly the requested sizes."""
    counts = Counter(keys)
    order = sorted(counts, key=lambda key: _hash_key(key, spec.seed))
    split_of = dict.fromkeys(keys, "")
    for split, size in (("test", spec.test), ("dev", spec.dev), ("train", spec.train or len(keys))):
        room = size
        for key in order:
            if not split_of[key] and counts[key] <= room:
                split_of[key] = split
                room -= counts[key]
        if room and (split != "train" or room == size):
            what = f"cannot take {size:,} records for {split} from {len(keys):,} records with {len(counts):,} different values"
            raise DataError(what, hint="ask for fewer, or name another column with --group-column")
    return [split_of[key] for key in keys]


def _hash_key(key: str, seed: int) -> bytes:
    raw = key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=12, salt=seed.to_bytes(8, "little")).digest()


def _read_raw_records(path: Path, spec: SplitSpec) -> tuple[str, list[RawRecord]]:
    """The header of a file, and its records."""
    source = open_source(path)
    request = ReadRequest((GROUP_ROLE,), {GROUP_ROLE.name: spec.group_column} if spec.group_column else {})
    form = find_format(source, request)
    if form.name == "JSON":
        return _read_articles(source, spec.group_column)
    if form.name not in SPLITTABLE_FORMATS:
        hint = "give a table, JSON, JSON lines, ABC, FASTA or plain text"
        raise DataError(f"{form.name} files cannot be split", file=path, value=path.name, hint=hint)
    if spec.group_column and not form.has_columns:
        hint = "leave --group-column out: equal records stay together"
        raise DataError(f"{form.name} has no columns", file=path, value=spec.group_column, hint=hint)
    records = form.read_records(source, request)
    starts = dict(_read_record_keys(source, request, records, spec))
    return _slice_records(source, starts, has_header=form.has_columns)


def _read_record_keys(
    source: SourceFile, request: ReadRequest, records: Iterator[Record | DataError], spec: SplitSpec
) -> Iterator[tuple[int, str | None]]:
    """The first line of each record and the key of its group; None for a bad record that is skipped."""
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
            hint = f"add {column!r} to this record"
            raise DataError(f"this record has no {column}", file=source.path, line=record.line, hint=hint)
        yield record.line, str(value).strip() if column else ""


def _slice_records(
    source: SourceFile, starts: Mapping[int, str | None], *, has_header: bool
) -> tuple[str, list[RawRecord]]:
    """Cut the lines of a file where records begin; the lines before the first are the header, if the format has one."""
    header: list[str] = []
    blocks: list[tuple[str | None, list[str]]] = []
    for number, text in read_lines(source):
        if number in starts:
            blocks.append((starts[number], []))
        if not isinstance(text, str):
            if blocks and blocks[-1][0] is None:
                continue
            raise text
        (blocks[-1][1] if blocks else header).append(text if text.endswith("\n") else text + "\n")
    texts = [(key, "".join(lines)) for key, lines in blocks if key is not None]
    return "".join(header) if has_header else "", [RawRecord(key or text.strip(), text) for key, text in texts]


def _read_articles(source: SourceFile, group_column: str) -> tuple[str, list[RawRecord]]:
    """The objects of an array in a JSON file, such as the articles of SQuAD, grouped by title unless a column is named."""
    try:
        parsed = json.loads(read_whole_text(source))
    except (ValueError, RecursionError) as error:
        hint = "download it again, or correct the error"
        raise DataError(f"invalid JSON ({error})", file=source.path, value="", hint=hint) from None
    arrays = {"": parsed} if isinstance(parsed, list) else parsed
    key = next((key for key, value in arrays.items() if isinstance(value, list) and value), None)
    if key is None or not all(isinstance(value, dict) for value in arrays[key]):
        raise DataError(
            "the file has no array of objects", file=source.path, value="", hint='write [{"text": ...}, ...]'
        )
    records = []
    for value in arrays[key]:
        if group_column and group_column not in value:
            hint = f"name one of {', '.join(value)}"
            raise DataError(
                f"an object of the array has no {group_column!r}", file=source.path, value=group_column, hint=hint
            )
        text = json.dumps(value, ensure_ascii=False)
        records.append(RawRecord(str(value.get(group_column or "title", text)), text))
    return json.dumps({"key": key}), records


def _concat_rows(rows: Sequence[str], spec: SplitSpec) -> list[str]:
    """Concatenate 1 to `max_concat` rows at a time, in a random order: the cells of each column, separated by spaces.

    >>> sorted(len(row.split()) for row in _concat_rows([f"a{i}\\tb{i}\\n" for i in range(7)], SplitSpec(max_concat=3)))
    [2, 4, 4, 4]
    """
    rng = random.Random(spec.seed)
    remaining = [row.rstrip("\n").split("\t") for row in rows]
    column_counts = {len(cells) for cells in remaining}
    if column_counts and (len(column_counts) > 1 or column_counts == {1}):
        raise DataError(
            "only rows of a TSV file can be concatenated",
            value=rows[0][:50],
            hint="leave --max-concat out, or write TSV",
        )
    rng.shuffle(remaining)
    concatenated = []
    while remaining:
        group = [remaining.pop() for _ in range(min(len(remaining), rng.randint(1, spec.max_concat)))]
        concatenated.append("\t".join(" ".join(cells) for cells in zip(*group, strict=True)) + "\n")
    return concatenated


def _write_split(path: Path, header: str, records: Sequence[str]) -> None:
    """Write the records of one split; the records of a JSON file as an array under its original key."""
    if path.suffix == ".json":
        key = json.loads(header)["key"]
        body = "[" + ",\n".join(records) + "]"
        text = f"{{{json.dumps(key, ensure_ascii=False)}: {body}}}\n" if key else body + "\n"
    else:
        text = header + "".join(records)
    path.write_text(text, encoding="utf-8", newline="\n")
