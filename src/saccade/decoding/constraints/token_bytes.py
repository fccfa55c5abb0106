"""The bytes that each token of a vocabulary adds to a text, at its start and later in it."""

import re
from dataclasses import dataclass
from functools import lru_cache

from saccade.text.stream_decoder import REPLACEMENT_CHARACTER
from saccade.text.tokenizer import Tokenizer

MAX_PROBED_TOKENS = 200  # tokens that are decoded to detect a byte-level vocabulary
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class TokenBytes:
    """The bytes of each token, at the start of a text and later in it; a token without bytes is never generated."""

    start_bytes: tuple[bytes, ...]
    inner_bytes: tuple[bytes, ...]


@lru_cache(4)
def token_bytes(tokenizer: Tokenizer) -> TokenBytes:
    """Compute the bytes that each token of a tokenizer adds to a text."""
    special = set(tokenizer.special_tokens.values())
    ordinary = [token for token in range(tokenizer.vocab) if token not in special]
    names = {token: tokenizer.id_to_token(token) for token in ordinary}
    start, inner = [b""] * tokenizer.vocab, [b""] * tokenizer.vocab
    if _is_byte_level(tokenizer, names):
        for token, name in names.items():
            start[token] = _raw_bytes(name)
        return TokenBytes(tuple(start), tuple(start))
    texts = {token: tokenizer.decode([token]) for token in ordinary}
    visible = [token for token, text in texts.items() if text.strip() and REPLACEMENT_CHARACTER not in text]
    before = next((token for token in visible if texts[token].isalnum()), visible[0] if visible else None)
    for token, name in names.items():
        start[token] = _added_bytes(name, "", texts[token])
        if before is not None:  # a visible token, after which other tokens are decoded as inside a text
            inner[token] = _added_bytes(name, texts[before], tokenizer.decode([before, token]))
    return TokenBytes(tuple(start), tuple(inner))


def _is_byte_level(tokenizer: Tokenizer, names: dict[int, str]) -> bool:
    """Whether every token is spelled in GPT-2's byte alphabet, checked by decoding a sample of tokens."""
    if any(character not in GPT2_BYTE_DECODER for character in {c for name in names.values() for c in name}):
        return False
    sample = (
        sorted(names)[:: max(1, len(names) // MAX_PROBED_TOKENS)]
        + [token for token, name in names.items() if "Ġ" in name][:MAX_PROBED_TOKENS]
    )
    return all(
        tokenizer.decode([sample[0], token]).endswith(_raw_bytes(names[token]).decode(errors="replace"))
        for token in sample
    )


def _added_bytes(name: str, start: str, text: str) -> bytes:
    """The bytes that a token adds to the text before it; none if they cannot be determined from the decoded text."""
    if (REPLACEMENT_CHARACTER in text and REPLACEMENT_CHARACTER not in name) or (
        BYTE_TOKEN.fullmatch(name) and not text.endswith(name)
    ):
        return _raw_bytes(name)
    return text[len(start) :].encode() if text.startswith(start) else b""


def _raw_bytes(name: str) -> bytes:
    """The bytes of a token that is part of a character, from its name in the vocabulary."""
    byte = BYTE_TOKEN.fullmatch(name)
    if byte:
        return bytes([int(byte[1], 16)])
    return (
        bytes(GPT2_BYTE_DECODER[character] for character in name)
        if all(character in GPT2_BYTE_DECODER for character in name)
        else b""
    )


def _gpt2_byte_decoder() -> dict[str, int]:
    """GPT-2's byte alphabet: printable bytes are their own characters, all others are characters from 256 on."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + index): byte for index, byte in enumerate(hidden)}


GPT2_BYTE_DECODER = _gpt2_byte_decoder()
