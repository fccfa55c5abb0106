"""SentencePiece's own format, which is protocol buffers: written for pieces that come without it, and read field by field."""

import re
import struct
from collections.abc import Iterator
from typing import Any

from saccade.errors import ModelError
from saccade.text.files import TOKENS

# What a piece is, in sentencepiece_model.proto.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
RAW_BYTES = [chr(byte).encode() for byte in range(256)]  # how older versions of llama2.c write the bytes


def field(number: int, value: bytes | float | int) -> bytes:
    """One field: bytes with their length, a float in four bytes, a number in groups of seven bits.

    >>> field(1, b"ab").hex(" "), field(3, 300).hex(" ")
    ('0a 02 61 62', '18 ac 02')
    """
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    return _varint(number << 3) + _varint(value)


def model(pieces: list[tuple[bytes, float, int]]) -> bytes:
    """A BPE model that merges by score and falls back to bytes: (text, score, kind) of each piece, in the order of ids."""
    listed = [field(1, field(1, text) + field(2, score) + field(3, kind)) for text, score, kind in pieces]
    trainer = field(3, BPE) + field(4, len(pieces)) + field(35, 1)  # model type, vocabulary, byte fallback
    # the text as it is, with a space in front, inner spaces kept and written as ▁
    normalizer = field(1, b"identity") + field(3, 1) + field(4, 0) + field(5, 1)
    return b"".join(listed) + field(2, trainer) + field(3, normalizer)


def llama2c_model(content: bytes, where: str) -> bytes:
    """llama2.c's file as a SentencePiece model: u32 longest piece, then float32 score, int32 length and bytes of each piece."""
    pieces: list[tuple[bytes, float]] = []
    place = 4
    while place < len(content):
        if place + 8 > len(content):
            raise ModelError(f"{where} ends inside piece {len(pieces)}, at byte {len(content)}; the file is not whole.")
        score, length = struct.unpack_from("<fi", content, place)
        place += 8 + max(length, 0)
        if not 0 < length <= 1024 or place > len(content) or len(pieces) >= TOKENS:
            raise ModelError(
                f"{where}: piece {len(pieces)} has a length of {length} at byte {place}; is this llama2.c's format?"
            )
        pieces.append((content[place - length : place], score))
    if len(pieces) < 3 + 256:
        raise ModelError(f"{where} has {len(pieces)} pieces; three special ones and 256 bytes are needed at least.")
    raw = [text for text, _ in pieces[3 : 3 + 256]] == RAW_BYTES
    return model([_piece(id, text, score, raw) for id, (text, score) in enumerate(pieces)])


def _piece(id: int, text: bytes, score: float, raw: bool) -> tuple[bytes, float, int]:
    """The first three are unknown, begin and end, spelled with line feeds around them; ▁ was written as a space.

    The 256 bytes follow; `raw` ones are written as the characters of their numbers, where newer files write <0x0A>.
    """
    if raw and 3 <= id < 3 + 256:
        return f"<0x{id - 3:02X}>".encode(), score, BYTE
    if id < 3:
        return (b"<unk>", b"<s>", b"</s>")[id], score, UNKNOWN if id == 0 else CONTROL
    if re.fullmatch(rb"<0x[0-9A-F]{2}>", text):
        return text, score, BYTE
    return text.replace(b" ", "▁".encode()), score, NORMAL


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def read_fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of one message, in order: (number, value), as `field` writes them.

    >>> list(read_fields(field(1, b"ab") + field(2, 0.5) + field(3, 300)))
    [(1, b'ab'), (2, 0.5), (3, 300)]
    """
    place = 0
    while place < len(content):
        key, place = _read_varint(content, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _read_varint(content, place)
        elif wire == 2:
            size, place = _read_varint(content, place)
            value, place = content[place : place + size], place + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, place = struct.unpack_from("<d" if wire == 1 else "<f", content, place)[0], place + size
        else:
            raise ModelError(f"A field of the wire type {wire} is not read here.")
        yield number, value


def _read_varint(content: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[place]
        number, shift, place = number | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return number, place
