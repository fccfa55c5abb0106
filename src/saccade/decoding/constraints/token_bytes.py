"""What each token of a vocabulary adds to a text, in bytes: at the beginning of a text, and later in it."""

import re
from dataclasses import dataclass
from functools import lru_cache

from saccade.text.stream_decoder import REPLACEMENT_CHARACTER
from saccade.text.tokenizer import Tokenizer

MAX_PROBED_TOKENS = 200  # tokens that are decoded to see how a vocabulary is spelled
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class TokenBytes:
    """The bytes of each token, as the first of a text and later in it; a token without any is never written."""

    start_bytes: tuple[bytes, ...]
    inner_bytes: tuple[bytes, ...]


@lru_cache(4)
def token_bytes(tokenizer: Tokenizer) -> TokenBytes:
    """What each token adds to a text."""
    special = set(tokenizer.special_tokens.values())
    plain = [token for token in range(tokenizer.vocab) if token not in special]
    names = {token: tokenizer.id_to_token(token) for token in plain}
    first, later = [b""] * tokenizer.vocab, [b""] * tokenizer.vocab
    if _is_byte_level(tokenizer, names):
        for token, name in names.items():
            first[token] = _raw_bytes(name)
        return TokenBytes(tuple(first), tuple(first))
    texts = {token: tokenizer.decode([token]) for token in plain}
    shown = [token for token, text in texts.items() if text.strip() and REPLACEMENT_CHARACTER not in text]
    before = next((token for token in shown if texts[token].isalnum()), shown[0] if shown else None)
    for token, name in names.items():
        first[token] = _added_bytes(name, "", texts[token])
        if before is not None:  # a token that shows a letter, after which others stand as they do inside a text
            later[token] = _added_bytes(name, texts[before], tokenizer.decode([before, token]))
    return TokenBytes(tuple(first), tuple(later))


def _is_byte_level(tokenizer: Tokenizer, names: dict[int, str]) -> bool:
    """Whether every token is spelled in GPT-2's letters for bytes; a few decoded ones tell."""
    if any(letter not in GPT2_BYTE_DECODER for letter in {letter for name in names.values() for letter in name}):
        return False
    few = (
        sorted(names)[:: max(1, len(names) // MAX_PROBED_TOKENS)]
        + [token for token, name in names.items() if "Ġ" in name][:MAX_PROBED_TOKENS]
    )
    return all(
        tokenizer.decode([few[0], token]).endswith(_raw_bytes(names[token]).decode(errors="replace")) for token in few
    )


def _added_bytes(name: str, start: str, text: str) -> bytes:
    """What a token adds to the text before it; nothing where that cannot be told from it alone."""
    if (REPLACEMENT_CHARACTER in text and REPLACEMENT_CHARACTER not in name) or (
        BYTE_TOKEN.fullmatch(name) and not text.endswith(name)
    ):
        return _raw_bytes(name)
    return text[len(start) :].encode() if text.startswith(start) else b""


def _raw_bytes(name: str) -> bytes:
    """The bytes of a token that is no whole character, from how the vocabulary spells it."""
    byte = BYTE_TOKEN.fullmatch(name)
    if byte:
        return bytes([int(byte[1], 16)])
    return (
        bytes(GPT2_BYTE_DECODER[letter] for letter in name)
        if all(letter in GPT2_BYTE_DECODER for letter in name)
        else b""
    )


def _gpt2_byte_decoder() -> dict[str, int]:
    """GPT-2's letters for bytes: visible ones stand for themselves, the others follow after 255."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


GPT2_BYTE_DECODER = _gpt2_byte_decoder()
