"""The header of a safetensors file, read by us before the library reads it: nothing in it is believed beyond the file's size.

A file is a length (8 bytes), that much JSON, and the bytes of the tensors: https://github.com/huggingface/safetensors.
"""

import os
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.text.loading.safe_files import abbreviate, parse_json

MAX_HEADER_BYTES = 2**24  # bytes; a tensor takes about a hundred
MAX_TENSORS = 100_000
MAX_NAME_CHARACTERS = 500  # characters
MAX_AXES = 16
MIN_HOLE_CHECK_BYTES, MAX_HOLE_FRACTION = (
    2**30,
    0.9,
)  # bytes of a file of which a share that was never written is an error
MAX_HOLES = 10_000  # looked at; a file may have any number
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
    """One tensor of a file: where its bytes begin and end, behind the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def is_pickle(path: Path) -> bool:
    """Told by content, not by name: a zip archive as torch writes it, or a bare pickle."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return False
    return start[:2] == b"PK" or (len(start) > 1 and start[0] == 0x80 and start[1] in range(2, 6))


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of a file by name: each has the bytes that its shape needs, and together they are the file."""
    if is_pickle(path):
        raise ModelError(f"{path}: is a pickle under another name; it is not read, for reading it can run code.")
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        if len(first) < 8:
            raise ModelError(f"{path}: {size} bytes are no safetensors file; it begins with 8 bytes for its header.")
        _check_holes(path, file.fileno(), size)
        (length,) = struct.unpack("<Q", first)
        if not 1 < length <= min(size - 8, MAX_HEADER_BYTES):
            raise ModelError(
                f"{path}: not a whole safetensors file: a header of {length:,} bytes in a file of {size:,} "
                f"(at most {MAX_HEADER_BYTES:,} are read)."
            )
        content = file.read(length)
    if content.count(b"data_offsets") > MAX_TENSORS:  # known before they are parsed
        raise ModelError(f"{path}: {content.count(b'data_offsets'):,} tensors; at most {MAX_TENSORS:,} are read.")
    try:
        entries = parse_json(content.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: the header is not UTF-8 ({error.reason} at byte {error.start}).") from None
    if not isinstance(entries, dict):
        raise ModelError(f"{path}: the header is a JSON {type(entries).__name__}; an object is needed.")
    said = entries.pop("__metadata__", {})
    if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
        raise ModelError(f"{path}: the metadata of the header is not a table of texts.")
    found = {name: _parse_entry(path, name, entry) for name, entry in entries.items()}
    _check_contiguous(path, found, size - 8 - length)
    return found


def _check_holes(path: Path, handle: int, size: int) -> None:
    """Refuse a large file that is nearly all holes, as a download leaves behind that reserved its space and was broken off."""
    if size < MIN_HOLE_CHECK_BYTES or not hasattr(os, "SEEK_DATA"):
        return
    written, place = 0, 0
    try:
        for _ in range(MAX_HOLES):
            start = os.lseek(handle, place, os.SEEK_DATA)
            place = os.lseek(handle, start, os.SEEK_HOLE)
            written += place - start
    except OSError:  # no data behind the last hole, or a file system that does not tell
        pass
    os.lseek(handle, 8, os.SEEK_SET)
    if place and written < (1 - MAX_HOLE_FRACTION) * size:
        raise ModelError(
            f"{path}: claims {size / 1e9:,.1f} GB, of which {written / 1e9:,.3f} GB were ever written; "
            "the download is incomplete, or the file is damaged."
        )


def _parse_entry(path: Path, name: str, entry: Any) -> TensorEntry:
    """One line of the header, if it holds together."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        raise ModelError(
            f"{path}: {abbreviate(name)} is no name of a tensor; it has 1 to {MAX_NAME_CHARACTERS} characters that can be "
            "printed."
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
            f"{where} has the shape {abbreviate(shape)}; up to {MAX_AXES} whole numbers from 0 are needed."
        )
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelError(f"{where} has the data_offsets {abbreviate(offsets)}; a beginning and an end are needed.")
    needed = prod(shape) * DTYPE_BYTES[dtype]  # Python's numbers do not overflow
    if needed != offsets[1] - offsets[0]:
        raise ModelError(
            f"{where}: its shape {abbreviate(shape)} of {dtype} does not fill the bytes of its data_offsets "
            f"{abbreviate(offsets)}."
        )
    return TensorEntry(dtype, tuple(shape), *offsets)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(x) is int and x >= 0 for x in value)


def _check_contiguous(path: Path, found: dict[str, TensorEntry], size: int) -> None:
    """The tensors lie one behind the other, without a gap, from the first byte to the last."""
    place = 0
    for name, one in sorted(found.items(), key=lambda item: (item[1].start, item[1].end)):
        if one.start != place:
            raise ModelError(f"{path}: the offsets of {abbreviate(name)} begin at {one.start:,} and not at {place:,}.")
        place = one.end
    if place != size:
        raise ModelError(
            f"{path}: not a whole safetensors file: the offsets end at {place:,}, and {size:,} bytes of tensors are there."
        )
