"""SentencePiece's own format, which is protocol buffers: written for pieces that come without it, and read field by field."""

import re
import struct
from collections.abc import Iterator
from typing import Any

from saccade.errors import ModelError
from saccade.text.loading.safe_files import MAX_VOCAB

# What a piece is, in sentencepiece_model.proto.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
RAW_BYTES = [chr(byte).encode() for byte in range(256)]  # how older versions of llama2.c write the bytes


def encode_field(number: int, value: bytes | float | int) -> bytes:
    """One field: bytes with their length, a float in four bytes, a number in groups of seven bits.

    >>> encode_field(1, b"ab").hex(" "), encode_field(3, 300).hex(" ")
    ('0a 02 61 62', '18 ac 02')
    """
    if isinstance(value, bytes):
        return _encode_varint(number << 3 | 2) + _encode_varint(len(value)) + value
    if isinstance(value, float):
        return _encode_varint(number << 3 | 5) + struct.pack("<f", value)
    return _encode_varint(number << 3) + _encode_varint(value)


def encode_model(pieces: list[tuple[bytes, float, int]]) -> bytes:
    """A BPE model that merges by score and falls back to bytes: (text, score, kind) of each piece, in the order of ids."""
    listed = [
        encode_field(1, encode_field(1, text) + encode_field(2, score) + encode_field(3, kind))
        for text, score, kind in pieces
    ]
    trainer = (
        encode_field(3, BPE) + encode_field(4, len(pieces)) + encode_field(35, 1)
    )  # model type, vocabulary, byte fallback
    # the text as it is, with a space in front, inner spaces kept and written as ▁
    normalizer = encode_field(1, b"identity") + encode_field(3, 1) + encode_field(4, 0) + encode_field(5, 1)
    return b"".join(listed) + encode_field(2, trainer) + encode_field(3, normalizer)


def llama2c_to_sentencepiece(content: bytes, where: str) -> bytes:
    """llama2.c's file as a SentencePiece model: u32 longest piece, then float32 score, int32 length and bytes of each piece."""
    pieces: list[tuple[bytes, float]] = []
    place = 4
    while place < len(content):
        if place + 8 > len(content):
            raise ModelError(f"{where} ends inside piece {len(pieces)}, at byte {len(content)}; the file is not whole.")
        score, length = struct.unpack_from("<fi", content, place)
        place += 8 + max(length, 0)
        if not 0 < length <= 1024 or place > len(content) or len(pieces) >= MAX_VOCAB:
            raise ModelError(
                f"{where}: piece {len(pieces)} has a length of {length} at byte {place}; is this llama2.c's format?"
            )
        pieces.append((content[place - length : place], score))
    if len(pieces) < 3 + 256:
        raise ModelError(f"{where} has {len(pieces)} pieces; three special ones and 256 bytes are needed at least.")
    raw = [text for text, _ in pieces[3 : 3 + 256]] == RAW_BYTES
    return encode_model([_convert_piece(id, text, score, raw) for id, (text, score) in enumerate(pieces)])


def _convert_piece(id: int, text: bytes, score: float, has_raw_bytes: bool) -> tuple[bytes, float, int]:
    """The first three are unknown, begin and end, spelled with line feeds around them; ▁ was written as a space.

    The 256 bytes follow; `raw` ones are written as the characters of their numbers, where newer files write <0x0A>.
    """
    if has_raw_bytes and 3 <= id < 3 + 256:
        return f"<0x{id - 3:02X}>".encode(), score, BYTE
    if id < 3:
        return (b"<unk>", b"<s>", b"</s>")[id], score, UNKNOWN if id == 0 else CONTROL
    if re.fullmatch(rb"<0x[0-9A-F]{2}>", text):
        return text, score, BYTE
    return text.replace(b" ", "▁".encode()), score, NORMAL


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def decode_fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of one message, in order: (number, value), as `field` writes them.

    >>> list(decode_fields(encode_field(1, b"ab") + encode_field(2, 0.5) + encode_field(3, 300)))
    [(1, b'ab'), (2, 0.5), (3, 300)]
    """
    place = 0
    while place < len(content):
        key, place = _decode_varint(content, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _decode_varint(content, place)
        elif wire == 2:
            size, place = _decode_varint(content, place)
            value, place = content[place : place + size], place + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, place = struct.unpack_from("<d" if wire == 1 else "<f", content, place)[0], place + size
        else:
            raise ModelError(f"A field of the wire type {wire} is not read here.")
        yield number, value


def _decode_varint(content: bytes, offset: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[offset]
        number, shift, offset = number | (byte & 127) << shift, shift + 7, offset + 1
        if byte < 128:
            return number, offset
