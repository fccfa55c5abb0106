"""Marian's own file: named tensors in float32 or int8, and the settings that the model was trained with.

Two numbers (version, items), four for each item (length of its name, kind, rank, bytes), the names, the shapes, padding, and
the data. Every size is compared with the file before anything is made of it; the settings are read line by line.
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

VERSION = struct.pack("<Q", 1)  # what the file begins with; llama2.c's cannot, since no model has an inner width of 0
ITEM_STRUCT = struct.Struct("<4Q")
FLOAT32, INT8, INTGEMM8 = 0x404, 0x101, 0x4101
SETTINGS_NAME = "special:model.yml"
MAX_AXES = 8  # Marian's own matrices have two axes; more than this is no shape
MAX_NAME_BYTES = 1_000  # bytes
MAX_ITEMS = 100_000  # a student has a few hundred

Settings = dict[str, str]


@dataclass(frozen=True)
class Item:
    """One entry: how many bytes of data belong to it, and what they are."""

    name: str
    type_code: int
    shape: tuple[int, ...]
    byte_count: int

    @property
    def numel(self) -> int:
        """Numbers in the tensor, as a Python int: a shape may lie."""
        return math.prod(self.shape)


class ByteReader:
    """A place in a file that never goes past its end."""

    def __init__(self, path: Path):
        self.path, self.offset = path, 0
        self.content = np.memmap(path, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)

    def read(self, count: int, description: str) -> np.ndarray:
        """The next bytes, which are not copied."""
        left = len(self.content) - self.offset
        if count > left:
            raise ModelError(
                f"{self.path}: {description} should take {count:,} bytes from byte {self.offset:,} on, and {left:,} are left; "
                "the file is damaged or cut short."
            )
        self.offset += count
        return self.content[self.offset - count : self.offset]

    def read_uint64(self, description: str) -> int:
        return int.from_bytes(self.read(8, description).tobytes(), "little")


def is_marian_bin(path: str | Path) -> bool:
    """Told by content, not by name."""
    with Path(path).open("rb") as file:
        return file.read(len(VERSION)) == VERSION


def read_marian_bin(path: str | Path) -> tuple[Settings, dict[str, Tensor]]:
    """The settings and the tensors of a file, in Marian's names and shapes; int8 comes out as the float32 it stands for."""
    cursor = ByteReader(Path(path))
    settings, tensors = None, {}
    for item in _read_items(cursor):
        data = cursor.read(item.byte_count, f"the data of {item.name}")
        if item.name == SETTINGS_NAME:
            settings = _parse_settings(data.tobytes(), cursor.path)
        else:
            tensors[item.name] = _decode_tensor(item, data, cursor.path)
    if settings is None:
        raise ModelError(
            f"{path}: has no {SETTINGS_NAME}, so how the model is built is not known; convert it with Marian."
        )
    return settings, tensors


def _read_items(cursor: ByteReader) -> list[Item]:
    """The table in front; afterwards the cursor stands where the data begins."""
    if cursor.read(8, "the version").tobytes() != VERSION:
        raise ModelError(f"{cursor.path}: does not begin with version 1, as Marian's binary files do.")
    count = cursor.read_uint64("the number of items")
    table = cursor.read(count * ITEM_STRUCT.size, f"a table of {count:,} items")
    if count > MAX_ITEMS:
        raise ModelError(f"{cursor.path}: a table of {count:,} items; at most {MAX_ITEMS:,} are read.")
    rows = list(ITEM_STRUCT.iter_unpack(table.tobytes()))
    names = [_read_name(cursor, length) for length, *_ in rows]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{cursor.path}: the tensor {name[:60]} stands there twice; the file is damaged.")
        seen.add(name)
    items = [
        Item(name, row[1], _read_shape(cursor, name, row[2]), row[3]) for name, row in zip(names, rows, strict=True)
    ]
    cursor.read(cursor.read_uint64("the padding"), "the padding")
    return items


def _read_name(cursor: ByteReader, length: int) -> str:
    if not 1 < length <= MAX_NAME_BYTES:
        raise ModelError(
            f"{cursor.path}: a name of {length:,} bytes; names have from 1 to {MAX_NAME_BYTES:,} and a zero."
        )
    raw = cursor.read(length, "a name").tobytes()
    name = raw[:-1].decode("ascii", errors="replace")
    if raw[-1] or not name.isprintable() or not name.isascii():
        raise ModelError(f"{cursor.path}: {raw[:40]!r} is no name; plain letters and a zero at the end are needed.")
    return name


def _read_shape(cursor: ByteReader, name: str, rank: int) -> tuple[int, ...]:
    if not 1 <= rank <= MAX_AXES:
        raise ModelError(f"{cursor.path}: {name} has {rank:,} axes; from 1 to {MAX_AXES} make sense.")
    shape = struct.unpack(f"<{rank}i", cursor.read(4 * rank, f"the shape of {name}").tobytes())
    if min(shape) < 1:
        raise ModelError(f"{cursor.path}: {name} has the shape {shape}, and sizes are positive.")
    return shape


def _decode_tensor(item: Item, data: np.ndarray, path: Path) -> Tensor:
    """The numbers of an item as float32."""
    if item.type_code not in (FLOAT32, INTGEMM8):
        raise ModelError(
            f"{path}: {item.name} is of kind {item.type_code:#x}; float32 ({FLOAT32:#x}) and intgemm8 ({INTGEMM8:#x}) are read. "
            "Other kinds are laid out for one processor; convert the model with `marian-conv --gemm-type intgemm8`."
        )
    needed = 4 * item.numel if item.type_code == FLOAT32 else item.numel + 4
    if item.byte_count < needed:
        raise ModelError(
            f"{path}: {item.name} has the shape {item.shape}, which takes {needed:,} bytes, and {item.byte_count:,} are its own; "
            "the file is damaged."
        )
    if item.type_code == FLOAT32:
        return torch.from_numpy(data[:needed].view("<f4").reshape(item.shape).astype(np.float32))
    scale = float(data[item.numel : needed].view("<f4")[0])  # what the weights were multiplied by stands after them
    if not 1e-30 < scale < math.inf:
        raise ModelError(
            f"{path}: {item.name} was scaled by {scale}; a positive number is needed. The file is damaged."
        )
    whole = data[: item.numel].view(np.int8).astype(np.float32) / np.float32(scale)
    # matrices lie column by column, as the product wants them; a table of words is looked up, so it lies row by row
    flat = torch.from_numpy(whole)
    return flat.view(item.shape) if "Wemb" in item.name else flat.view(item.shape[::-1]).T


def _parse_settings(raw: bytes, path: Path) -> Settings:
    """The lines `key: value`, and under a key the lines `- value` joined by spaces: all of YAML that Marian writes here."""
    try:
        lines = raw.rstrip(b"\0").decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{path}: {SETTINGS_NAME} is not UTF-8 text ({error.reason} at byte {error.start})."
        ) from error
    found: Settings = {}
    key = ""
    for line in lines:
        item, pair = re.fullmatch(r"\s*- (.*)", line), re.fullmatch(r"([\w-]+):(.*)", line)
        if item and key:
            found[key] = f"{found[key]} {item[1].strip()}".strip()
        elif pair:
            key = pair[1]
            found[key] = pair[2].strip().strip("[]\"'").replace(",", " ")
    return found


def read_vocab(path: str | Path) -> Tokenizer:
    """The SentencePiece model beside a student as its tokenizer; saved, it is a `source.spm`."""
    content = read_bytes(Path(path))
    processor = open_sentencepiece(content, str(path))
    own = {"eos": processor.eos_id(), "unk": processor.unk_id()}
    names = {role: processor.id_to_piece(id) for role, id in own.items() if id >= 0}
    config = {"tokenizer_class": "MarianTokenizer"}
    source = SentencePieceModel(processor, str(path), config=config, files={"source.spm": content})
    engine = SentencePieceBackend(source, TEMPLATES["marian"], names, {})
    return Tokenizer(engine, {role: engine.special_tokens[name] for role, name in engine.role_tokens.items()})
