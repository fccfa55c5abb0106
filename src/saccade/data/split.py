"""Train, dev and test: told by the names of the files, or cut off the training data in a way that never changes."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from saccade.data import long
from saccade.data.item import Example, Role, Table
from saccade.data.long import Long, cut_long, long_table, weight
from saccade.data.read.folder import class_folders, metadata_of, only_pictures
from saccade.data.read.picture import SUFFIXES, named_pictures
from saccade.data.read.reading import digest, read, stream
from saccade.data.read.record import Ask
from saccade.data.read.units import units
from saccade.errors import DataError

NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "development"),
    "test": ("test", "testing", "t10k"),
}
ASIDE = ("readme", "license", "licence", "about", "citation", "changelog", "copying", "notice", "contributing")
NO_DATA = (".md", ".html", ".py", ".sh", ".lock", ".bib", ".yaml", ".yml", ".toml", ".cfg", ".log")
PACKED = (".zip", ".tar", ".tgz", ".7z", ".rar", ".pdf", *SUFFIXES)  # no data where there are others
BESIDES = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json", "bad_records.jsonl")
GOLD = ("label", "labels", "number", "tags", "answers")


@dataclass
class Splits:
    """The three tables, what was said while they were read, and a mark of all the bytes and the columns."""

    train: Table
    dev: Table
    test: Table | None
    said: list[str] = field(default_factory=list)
    digest: str = ""

    def tables(self) -> dict[str, Table]:
        found = {"train": self.train, "dev": self.dev}
        return found if self.test is None else {**found, "test": self.test}

    @property
    def bad(self) -> list[DataError]:
        return [error for table in self.tables().values() for error in table.bad]


def split_of(name: str) -> str | None:
    """The split that a word in a name says.

    >>> split_of("test_2016_flickr.de.gz"), split_of("val.en"), split_of("reviews.tsv")
    ('test', 'dev', None)
    """
    words = re.findall(r"t10k|[a-z]+", name.lower())
    return next((split for split, known in NAMES.items() if set(known) & set(words)), None)


def _of_folder(path: Path) -> str | None:
    """A directory is a split only if that is all its name says."""
    return next((split for split, known in NAMES.items() if path.name.lower() in known), None)


def splits(
    paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None = None
) -> dict[str, list[Path]]:
    """Which files are train, dev and test; directories are searched, and files that belong together stand together."""
    found: dict[str, list[Path]] = {"train": [], "dev": [], "test": []}
    given = not any(Path(path).is_dir() for path in paths)
    for path in map(Path, paths):
        for split, file in _search(path, _of_folder(path)) if path.is_dir() else [(split_of(path.name), path)]:
            found[split or "train"].append(file)
    ask = Ask(tuple(roles), columns or {})
    kept = {split: files for split, files in found.items() if files}
    return {split: [x for unit in units(files, ask, given=given) for x in unit] for split, files in kept.items()}


def _search(path: Path, split: str | None) -> list[tuple[str | None, Path]]:
    """The data in a directory: a folder for each class, or files, or both one step further down."""
    try:
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    except OSError as error:
        raise DataError(f"cannot be searched: {error.strerror}", file=path, cure="check the rights") from None
    files = [entry for entry in entries if _is_data(entry)]
    tables = [file for file in files if file.suffix.lower() not in PACKED]
    named = [entry for entry in entries if entry.is_dir() and (_of_folder(entry) or entry.name == "data")]
    bare = [entry for entry in named if tables and only_pictures(entry)]  # their table stands beside them
    named = [entry for entry in named if entry not in bare]
    found = [pair for entry in named for pair in _search(entry, _of_folder(entry) or split)]
    metadata, classes = metadata_of(path), [entry for entry in class_folders(path) if entry not in bare]
    if metadata is not None and not named:
        if len({_of_folder(entry) for entry in bare}) > 1:
            folders = ", ".join(entry.name for entry in bare)
            cure = f"put one into each of {folders}, with its own pictures"
            raise DataError("one table for the pictures of several splits", file=metadata, value=folders, cure=cure)
        return [(split, metadata)]
    if classes and not named and not (tables and len(classes) == 1):  # one folder beside a table is no class
        return [(split, path)]
    files = tables or files
    found += [(split_of(file.name) or split, file) for file in files]
    if not found:
        there = ", ".join(entry.name for entry in entries[:8]) or "nothing"
        cure = "give a directory with CSV, TSV, JSONL, CoNLL, text or idx files, or with a folder for each class"
        raise DataError("no data in this directory", file=path, value=there, cure=cure)
    return found


def _is_data(path: Path) -> bool:
    stem = re.split(r"[._-]", path.name.lower())[0]
    return path.is_file() and stem not in ASIDE and path.suffix.lower() not in NO_DATA and path.name not in BESIDES


def open_data(
    paths: Sequence[str | Path],
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad: str = "error",
    max_bad: float = 0.01,
    seed: int = 0,
    contiguous: bool = False,
) -> Splits:
    """Read every split; without a dev file a tenth of the training data is cut off, the last one where the text runs on."""
    files = splits(paths, roles, columns)
    said: list[str] = []
    if "train" not in files:
        files = _renamed(files, said)
    tables: dict[str, Table] = {}
    ends = None
    for split, found in files.items():
        if split == "train" and contiguous and weight(found) > long.LARGE:
            tables[split], ends = _long(found, roles, columns=columns, on_bad=on_bad, max_bad=max_bad)
        else:
            tables[split] = read(found, roles, columns=columns, on_bad=on_bad, max_bad=max_bad)
        said += [f"{split}: {line}" for line in tables[split].said if line not in said]
    if "dev" not in tables:
        if ends is not None:
            tables["train"], tables["dev"], how = cut_long(tables["train"], ends)
        else:
            cut = _last_tenth if contiguous else _tenth
            tables["train"], tables["dev"], how = cut(tables["train"], roles, seed)
        said.append(how)
    given = [path for found in files.values() for path in found]
    if not any(path.is_dir() for path in given):  # a folder's pictures are files of its own
        given += named_pictures((example for table in tables.values() for example in table.examples), roles)
    mark = digest(given, columns)
    return Splits(tables["train"], tables["dev"], tables.get("test"), said, mark)


def _long(
    paths: Sequence[Path], roles: Sequence[Role], *, columns: Mapping[str, str] | None, on_bad: str, max_bad: float
) -> tuple[Table, np.ndarray]:
    """The records of a text that is too large to be held, and where each ends."""
    said: list[str] = []
    bad: list[DataError] = []

    def first() -> Iterator[Example]:
        return stream(paths, roles, columns=columns, on_bad=on_bad, max_bad=max_bad, said=said, bad=bad)

    table, ends = long_table(first, roles, weight(paths))
    whole = table.examples
    assert isinstance(whole, Long)
    again = Long(lambda: stream(paths, roles, columns=columns, on_bad=on_bad, max_bad=max_bad), len(whole), whole.some)
    said.append(f"{int(ends[-1]):,} characters: not held in memory, but read from the files when they are needed.")
    return Table(again, said, bad), ends


def split_table(table: Table, roles: Sequence[Role], *, seed: int = 0, contiguous: bool = False) -> Splits:
    """One table as two, a tenth of it kept apart."""
    train, dev, how = (_last_tenth if contiguous else _tenth)(table, roles, seed)
    return Splits(train, dev, None, [how.replace("No dev file: ", "")], table.digest)


def _renamed(files: dict[str, list[Path]], said: list[str]) -> dict[str, list[Path]]:
    """One split alone is the training data, whatever its name."""
    names = [path.name for found in files.values() for path in found]
    if len(files) != 1:
        what = f"no training file among {', '.join(names[:8])}"
        cure = "name one with the word train, or give the training file alone"
        raise DataError(what, file=next(iter(files.values()))[0], value=names[0], cure=cure)
    (split, found), *_ = files.items()
    said.append(f"There are only {split} files ({', '.join(names[:4])}); they are taken for the training data.")
    return {"train": found}


def _tenth(table: Table, roles: Sequence[Role], seed: int) -> tuple[Table, Table, str]:
    """Dev is the tenth with the least hashes of the input, so that equal inputs stay on one side."""
    role = next((role for role in roles if role.kind not in GOLD), roles[0])
    key = role.name
    short = (lambda value: Path(value).parts[-2:]) if role.kind == "image" else (lambda value: value)
    # of a picture's path the folder and the name, so that a directory that is moved is split as before
    marks = [
        _mark(short(example[key]) if isinstance(example[key], str) else example[key], seed)
        for example in table.examples
    ]
    counts: dict[bytes, int] = {}
    for mark in marks:
        counts[mark] = counts.get(mark, 0) + 1
    wanted, held, chosen = max(1, round(len(marks) / 10)), 0, set[bytes]()
    for mark in sorted(counts)[:-1]:
        if held >= wanted:
            break
        if held + counts[mark] < 2 * wanted + 1:  # one input that fills the file must not become all of dev
            chosen.add(mark)
            held += counts[mark]
    if not chosen and len(counts) > 1:
        chosen = {min(counts, key=lambda mark: (counts[mark], mark))}
    if not chosen:
        what = "all inputs are the same" if len(marks) > 1 else "there is one record"
        return table, Table(table.examples, digest=table.digest), f"No dev file, and {what}: dev is the training data."
    sides = [
        [e for e, mark in zip(table.examples, marks, strict=True) if (mark in chosen) is dev] for dev in (False, True)
    ]
    how = f"No dev file: {len(sides[1]):,} of {len(marks):,} records, chosen by a hash of {key}, are kept apart as dev."
    return Table(sides[0], table.said, table.bad, table.digest), Table(sides[1], digest=table.digest), how


def _mark(value: object, seed: int) -> bytes:
    raw = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=12, salt=seed.to_bytes(8, "little")).digest()


def _last_tenth(table: Table, roles: Sequence[Role], seed: int) -> tuple[Table, Table, str]:
    """Running text is cut once, at the end of a line where there is one."""
    name, rows = roles[0].name, table.examples
    sizes = np.cumsum([len(example[name]) for example in rows])
    cut = int(np.searchsorted(sizes, 0.9 * sizes[-1], side="right"))
    if len(rows) == 1 or (cut < len(rows) and rows[cut].column):  # a line that is the text, or much of it
        cut = min(cut, len(rows) - 1)
        text, start, whole = rows[cut][name], max(1, rows[cut].column), rows[cut]
        at = max(1, int(0.9 * sizes[-1]) - int(sizes[cut]) + len(text))
        parts = ((start, text[:at]), (start + at if text[at:] else start, text[at:] or text))
        halves = [Example({**whole.values, name: part}, whole.file, whole.line, place) for place, part in parts]
        rows = [*rows[:cut], *halves, *rows[cut + 1 :]]
        cut += 1
    cut = min(max(cut, 1), len(rows) - 1)
    dev = rows[cut:]
    share = sum(len(example[name]) for example in dev) / max(1, int(sizes[-1]))
    how = f"No dev file: the last {share:.0%} of the text, from {dev[0].place} on, is kept apart as dev."
    return Table(rows[:cut], table.said, table.bad, table.digest), Table(dev, digest=table.digest), how
