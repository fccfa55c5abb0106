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

from saccade.data.item import ROLES, Role
from saccade.data.read.columns import MISSING, choose, look_up
from saccade.data.read.formats import find_format
from saccade.data.read.record import Ask, Record
from saccade.data.read.source import Source, lines, open_source, whole_text
from saccade.errors import DataError

SAMPLE = 200  # records looked at to find the column
PARTED = ("TSV", "CSV", "CSV with ;", "CSV with |", "JSON lines", "ABC", "FASTA", "plain text")
BY = Role("by", known=tuple(sorted({name for role in ROLES.values() for name in role.known})))  # any known header


@dataclass(frozen=True)
class Parts:
    """How many records go where, and what may not stand in two places."""

    dev: int = 0
    test: int = 0
    train: int = 0  # the most that are learnt from; 0: all that are left
    by: str = ""  # a column, by name or number; none: the record as a whole
    seed: int = 0
    skips: bool = False  # leave bad records out
    join: int = 1  # texts of 1 to so many rows of a table with tabs, drawn at random; 1: rows as they are


@dataclass(frozen=True)
class Piece:
    """A record as it stands in its file, and the value that keeps it on one side."""

    key: str
    text: str


def part(paths: Sequence[str | Path], out: str | Path, parts: Parts) -> dict[str, int]:
    """Write train, dev and test into a directory, and say how many records each has."""
    found: list[Piece] = []
    heads: dict[str, Path] = {}
    for path in map(Path, paths):
        head, pieces = _opened(path, parts)
        heads[head] = path
        found += pieces
    if len(heads) > 1:
        (one, first), (other, second), *_ = heads.items()
        what = f"{first.name} begins with {one[:40]!r} and this file with {other[:40]!r}"
        raise DataError(what, file=second, cure="part files of one kind and one header at a time")
    sides = _sides([piece.key for piece in found], parts)
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    (head,), suffix = heads, open_source(paths[0]).suffix
    counts = {}
    for name in ("train", "dev", "test"):
        chosen = [piece.text for piece, side in zip(found, sides, strict=True) if side == name]
        if parts.join > 1:
            chosen = _joined(chosen, parts)
        if chosen:
            _write(target / f"{name}{suffix}", head, chosen)
            counts[name] = len(chosen)
    return counts


def _sides(keys: Sequence[str], parts: Parts) -> list[str]:
    """Where each record goes; records with one key go together, and a part has exactly as many as were asked for."""
    counts = Counter(keys)
    order = sorted(counts, key=lambda key: _mark(key, parts.seed))
    side = dict.fromkeys(keys, "")
    for name, wanted in (("test", parts.test), ("dev", parts.dev), ("train", parts.train or len(keys))):
        room = wanted
        for key in order:
            if not side[key] and counts[key] <= room:
                side[key] = name
                room -= counts[key]
        if room and (name != "train" or room == wanted):
            have = f"{len(keys):,} records of {len(counts):,} different values"
            what = f"{have} do not make {wanted:,} for {name}"
            raise DataError(what, cure="ask for fewer, or name another column with --by")
    return [side[key] for key in keys]


def _mark(key: str, seed: int) -> bytes:
    raw = key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=12, salt=seed.to_bytes(8, "little")).digest()


def _opened(path: Path, parts: Parts) -> tuple[str, list[Piece]]:
    """What stands before the first record, and the records."""
    source = open_source(path)
    ask = Ask((BY,), {BY.name: parts.by} if parts.by else {})
    form = find_format(source, ask)
    if form.name == "JSON":
        return _articles(source, parts.by)
    if form.name not in PARTED:
        cure = "give a table, JSON, JSON lines, ABC, FASTA or plain text"
        raise DataError(f"{form.name} is not parted", file=path, value=path.name, cure=cure)
    if parts.by and not form.columns:
        cure = "leave --by out: equal records stay together"
        raise DataError(f"{form.name} has no columns", file=path, value=parts.by, cure=cure)
    records = form.records(source, ask)
    starts = dict(_keys(source, ask, records, parts))
    return _cut(source, starts, headed=form.columns)


def _keys(
    source: Source, ask: Ask, records: Iterator[Record | DataError], parts: Parts
) -> Iterator[tuple[int, str | None]]:
    """The line at which each record begins, and its value; None for one that is left out."""
    first = list(islice(records, SAMPLE))
    column = ""
    if parts.by:
        column = choose(source, ask, [record for record in first if isinstance(record, Record)]).columns[BY.name][0]
    for record in chain(first, records):
        if isinstance(record, DataError):
            if not parts.skips:
                raise record
            yield record.line, None
            continue
        value = look_up(record.fields, column) if column else ""
        if value is MISSING:
            cure = f"add {column!r} to this record"
            raise DataError(f"this record has no {column}", file=source.path, line=record.line, cure=cure)
        yield record.line, str(value).strip() if column else ""


def _cut(source: Source, starts: Mapping[int, str | None], *, headed: bool) -> tuple[str, list[Piece]]:
    """The lines of a file, cut where records begin; what stands before the first is the header of a table, or nothing."""
    head: list[str] = []
    found: list[tuple[str | None, list[str]]] = []
    for number, text in lines(source):
        if number in starts:
            found.append((starts[number], []))
        if not isinstance(text, str):
            if found and found[-1][0] is None:
                continue
            raise text
        (found[-1][1] if found else head).append(text if text.endswith("\n") else text + "\n")
    pieces = [(key, "".join(some)) for key, some in found if key is not None]
    return "".join(head) if headed else "", [Piece(key or text.strip(), text) for key, text in pieces]


def _articles(source: Source, by: str) -> tuple[str, list[Piece]]:
    """The objects of an array in a JSON file, each as a whole; SQuAD's are articles with their title."""
    try:
        whole = json.loads(whole_text(source))
    except (ValueError, RecursionError) as error:
        cure = "fetch it again, or correct it there"
        raise DataError(f"not JSON that can be read ({error})", file=source.path, value="", cure=cure) from None
    arrays = {"": whole} if isinstance(whole, list) else whole
    key = next((key for key, value in arrays.items() if isinstance(value, list) and value), None)
    if key is None or not all(isinstance(value, dict) for value in arrays[key]):
        raise DataError("no array of objects in it", file=source.path, value="", cure='write [{"text": ...}, ...]')
    found = []
    for value in arrays[key]:
        if by and by not in value:
            cure = f"name one of {', '.join(value)}"
            raise DataError(f"an object of the array has no {by!r}", file=source.path, value=by, cure=cure)
        text = json.dumps(value, ensure_ascii=False)
        found.append(Piece(str(value.get(by or "title", text)), text))
    return json.dumps({"key": key}), found


def _joined(rows: Sequence[str], parts: Parts) -> list[str]:
    """All rows in a random order, 1 to `join` of them as one: their cells with a space between, column by column.

    >>> sorted(len(row.split()) for row in _joined([f"a{i}\\tb{i}\\n" for i in range(7)], Parts(join=3)))
    [2, 4, 4, 4]
    """
    draw = random.Random(parts.seed)
    left = [row.rstrip("\n").split("\t") for row in rows]
    wide = {len(cells) for cells in left}
    if wide and (len(wide) > 1 or wide == {1}):
        raise DataError("only rows with tabs can be joined", value=rows[0][:50], cure="leave --join out, or write TSV")
    draw.shuffle(left)
    found = []
    while left:
        some = [left.pop() for _ in range(min(len(left), draw.randint(1, parts.join)))]
        found.append("\t".join(" ".join(cells) for cells in zip(*some, strict=True)) + "\n")
    return found


def _write(path: Path, head: str, chosen: Sequence[str]) -> None:
    """The records of one part; an array becomes an array again."""
    if path.suffix == ".json":
        key = json.loads(head)["key"]
        body = "[" + ",\n".join(chosen) + "]"
        text = f"{{{json.dumps(key, ensure_ascii=False)}: {body}}}\n" if key else body + "\n"
    else:
        text = head + "".join(chosen)
    path.write_text(text, encoding="utf-8", newline="\n")
