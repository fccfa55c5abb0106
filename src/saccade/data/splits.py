"""Train, dev and test: told by the names of the files, or cut off the training data in a way that never changes."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from saccade.data.example import Example, Records, Role
from saccade.data.read.base import ReadRequest
from saccade.data.read.folder import find_metadata, has_only_images, list_class_folders
from saccade.data.read.group_files import group_files
from saccade.data.read.image_files import SUFFIXES, list_image_paths
from saccade.data.read.reader import hash_data, read_examples, stream_examples
from saccade.data.streaming import text as long
from saccade.data.streaming.text import StreamedExamples, estimate_text_bytes, index_streamed_examples, split_streamed
from saccade.errors import DataError

SPLIT_NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "development"),
    "test": ("test", "testing", "t10k"),
}
NON_DATA_STEMS = ("readme", "license", "licence", "about", "citation", "changelog", "copying", "notice", "contributing")
NON_DATA_SUFFIXES = (".md", ".html", ".py", ".sh", ".lock", ".bib", ".yaml", ".yml", ".toml", ".cfg", ".log")
NON_TABLE_SUFFIXES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".pdf", *SUFFIXES)  # no data where there are others
IGNORED_FILES = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json", "bad_records.jsonl")
GOLD_KINDS = ("label", "labels", "number", "tags", "answers")


@dataclass
class Splits:
    """The three tables, what was said while they were read, and a mark of all the bytes and the columns."""

    train: Records
    dev: Records
    test: Records | None
    notes: list[str] = field(default_factory=list)
    digest: str = ""

    def as_dict(self) -> dict[str, Records]:
        found = {"train": self.train, "dev": self.dev}
        return found if self.test is None else {**found, "test": self.test}

    @property
    def rejects(self) -> list[DataError]:
        return [error for table in self.as_dict().values() for error in table.rejects]


def infer_split(name: str) -> str | None:
    """The split that a word in a name says.

    >>> infer_split("test_2016_flickr.de.gz"), infer_split("val.en"), infer_split("reviews.tsv")
    ('test', 'dev', None)
    """
    words = re.findall(r"t10k|[a-z]+", name.lower())
    return next((split for split, known in SPLIT_NAMES.items() if set(known) & set(words)), None)


def _infer_folder_split(path: Path) -> str | None:
    """A directory is a split only if that is all its name says."""
    return next((split for split, known in SPLIT_NAMES.items() if path.name.lower() in known), None)


def find_split_files(
    paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None = None
) -> dict[str, list[Path]]:
    """Which files are train, dev and test; directories are searched, and files that belong together stand together."""
    found: dict[str, list[Path]] = {"train": [], "dev": [], "test": []}
    given = not any(Path(path).is_dir() for path in paths)
    for path in map(Path, paths):
        for split, file in (
            _search_directory(path, _infer_folder_split(path)) if path.is_dir() else [(infer_split(path.name), path)]
        ):
            found[split or "train"].append(file)
    ask = ReadRequest(tuple(roles), columns or {})
    kept = {split: files for split, files in found.items() if files}
    return {
        split: [x for unit in group_files(files, ask, ordered_by_user=given) for x in unit]
        for split, files in kept.items()
    }


def _search_directory(path: Path, split: str | None) -> list[tuple[str | None, Path]]:
    """The data in a directory: a folder for each class, or files, or both one step further down."""
    try:
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    except OSError as error:
        raise DataError(f"cannot be searched: {error.strerror}", file=path, hint="check the rights") from None
    files = [entry for entry in entries if _is_data_file(entry)]
    tables = [file for file in files if file.suffix.lower() not in NON_TABLE_SUFFIXES]
    named = [entry for entry in entries if entry.is_dir() and (_infer_folder_split(entry) or entry.name == "data")]
    bare = [entry for entry in named if tables and has_only_images(entry)]  # their table stands beside them
    named = [entry for entry in named if entry not in bare]
    found = [pair for entry in named for pair in _search_directory(entry, _infer_folder_split(entry) or split)]
    metadata, classes = find_metadata(path), [entry for entry in list_class_folders(path) if entry not in bare]
    if metadata is not None and not named:
        if len({_infer_folder_split(entry) for entry in bare}) > 1:
            folders = ", ".join(entry.name for entry in bare)
            cure = f"put one into each of {folders}, with its own pictures"
            raise DataError("one table for the pictures of several splits", file=metadata, value=folders, hint=cure)
        return [(split, metadata)]
    if classes and not named and not (tables and len(classes) == 1):  # one folder beside a table is no class
        return [(split, path)]
    files = tables or files
    found += [(infer_split(file.name) or split, file) for file in files]
    if not found:
        there = ", ".join(entry.name for entry in entries[:8]) or "nothing"
        cure = "give a directory with CSV, TSV, JSONL, CoNLL, text or idx files, or with a folder for each class"
        raise DataError("no data in this directory", file=path, value=there, hint=cure)
    return found


def _is_data_file(path: Path) -> bool:
    stem = re.split(r"[._-]", path.name.lower())[0]
    return (
        path.is_file()
        and stem not in NON_DATA_STEMS
        and path.suffix.lower() not in NON_DATA_SUFFIXES
        and path.name not in IGNORED_FILES
    )


def open_data(
    paths: Sequence[str | Path],
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_record: str = "error",
    max_bad_fraction: float = 0.01,
    seed: int = 0,
    contiguous: bool = False,
) -> Splits:
    """Read every split; without a dev file a tenth of the training data is cut off, the last one where the text runs on."""
    files = find_split_files(paths, roles, columns)
    said: list[str] = []
    if "train" not in files:
        files = _rename_to_train(files, said)
    tables: dict[str, Records] = {}
    ends = None
    for split, found in files.items():
        if split == "train" and contiguous and estimate_text_bytes(found) > long.MIN_STREAMED_BYTES:
            tables[split], ends = _stream_train(
                found, roles, columns=columns, on_bad_record=on_bad_record, max_bad_fraction=max_bad_fraction
            )
        else:
            tables[split] = read_examples(
                found, roles, columns=columns, on_bad_record=on_bad_record, max_bad_fraction=max_bad_fraction
            )
        said += [f"{split}: {line}" for line in tables[split].notes if line not in said]
    if "dev" not in tables:
        if ends is not None:
            tables["train"], tables["dev"], how = split_streamed(tables["train"], ends)
        else:
            cut = _split_off_end if contiguous else _split_by_hash
            tables["train"], tables["dev"], how = cut(tables["train"], roles, seed)
        said.append(how)
    given = [path for found in files.values() for path in found]
    if not any(path.is_dir() for path in given):  # a folder's pictures are files of its own
        given += list_image_paths((example for table in tables.values() for example in table.examples), roles)
    mark = hash_data(given, columns)
    return Splits(tables["train"], tables["dev"], tables.get("test"), said, mark)


def _stream_train(
    paths: Sequence[Path],
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None,
    on_bad_record: str,
    max_bad_fraction: float,
) -> tuple[Records, np.ndarray]:
    """The records of a text that is too large to be held, and where each ends."""
    said: list[str] = []
    bad: list[DataError] = []

    def first() -> Iterator[Example]:
        return stream_examples(
            paths,
            roles,
            columns=columns,
            on_bad_record=on_bad_record,
            max_bad_fraction=max_bad_fraction,
            notes=said,
            rejects=bad,
        )

    table, ends = index_streamed_examples(first, roles, estimate_text_bytes(paths))
    whole = table.examples
    assert isinstance(whole, StreamedExamples)
    again = StreamedExamples(
        lambda: stream_examples(
            paths, roles, columns=columns, on_bad_record=on_bad_record, max_bad_fraction=max_bad_fraction
        ),
        len(whole),
        whole.sample,
    )
    said.append(f"{int(ends[-1]):,} characters: not held in memory, but read from the files when they are needed.")
    return Records(again, said, bad), ends


def split_records(records: Records, roles: Sequence[Role], *, seed: int = 0, contiguous: bool = False) -> Splits:
    """One table as two, a tenth of it kept apart."""
    train, dev, how = (_split_off_end if contiguous else _split_by_hash)(records, roles, seed)
    return Splits(train, dev, None, [how.replace("No dev file: ", "")], records.digest)


def _rename_to_train(files: dict[str, list[Path]], notes: list[str]) -> dict[str, list[Path]]:
    """One split alone is the training data, whatever its name."""
    names = [path.name for found in files.values() for path in found]
    if len(files) != 1:
        what = f"no training file among {', '.join(names[:8])}"
        cure = "name one with the word train, or give the training file alone"
        raise DataError(what, file=next(iter(files.values()))[0], value=names[0], hint=cure)
    (split, found), *_ = files.items()
    notes.append(f"There are only {split} files ({', '.join(names[:4])}); they are taken for the training data.")
    return {"train": found}


def _split_by_hash(records: Records, roles: Sequence[Role], seed: int) -> tuple[Records, Records, str]:
    """Dev is the tenth with the least hashes of the input, so that equal inputs stay on one side."""
    role = next((role for role in roles if role.kind not in GOLD_KINDS), roles[0])
    key = role.name
    short = (lambda value: Path(value).parts[-2:]) if role.kind == "image" else (lambda value: value)
    # of a picture's path the folder and the name, so that a directory that is moved is split as before
    marks = [
        _hash_input(short(example[key]) if isinstance(example[key], str) else example[key], seed)
        for example in records.examples
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
        return (
            records,
            Records(records.examples, digest=records.digest),
            f"No dev file, and {what}: dev is the training data.",
        )
    sides = [
        [e for e, mark in zip(records.examples, marks, strict=True) if (mark in chosen) is dev] for dev in (False, True)
    ]
    how = f"No dev file: {len(sides[1]):,} of {len(marks):,} records, chosen by a hash of {key}, are kept apart as dev."
    return (
        Records(sides[0], records.notes, records.rejects, records.digest),
        Records(sides[1], digest=records.digest),
        how,
    )


def _hash_input(value: object, seed: int) -> bytes:
    raw = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=12, salt=seed.to_bytes(8, "little")).digest()


def _split_off_end(records: Records, roles: Sequence[Role], seed: int) -> tuple[Records, Records, str]:
    """Running text is cut once, at the end of a line where there is one."""
    name, rows = roles[0].name, records.examples
    sizes = np.cumsum([len(example[name]) for example in rows])
    cut = int(np.searchsorted(sizes, 0.9 * sizes[-1], side="right"))
    if len(rows) == 1 or (cut < len(rows) and rows[cut].character):  # a line that is the text, or much of it
        cut = min(cut, len(rows) - 1)
        text, start, whole = rows[cut][name], max(1, rows[cut].character), rows[cut]
        at = max(1, int(0.9 * sizes[-1]) - int(sizes[cut]) + len(text))
        parts = ((start, text[:at]), (start + at if text[at:] else start, text[at:] or text))
        halves = [Example({**whole.values, name: part}, whole.file, whole.line, place) for place, part in parts]
        rows = [*rows[:cut], *halves, *rows[cut + 1 :]]
        cut += 1
    cut = min(max(cut, 1), len(rows) - 1)
    dev = rows[cut:]
    share = sum(len(example[name]) for example in dev) / max(1, int(sizes[-1]))
    how = f"No dev file: the last {share:.0%} of the text, from {dev[0].location} on, is kept apart as dev."
    return Records(rows[:cut], records.notes, records.rejects, records.digest), Records(dev, digest=records.digest), how
