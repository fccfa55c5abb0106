"""Validates the header of a safetensors file before the library reads it: all sizes are checked against the size of the file.

Format: the header length (8 bytes), the header as JSON, the bytes of the tensors: https://github.com/huggingface/safetensors.
"""

import os
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.text.loading.safe_files import abbreviate, parse_json

MAX_HEADER_BYTES = 2**24  # a tensor takes about a hundred bytes
MAX_TENSORS = 100_000
MAX_NAME_CHARACTERS = 500
MAX_AXES = 16
MIN_SPARSE_CHECK_BYTES = 2**30  # file size from which sparse files are detected
MAX_SPARSE_FRACTION = 0.9  # fraction of a file that may be holes, which were never written
MAX_HOLES = 10_000  # that are examined
DTYPE_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file, with the offsets of its bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def is_pickle(path: Path) -> bool:
    """Whether the content is a zip archive, as torch writes it, or a bare pickle."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return False
    return start[:2] == b"PK" or (len(start) > 1 and start[0] == 0x80 and start[1] in range(2, 6))


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of a file by name; raises ModelError unless their sizes match their shapes and fill the file."""
    if is_pickle(path):
        raise ModelError(
            f"{path}: a pickle with another suffix; it was not loaded, since loading a pickle can run code."
        )
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        if len(first) < 8:
            raise ModelError(
                f"{path}: {size} bytes are too few for a safetensors file, which starts with 8 bytes for the header length."
            )
        _check_holes(path, file.fileno(), size)
        (length,) = struct.unpack("<Q", first)
        if not 1 < length <= min(size - 8, MAX_HEADER_BYTES):
            raise ModelError(
                f"{path}: incomplete or damaged safetensors file: a header of {length:,} bytes in a file of {size:,} "
                f"(the limit is {MAX_HEADER_BYTES:,})."
            )
        content = file.read(length)
    if content.count(b"data_offsets") > MAX_TENSORS:  # checked before parsing
        raise ModelError(f"{path}: {content.count(b'data_offsets'):,} tensors; at most {MAX_TENSORS:,} are supported.")
    try:
        entries = parse_json(content.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: the header is not UTF-8 ({error.reason} at byte {error.start}).") from None
    if not isinstance(entries, dict):
        raise ModelError(f"{path}: the header is a JSON {type(entries).__name__}; an object is needed.")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ModelError(f"{path}: the __metadata__ of the header must be a table of strings.")
    tensors = {name: _parse_entry(path, name, entry) for name, entry in entries.items()}
    _check_contiguous(path, tensors, size - 8 - length)
    return tensors


def _check_holes(path: Path, handle: int, size: int) -> None:
    """Raise ModelError for a large sparse file, such as an interrupted download that had reserved its space."""
    if size < MIN_SPARSE_CHECK_BYTES or not hasattr(os, "SEEK_DATA"):
        return
    written, offset = 0, 0
    try:
        for _ in range(MAX_HOLES):
            start = os.lseek(handle, offset, os.SEEK_DATA)
            offset = os.lseek(handle, start, os.SEEK_HOLE)
            written += offset - start
    except OSError:  # no data after the last hole, or not supported by the file system
        pass
    os.lseek(handle, 8, os.SEEK_SET)
    if offset and written < (1 - MAX_SPARSE_FRACTION) * size:
        raise ModelError(
            f"{path}: only {written / 1e9:,.3f} GB of {size / 1e9:,.1f} GB were written; "
            "the download is incomplete, or the file is damaged."
        )


def _parse_entry(path: Path, name: str, entry: Any) -> TensorEntry:
    """Parse and check the entry of a tensor."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        raise ModelError(
            f"{path}: {abbreviate(name)} is not a valid tensor name; needed are 1 to {MAX_NAME_CHARACTERS} printable characters."
        )
    where = f"{path}: tensor {name}"
    if not isinstance(entry, dict):
        raise ModelError(f"{where} is {abbreviate(entry)}; dtype, shape and data_offsets are needed.")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise ModelError(f"{where} has the dtype {abbreviate(dtype)}; known are {', '.join(DTYPE_BYTES)}.")
    if not _are_sizes(shape) or len(shape) > MAX_AXES:
        raise ModelError(
            f"{where} has the shape {abbreviate(shape)}; needed are up to {MAX_AXES} whole numbers, 0 or more."
        )
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelError(f"{where} has the data_offsets {abbreviate(offsets)}; start and end are needed.")
    needed = prod(shape) * DTYPE_BYTES[dtype]  # Python ints do not overflow
    if needed != offsets[1] - offsets[0]:
        raise ModelError(
            f"{where}: its shape {abbreviate(shape)} of {dtype} does not match its data_offsets {abbreviate(offsets)}."
        )
    return TensorEntry(dtype, tuple(shape), *offsets)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(x) is int and x >= 0 for x in value)


def _check_contiguous(path: Path, tensors: dict[str, TensorEntry], size: int) -> None:
    """Check that the tensors fill the file without gaps or overlaps."""
    offset = 0
    for name, entry in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != offset:
            raise ModelError(
                f"{path}: the offsets of {abbreviate(name)} start at {entry.start:,} instead of {offset:,}."
            )
        offset = entry.end
    if offset != size:
        raise ModelError(
            f"{path}: incomplete or damaged safetensors file: the offsets end at {offset:,}, the tensors at {size:,}."
        )
