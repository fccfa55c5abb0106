"""Train, dev and test splits: by the names of the files, or a deterministic split of the training data."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from saccade.data.example import Example, Records, Role
from saccade.data.held_out import DEV_ONLY, HeldOut, split_by_hash
from saccade.data.read.base import ReadRequest
from saccade.data.read.class_folders import find_metadata, has_only_media, list_class_folders
from saccade.data.read.group_files import group_files
from saccade.data.read.media_files import CLIP_FOLDER, SUFFIXES, list_media_paths
from saccade.data.read.reader import hash_data, read_examples, stream_examples
from saccade.data.read.speech.librispeech import find_transcripts
from saccade.data.streaming import text as streamed_text
from saccade.data.streaming.text import StreamedExamples, estimate_text_bytes, index_streamed_examples, split_streamed
from saccade.errors import DataError, UsageError

SPLIT_NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "development"),
    "test": ("test", "testing", "t10k"),
}
NON_DATA_STEMS = ("readme", "license", "licence", "about", "citation", "changelog", "copying", "notice", "contributing")
NON_DATA_SUFFIXES = (".md", ".html", ".py", ".sh", ".lock", ".bib", ".yaml", ".yml", ".toml", ".cfg", ".log")
NON_TABLE_SUFFIXES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".pdf", *SUFFIXES)  # ignored beside other files
IGNORED_FILES = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json", "bad_records.jsonl")


@dataclass
class Splits:
    """The records of each split, the notes of reading them, and a digest of all files and column names."""

    train: Records
    dev: Records
    test: Records | None
    notes: list[str] = field(default_factory=list)
    digest: str = ""
    test_size: float = 0.0  # fraction of the training data held out as test; 0 if test is a file, a fold, or missing

    def as_dict(self) -> dict[str, Records]:
        splits = {"train": self.train, "dev": self.dev}
        return splits if self.test is None else {**splits, "test": self.test}

    @property
    def rejects(self) -> list[DataError]:
        return [error for table in self.as_dict().values() for error in table.rejects]


def infer_split(name: str) -> str | None:
    """The split of a file, by the words of its name; None if no word names one.

    >>> infer_split("test_2016_flickr.de.gz"), infer_split("val.en"), infer_split("reviews.tsv")
    ('test', 'dev', None)
    """
    words = re.findall(r"t10k|[a-z]+", name.lower())
    return next((split for split, known in SPLIT_NAMES.items() if set(known) & set(words)), None)


def _infer_folder_split(path: Path) -> str | None:
    """The split of a directory, whose whole name has to be that of a split."""
    return next((split for split, known in SPLIT_NAMES.items() if path.name.lower() in known), None)


def find_split_files(
    paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None = None
) -> dict[str, list[Path]]:
    """The files of each split; directories are searched, and files that belong together are adjacent."""
    found: dict[str, list[Path]] = {"train": [], "dev": [], "test": []}
    ordered_by_user = not any(Path(path).is_dir() for path in paths)
    for path in map(Path, paths):
        for split, file in (
            _search_directory(path, _infer_folder_split(path)) if path.is_dir() else [(infer_split(path.name), path)]
        ):
            found[split or "train"].append(file)
    request = ReadRequest(tuple(roles), columns or {})
    return {
        split: [file for group in group_files(files, request, ordered_by_user=ordered_by_user) for file in group]
        for split, files in found.items()
        if files
    }


def _infer_subset(path: Path) -> str | None:
    """The split of a transcript, by the name of the subset that it is in, such as dev-clean."""
    return next(filter(None, (infer_split(part) for part in path.parent.parts)), None)


def _search_directory(path: Path, split: str | None) -> list[tuple[str | None, Path]]:
    """The data in a directory: a folder for each class, or files, or a subdirectory for each split with either."""
    try:
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    except OSError as error:
        raise DataError(
            f"cannot read the directory: {error.strerror}", file=path, hint="check its permissions"
        ) from None
    if transcripts := find_transcripts(path):
        return [(_infer_subset(file.relative_to(path)) or split, file) for file in transcripts]
    files = [entry for entry in entries if _is_data_file(entry)]
    tables = [file for file in files if file.suffix.lower() not in NON_TABLE_SUFFIXES]
    named = [entry for entry in entries if entry.is_dir() and (_infer_folder_split(entry) or entry.name == "data")]
    bare = [entry for entry in named if tables and has_only_media(entry)]  # images of the table beside them
    named = [entry for entry in named if entry not in bare]
    found = [pair for entry in named for pair in _search_directory(entry, _infer_folder_split(entry) or split)]
    metadata, classes = find_metadata(path), [entry for entry in list_class_folders(path) if entry not in bare]
    if metadata is not None and not named:
        if len({_infer_folder_split(entry) for entry in bare}) > 1:
            folders = ", ".join(entry.name for entry in bare)
            hint = f"put one into each of {folders}, beside the images that it describes"
            raise DataError(
                "one metadata file for the images of several splits", file=metadata, value=folders, hint=hint
            )
        return [(split, metadata)]
    if classes and not named and not (tables and len(classes) == 1):  # a single folder beside a table is not a class
        return [(split, path)]
    if (path / CLIP_FOLDER).is_dir():  # Common Voice, where other tables hold clips that were rejected, or all of them
        tables = [file for file in tables if infer_split(file.name)] or tables
    files = tables or files
    found += [(infer_split(file.name) or split, file) for file in files]
    if not found:
        there = ", ".join(entry.name for entry in entries[:8]) or "nothing"
        hint = "give a directory with CSV, TSV, JSONL, CoNLL, text or idx files, or a folder of images or sounds for each class"
        raise DataError("no data in this directory", file=path, value=there, hint=hint)
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
    held_out: HeldOut = DEV_ONLY,
) -> Splits:
    """Read every split; without a dev file, a tenth of the training data is held out (of running text, the last tenth).

    `held_out` may hold out a test set as well, if there is neither a dev nor a test file, or a fold of cross-validation.
    """
    if contiguous:
        _refuse_folds(held_out)
    files = find_split_files(paths, roles, columns)
    task_roles, given_columns = roles, columns
    roles, columns = (*roles, *held_out.roles), {**(columns or {}), **held_out.columns}
    notes: list[str] = []
    if "train" not in files:
        files = _rename_to_train(files, notes)
    tables: dict[str, Records] = {}
    ends = None
    for split, split_paths in files.items():
        if split == "train" and contiguous and estimate_text_bytes(split_paths) > streamed_text.MIN_STREAMED_BYTES:
            tables[split], ends = _stream_train(
                split_paths, roles, columns=columns, on_bad_record=on_bad_record, max_bad_fraction=max_bad_fraction
            )
        else:
            tables[split] = read_examples(
                split_paths, roles, columns=columns, on_bad_record=on_bad_record, max_bad_fraction=max_bad_fraction
            )
        notes += [f"{split}: {line}" for line in tables[split].notes if line not in notes]
    test_size = 0.0
    if ends is not None and "dev" not in tables:
        tables["train"], tables["dev"], note = split_streamed(tables["train"], ends)
        notes.append(note)
    elif "dev" not in tables or held_out.fold:
        parts = _split_off(tables, task_roles, held_out, seed=seed, contiguous=contiguous)
        tables, test_size = parts.as_dict(), parts.test_size
        notes += parts.notes
    hashed = [path for split_paths in files.values() for path in split_paths]
    if not any(path.is_dir() for path in hashed):  # hash_data lists the images of a folder by itself
        hashed += list_media_paths((example for table in tables.values() for example in table.examples), roles)
    digest = hash_data(hashed, given_columns)
    return Splits(tables["train"], tables["dev"], tables.get("test"), notes, digest, test_size)


def _stream_train(
    paths: Sequence[Path],
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None,
    on_bad_record: str,
    max_bad_fraction: float,
) -> tuple[Records, np.ndarray]:
    """The streamed records of a text too large for memory, and the cumulative number of characters at the end of each."""
    notes: list[str] = []
    rejects: list[DataError] = []

    def read_and_note() -> Iterator[Example]:
        return stream_examples(
            paths,
            roles,
            columns=columns,
            on_bad_record=on_bad_record,
            max_bad_fraction=max_bad_fraction,
            notes=notes,
            rejects=rejects,
        )

    indexed, ends = index_streamed_examples(read_and_note, roles, estimate_text_bytes(paths))
    assert isinstance(indexed.examples, StreamedExamples)
    streamed = StreamedExamples(  # later passes do not collect notes and rejects again
        lambda: stream_examples(
            paths, roles, columns=columns, on_bad_record=on_bad_record, max_bad_fraction=max_bad_fraction
        ),
        len(indexed.examples),
        indexed.examples.sample,
        indexed.examples.tail,
    )
    notes.append(f"{int(ends[-1]):,} characters: streamed from the files, not held in memory.")
    return Records(streamed, notes, rejects), ends


def split_records(
    records: Records,
    roles: Sequence[Role],
    *,
    seed: int = 0,
    contiguous: bool = False,
    held_out: HeldOut = DEV_ONLY,
) -> Splits:
    """Split records into train and dev, a tenth of them, and test, if `held_out` says so."""
    splits = _split_off({"train": records}, roles, held_out, seed=seed, contiguous=contiguous)
    return replace(splits, notes=[note.replace("No dev file: ", "") for note in splits.notes], digest=records.digest)


def _split_off(
    tables: Mapping[str, Records], roles: Sequence[Role], plan: HeldOut, *, seed: int, contiguous: bool
) -> Splits:
    """Hold out of the training records what no file was given for."""
    records, given_dev, given_test = tables["train"], tables.get("dev"), tables.get("test")
    if contiguous:
        _refuse_folds(plan)
        train, dev, note = _split_off_end(records, roles, seed)
        return Splits(train, dev, given_test, [note])
    if given_test is not None:
        if plan.fold:
            raise UsageError(
                f"Fold {plan.fold} of cross-validation is the test set, but there is a test file, too; leave one of them out."
            )
        plan = replace(plan, test_size=0.0)
    parts = split_by_hash(records.examples, roles, plan, seed=seed, needs_dev=given_dev is None)
    make_table = lambda examples: Records(examples, digest=records.digest)
    dev = given_dev if given_dev is not None else make_table(parts.dev or records.examples)
    test = given_test if parts.test is None else make_table(parts.test)
    train = Records(parts.train, records.notes, records.rejects, records.digest)
    return Splits(train, dev, test, [parts.note], test_size=parts.test_size)


def _refuse_folds(plan: HeldOut) -> None:
    if plan.fold or plan.group_by:
        raise UsageError(
            "Running text is one text, of which the end is held out: it has no folds and no groups. Leave out "
            f"{'train.fold' if plan.fold else 'train.group_by'}."
        )


def _rename_to_train(files: dict[str, list[Path]], notes: list[str]) -> dict[str, list[Path]]:
    """Use the files of a single split as the training data, whatever the name of that split."""
    names = [path.name for paths in files.values() for path in paths]
    if len(files) != 1:
        what = f"no training file among {', '.join(names[:8])}"
        hint = "put the word train into the name of one, or give only the training file"
        raise DataError(what, file=next(iter(files.values()))[0], value=names[0], hint=hint)
    (split, paths), *_ = files.items()
    notes.append(f"There are only {split} files ({', '.join(names[:4])}); they are used as the training data.")
    return {"train": paths}


def _split_off_end(records: Records, roles: Sequence[Role], seed: int) -> tuple[Records, Records, str]:
    """Hold out the last tenth of a running text, cut at the end of a line if there is one."""
    name, rows = roles[0].name, records.examples
    sizes = np.cumsum([len(example[name]) for example in rows])
    cut = int(np.searchsorted(sizes, 0.9 * sizes[-1], side="right"))
    if len(rows) == 1 or (cut < len(rows) and rows[cut].character):  # a long line, which has to be split itself
        cut = min(cut, len(rows) - 1)
        row, text, start = rows[cut], rows[cut][name], max(1, rows[cut].character)
        at = max(1, int(0.9 * sizes[-1]) - int(sizes[cut]) + len(text))
        parts = ((start, text[:at]), (start + at if text[at:] else start, text[at:] or text))
        halves = [Example({**row.values, name: part}, row.file, row.line, character) for character, part in parts]
        rows = [*rows[:cut], *halves, *rows[cut + 1 :]]
        cut += 1
    cut = min(max(cut, 1), len(rows) - 1)
    dev = rows[cut:]
    fraction = sum(len(example[name]) for example in dev) / max(1, int(sizes[-1]))
    note = f"No dev file: the last {fraction:.0%} of the text, from {dev[0].location} on, is held out as dev."
    return (
        Records(rows[:cut], records.notes, records.rejects, records.digest),
        Records(dev, digest=records.digest),
        note,
    )
