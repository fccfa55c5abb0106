"""Infer the modality of data before a task is chosen: images or texts, numbers or words."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data.example import ROLES, Example
from saccade.data.read import idx
from saccade.data.read.base import ReadRequest, Record, normalize_column_name
from saccade.data.read.class_folders import METADATA_FILES
from saccade.data.read.formats import find_format
from saccade.data.read.header import is_number
from saccade.data.read.image_files import SUFFIXES, is_image
from saccade.data.read.open_text import open_source
from saccade.data.splits import find_split_files

MAX_RECORDS_SAMPLED = 20  # records that are searched for paths of images
IMAGE_COLUMNS = {"image", "file_name", "filename", "img", "picture"}  # column names that always mean images


def has_images(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> bool:
    """Whether the data are images: idx files, folders of images, or a table with a column of image paths.

    A table with both a text and an image column counts as text unless `columns` names the image; metadata.csv beside a folder of
    images, the `imagefolder` format of Hugging Face datasets, always describes images.
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
    """Whether a role has a number as its value in all examples."""
    return all(name in example and is_number(example[name]) for example in examples)
