"""SentencePiece's model format (protocol buffers): write a model for pieces from other formats, and read its fields."""

import re
import struct
from collections.abc import Iterator
from typing import Any

from saccade.errors import ModelError
from saccade.text.loading.safe_files import MAX_VOCAB

# The types of pieces and of models in sentencepiece_model.proto.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
RAW_BYTES = [chr(byte).encode() for byte in range(256)]  # the byte pieces of older versions of llama2.c


def encode_field(number: int, value: bytes | float | int) -> bytes:
    """Encode one field: bytes with their length, a float in four bytes, an integer as a varint.

    >>> encode_field(1, b"ab").hex(" "), encode_field(3, 300).hex(" ")
    ('0a 02 61 62', '18 ac 02')
    """
    if isinstance(value, bytes):
        return _encode_varint(number << 3 | 2) + _encode_varint(len(value)) + value
    if isinstance(value, float):
        return _encode_varint(number << 3 | 5) + struct.pack("<f", value)
    return _encode_varint(number << 3) + _encode_varint(value)


def encode_model(pieces: list[tuple[bytes, float, int]]) -> bytes:
    """Encode a BPE model with byte fallback from the (text, score, type) of each piece, in the order of ids."""
    encoded_pieces = [
        encode_field(1, encode_field(1, text) + encode_field(2, score) + encode_field(3, kind))
        for text, score, kind in pieces
    ]
    # model type, vocabulary size, byte fallback
    trainer = encode_field(3, BPE) + encode_field(4, len(pieces)) + encode_field(35, 1)
    # no normalization, a space before the text, inner spaces kept and written as ▁
    normalizer = encode_field(1, b"identity") + encode_field(3, 1) + encode_field(4, 0) + encode_field(5, 1)
    return b"".join(encoded_pieces) + encode_field(2, trainer) + encode_field(3, normalizer)


def llama2c_to_sentencepiece(content: bytes, where: str) -> bytes:
    """Convert llama2.c's file to a SentencePiece model.

    The file is a uint32, the length of the longest piece, then a float32 score, an int32 length and the bytes of each piece.
    """
    pieces: list[tuple[bytes, float]] = []
    offset = 4
    while offset < len(content):
        if offset + 8 > len(content):
            raise ModelError(
                f"{where} is incomplete: it ends inside piece {len(pieces)}, at byte {len(content)}. Copy it again."
            )
        score, length = struct.unpack_from("<fi", content, offset)
        offset += 8 + max(length, 0)
        if not 0 < length <= 1024 or offset > len(content) or len(pieces) >= MAX_VOCAB:
            raise ModelError(
                f"{where}: piece {len(pieces)} has a length of {length} at byte {offset}; is this llama2.c's format?"
            )
        pieces.append((content[offset - length : offset], score))
    if len(pieces) < 3 + 256:
        raise ModelError(
            f"{where} has {len(pieces)} pieces; at least 259 are needed, three special ones and 256 bytes. "
            "Is this llama2.c's format?"
        )
    raw = [text for text, _ in pieces[3 : 3 + 256]] == RAW_BYTES
    return encode_model([_convert_piece(id, text, score, raw) for id, (text, score) in enumerate(pieces)])


def _convert_piece(id: int, text: bytes, score: float, has_raw_bytes: bool) -> tuple[bytes, float, int]:
    """One piece of llama2.c's file as (text, score, type) of SentencePiece.

    The first three pieces are unknown, BOS and EOS, with line feeds around their names. The 256 bytes follow, as the characters
    with these code points in older files (`has_raw_bytes`) and as <0x0A> in newer ones. A space stands for ▁.
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
    """The fields of one message in order, as (number, value); the inverse of `encode_field`.

    >>> list(decode_fields(encode_field(1, b"ab") + encode_field(2, 0.5) + encode_field(3, 300)))
    [(1, b'ab'), (2, 0.5), (3, 300)]
    """
    offset = 0
    while offset < len(content):
        key, offset = _decode_varint(content, offset)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, offset = _decode_varint(content, offset)
        elif wire_type == 2:
            size, offset = _decode_varint(content, offset)
            value, offset = content[offset : offset + size], offset + size
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
            value, offset = struct.unpack_from("<d" if wire_type == 1 else "<f", content, offset)[0], offset + size
        else:
            raise ModelError(f"Fields of wire type {wire_type} are not supported.")
        yield number, value


def _decode_varint(content: bytes, offset: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[offset]
        number, shift, offset = number | (byte & 127) << shift, shift + 7, offset + 1
        if byte < 128:
            return number, offset
