"""Reads Marian's .bin files: named tensors in float32 or int8, and the training settings of the model.

Layout: two numbers (version, number of items), four per item (name length, type, rank, byte count), names, shapes, padding, data.
Every size is checked against the size of the file before it is used; the settings are parsed line by line.
"""

import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.errors import ModelError
from saccade.text import TEMPLATES, Tokenizer
from saccade.text.backends.sentencepiece_model import SentencePieceBackend, SentencePieceModel, open_sentencepiece
from saccade.text.loading.safe_files import read_bytes

VERSION = struct.pack("<Q", 1)  # first bytes; a llama2.c file cannot start with them, since its second number is not 0
ITEM_STRUCT = struct.Struct("<4Q")
FLOAT32, INT8, INTGEMM8 = 0x404, 0x101, 0x4101
SETTINGS_NAME = "special:model.yml"
MAX_AXES = 8  # Marian's matrices have two
MAX_NAME_BYTES = 1_000
MAX_ITEMS = 100_000  # a student model has a few hundred

Settings = dict[str, str]


@dataclass(frozen=True)
class Item:
    """An entry of the table of items."""

    name: str
    type_code: int
    shape: tuple[int, ...]
    byte_count: int

    @property
    def numel(self) -> int:
        """Number of elements, as a Python int, since a damaged shape could overflow."""
        return math.prod(self.shape)


class ByteReader:
    """A cursor in a file that raises ModelError at its end."""

    path: Path
    offset: int

    def __init__(self, path: Path):
        self.path, self.offset = path, 0
        self.content = np.memmap(path, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)

    def read(self, count: int, description: str) -> np.ndarray:
        """The next bytes, without a copy."""
        remaining = len(self.content) - self.offset
        if count > remaining:
            raise ModelError(
                f"{self.path}: {description} needs {count:,} bytes at byte {self.offset:,}, but {remaining:,} are left; "
                "the file is damaged or truncated."
            )
        self.offset += count
        return self.content[self.offset - count : self.offset]

    def read_uint64(self, description: str) -> int:
        return int.from_bytes(self.read(8, description).tobytes(), "little")


def is_marian_bin(path: str | Path) -> bool:
    """Whether this is a Marian .bin file, by its first bytes."""
    with Path(path).open("rb") as file:
        return file.read(len(VERSION)) == VERSION


def read_marian_bin(path: str | Path) -> tuple[Settings, dict[str, Tensor]]:
    """Read settings and tensors, with Marian's names and shapes; int8 is dequantized to float32."""
    cursor = ByteReader(Path(path))
    settings, tensors = None, {}
    for item in _read_items(cursor):
        data = cursor.read(item.byte_count, f"the data of {item.name}")
        if item.name == SETTINGS_NAME:
            settings = _parse_settings(data.tobytes(), cursor.path)
        else:
            tensors[item.name] = _decode_tensor(item, data, cursor.path)
    if settings is None:
        raise ModelError(f"{path}: has no {SETTINGS_NAME}, so its architecture is unknown; convert it with Marian.")
    return settings, tensors


def _read_items(cursor: ByteReader) -> list[Item]:
    """Read the table of items; leaves the cursor at the start of the data."""
    if cursor.read(8, "the version").tobytes() != VERSION:
        raise ModelError(f"{cursor.path}: not a Marian .bin file of version 1.")
    count = cursor.read_uint64("the number of items")
    table = cursor.read(count * ITEM_STRUCT.size, f"a table of {count:,} items")
    if count > MAX_ITEMS:
        raise ModelError(f"{cursor.path}: has {count:,} items; at most {MAX_ITEMS:,} are supported.")
    rows = list(ITEM_STRUCT.iter_unpack(table.tobytes()))
    names = [_read_name(cursor, length) for length, *_ in rows]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{cursor.path}: the tensor {name[:60]} occurs twice; the file is damaged.")
        seen.add(name)
    items = [
        Item(name, row[1], _read_shape(cursor, name, row[2]), row[3]) for name, row in zip(names, rows, strict=True)
    ]
    cursor.read(cursor.read_uint64("the padding"), "the padding")
    return items


def _read_name(cursor: ByteReader, length: int) -> str:
    if not 1 < length <= MAX_NAME_BYTES:
        raise ModelError(
            f"{cursor.path}: a name has {length:,} bytes; expected from 2 to {MAX_NAME_BYTES:,}, with a final zero."
        )
    raw = cursor.read(length, "a name").tobytes()
    name = raw[:-1].decode("ascii", errors="replace")
    if raw[-1] or not name.isprintable() or not name.isascii():
        raise ModelError(
            f"{cursor.path}: {raw[:40]!r} is not a valid name; printable ASCII with a final zero is needed."
        )
    return name


def _read_shape(cursor: ByteReader, name: str, rank: int) -> tuple[int, ...]:
    if not 1 <= rank <= MAX_AXES:
        raise ModelError(f"{cursor.path}: {name} has {rank:,} axes; expected from 1 to {MAX_AXES}.")
    shape = struct.unpack(f"<{rank}i", cursor.read(4 * rank, f"the shape of {name}").tobytes())
    if min(shape) < 1:
        raise ModelError(f"{cursor.path}: {name} has the shape {shape}; sizes must be positive.")
    return shape


def _decode_tensor(item: Item, data: np.ndarray, path: Path) -> Tensor:
    """The data of an item as a float32 tensor."""
    if item.type_code not in (FLOAT32, INTGEMM8):
        raise ModelError(
            f"{path}: {item.name} has type {item.type_code:#x}; supported are float32 ({FLOAT32:#x}) and intgemm8 "
            f"({INTGEMM8:#x}). Other types are specific to one CPU; convert the model with `marian-conv --gemm-type intgemm8`."
        )
    needed = 4 * item.numel if item.type_code == FLOAT32 else item.numel + 4
    if item.byte_count < needed:
        raise ModelError(
            f"{path}: {item.name} has the shape {item.shape}, which needs {needed:,} bytes, but has {item.byte_count:,}; "
            "the file is damaged."
        )
    if item.type_code == FLOAT32:
        return torch.from_numpy(data[:needed].view("<f4").reshape(item.shape).astype(np.float32))
    scale = float(data[item.numel : needed].view("<f4")[0])  # the quantization scale follows the weights
    if not 1e-30 < scale < math.inf:
        raise ModelError(f"{path}: {item.name} has the scale {scale}; it must be positive. The file is damaged.")
    flat = torch.from_numpy(data[: item.numel].view(np.int8).astype(np.float32) / np.float32(scale))
    # matrices are stored column by column, embeddings row by row
    return flat.view(item.shape) if "Wemb" in item.name else flat.view(item.shape[::-1]).T


def _parse_settings(raw: bytes, path: Path) -> Settings:
    """Parse the subset of YAML that Marian writes: lines `key: value`, and lists of lines `- value`, joined by spaces."""
    try:
        lines = raw.rstrip(b"\0").decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{path}: {SETTINGS_NAME} is not UTF-8 text ({error.reason} at byte {error.start})."
        ) from error
    settings: Settings = {}
    key = ""
    for line in lines:
        item, pair = re.fullmatch(r"\s*- (.*)", line), re.fullmatch(r"([\w-]+):(.*)", line)
        if item and key:
            settings[key] = f"{settings[key]} {item[1].strip()}".strip()
        elif pair:
            key = pair[1]
            settings[key] = pair[2].strip().strip("[]\"'").replace(",", " ")
    return settings


def read_vocab(path: str | Path) -> Tokenizer:
    """Read the SentencePiece model of a student as its tokenizer, which is saved as `source.spm`."""
    content = read_bytes(Path(path))
    processor = open_sentencepiece(content, str(path))
    ids = {"eos": processor.eos_id(), "unk": processor.unk_id()}
    names = {role: processor.id_to_piece(id) for role, id in ids.items() if id >= 0}
    config = {"tokenizer_class": "MarianTokenizer"}
    source = SentencePieceModel(processor, str(path), config=config, files={"source.spm": content})
    backend = SentencePieceBackend(source, TEMPLATES["marian"], names, {})
    return Tokenizer(backend, {role: backend.special_tokens[name] for role, name in backend.role_tokens.items()})
