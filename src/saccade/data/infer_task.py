"""Infer the kind of input of data before a task is chosen: texts, images or recordings, numbers or words."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data.example import ROLES, Example
from saccade.data.read import idx
from saccade.data.read.base import ReadRequest, Record, normalize_column_name
from saccade.data.read.class_folders import METADATA_FILES
from saccade.data.read.formats import find_format
from saccade.data.read.header import is_number
from saccade.data.read.media_files import MEDIA, find_media_kind
from saccade.data.read.open_text import open_source
from saccade.data.splits import find_split_files

MAX_RECORDS_SAMPLED = 20  # records that are searched for paths of files


def infer_input_kind(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> str:
    """The kind of input of labeled data: "image" or "audio" for folders of such files and tables of their paths, or "text".

    A table with both a text and a column of files counts as text unless `columns` names the files; metadata.csv beside a folder
    of files, the `imagefolder` and `audiofolder` formats of Hugging Face datasets, always describes the files.
    """
    for kind in (*MEDIA, "text"):
        if kind in (columns or {}):
            return kind
    first = next(iter(find_split_files(paths, (ROLES["image"], ROLES["label"])).values()))[0]
    if first.is_dir():
        names = [file.name for depth in ("*", "*/*") for file in first.glob(depth)]
        return next(filter(None, map(find_media_kind, names)), "text")
    source = open_source(first)
    if idx.matches(source):
        return "image"
    ask = ReadRequest((ROLES["image"], ROLES["text"], ROLES["label"]))
    form = find_format(source, ask)
    if not form.has_columns:
        return "text"
    rows = [
        row.fields
        for row in islice(form.read_records(source.preview(), ask), MAX_RECORDS_SAMPLED)
        if isinstance(row, Record)
    ]
    names = {normalize_column_name(name) for row in rows for name in row}
    if names & set(ROLES["text"].column_names) and first.name not in METADATA_FILES:
        return "text"
    return _find_kind_of_values(rows) or next((kind for kind in MEDIA if names & MEDIA[kind].column_names), "text")


def _find_kind_of_values(rows: Sequence[Mapping[str, object]]) -> str | None:
    """The kind of the files that the values of some column name in every row."""
    for name in rows[0] if rows else ():
        kinds = {find_media_kind(row[name]) for row in rows if row.get(name)}
        if len(kinds) == 1 and None not in kinds:
            return kinds.pop()
    return None


def are_numbers(examples: Sequence[Example], name: str) -> bool:
    """Whether a role has a number as its value in all examples."""
    return all(name in example and is_number(example[name]) for example in examples)
