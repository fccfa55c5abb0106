"""What can be seen of data before it is known what they are for: images or texts, numbers or words."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data.item import ROLES, Example
from saccade.data.read import idx
from saccade.data.read.folder import METADATA
from saccade.data.read.formats import find_format
from saccade.data.read.header import is_number
from saccade.data.read.picture import SUFFIXES, is_picture
from saccade.data.read.record import Ask, Record, plain_name
from saccade.data.read.source import open_source
from saccade.data.split import splits

FEW = 20  # records looked at for pictures
ROLLS = {"image", "file_name", "filename", "img", "picture"}  # columns that hold pictures, whatever stands in them


def pictured(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> bool:
    """Whether data show pictures, not texts: idx files, folders of pictures, or a table with a column of them.

    Where a table has both, `columns` decides, and without it the text; but metadata.csv, as its name says, tells of pictures.
    """
    named = columns or {}
    if "image" in named or "text" in named:
        return "image" in named
    first = next(iter(splits(paths, (ROLES["image"], ROLES["label"])).values()))[0]
    if first.is_dir():
        return any(file.suffix.lower() in SUFFIXES for depth in ("*", "*/*") for file in first.glob(depth))
    source = open_source(first)
    if idx.looks(source):
        return True
    ask = Ask((ROLES["image"], ROLES["text"], ROLES["label"]))
    form = find_format(source, ask)
    if not form.columns:
        return False
    rows = [row.fields for row in islice(form.records(source.preview(), ask), FEW) if isinstance(row, Record)]
    names = {plain_name(name) for row in rows for name in row}
    if names & set(ROLES["text"].known) and first.name not in METADATA:
        return False
    values = [[row[name] for row in rows if row.get(name)] for name in (rows[0] if rows else ())]
    return bool(names & ROLLS) or any(column and all(map(is_picture, column)) for column in values)


def are_numbers(found: Sequence[Example], name: str) -> bool:
    """Whether a role of all examples is filled by numbers."""
    return all(name in example and is_number(example[name]) for example in found)
