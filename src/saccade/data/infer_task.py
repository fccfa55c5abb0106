"""What can be seen of data before it is known what they are for: images or texts, numbers or words."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data.example import ROLES, Example
from saccade.data.read import idx
from saccade.data.read.base import ReadRequest, Record, normalize_column_name
from saccade.data.read.folder import METADATA_FILES
from saccade.data.read.formats import find_format
from saccade.data.read.header import is_number
from saccade.data.read.image_files import SUFFIXES, is_image
from saccade.data.read.open_text import open_source
from saccade.data.splits import find_split_files

MAX_RECORDS_SAMPLED = 20  # records looked at for pictures
IMAGE_COLUMNS = {
    "image",
    "file_name",
    "filename",
    "img",
    "picture",
}  # columns that hold pictures, whatever stands in them


def has_images(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> bool:
    """Whether data show pictures, not texts: idx files, folders of pictures, or a table with a column of them.

    Where a table has both, `columns` decides, and without it the text; but metadata.csv, as its name says, tells of pictures.
    """
    named = columns or {}
    if "image" in named or "text" in named:
        return "image" in named
    first = next(iter(find_split_files(paths, (ROLES["image"], ROLES["label"])).values()))[0]
    if first.is_dir():
        return any(file.suffix.lower() in SUFFIXES for depth in ("*", "*/*") for file in first.glob(depth))
    source = open_source(first)
    if idx.matches(source):
        return True
    ask = ReadRequest((ROLES["image"], ROLES["text"], ROLES["label"]))
    form = find_format(source, ask)
    if not form.has_columns:
        return False
    rows = [
        row.fields
        for row in islice(form.read_records(source.preview(), ask), MAX_RECORDS_SAMPLED)
        if isinstance(row, Record)
    ]
    names = {normalize_column_name(name) for row in rows for name in row}
    if names & set(ROLES["text"].column_names) and first.name not in METADATA_FILES:
        return False
    values = [[row[name] for row in rows if row.get(name)] for name in (rows[0] if rows else ())]
    return bool(names & IMAGE_COLUMNS) or any(column and all(map(is_image, column)) for column in values)


def are_numbers(examples: Sequence[Example], name: str) -> bool:
    """Whether a role of all examples is filled by numbers."""
    return all(name in example and is_number(example[name]) for example in examples)
