"""What each token of a vocabulary adds to a text, in bytes: at the beginning of a text, and later in it."""

import re
from dataclasses import dataclass
from functools import lru_cache

from saccade.text.stream import BROKEN
from saccade.text.tokenizer import Tokenizer

PROBES = 200  # tokens that are decoded to see how a vocabulary is spelled
BYTE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Spelling:
    """The bytes of each token, as the first of a text and later in it; a token without any is never written."""

    first: tuple[bytes, ...]
    later: tuple[bytes, ...]


@lru_cache(4)
def spelling(tokenizer: Tokenizer) -> Spelling:
    """What each token adds to a text."""
    special = set(tokenizer.special.values())
    plain = [token for token in range(tokenizer.vocab) if token not in special]
    names = {token: tokenizer.token(token) for token in plain}
    first, later = [b""] * tokenizer.vocab, [b""] * tokenizer.vocab
    if _by_bytes(tokenizer, names):
        for token, name in names.items():
            first[token] = _raw(name)
        return Spelling(tuple(first), tuple(first))
    texts = {token: tokenizer.decode([token]) for token in plain}
    shown = [token for token, text in texts.items() if text.strip() and BROKEN not in text]
    before = next((token for token in shown if texts[token].isalnum()), shown[0] if shown else None)
    for token, name in names.items():
        first[token] = _bytes(name, "", texts[token])
        if before is not None:  # a token that shows a letter, after which others stand as they do inside a text
            later[token] = _bytes(name, texts[before], tokenizer.decode([before, token]))
    return Spelling(tuple(first), tuple(later))


def _by_bytes(tokenizer: Tokenizer, names: dict[int, str]) -> bool:
    """Whether every token is spelled in GPT-2's letters for bytes; a few decoded ones tell."""
    if any(letter not in LETTERS for letter in {letter for name in names.values() for letter in name}):
        return False
    few = (
        sorted(names)[:: max(1, len(names) // PROBES)]
        + [token for token, name in names.items() if "Ġ" in name][:PROBES]
    )
    return all(tokenizer.decode([few[0], token]).endswith(_raw(names[token]).decode(errors="replace")) for token in few)


def _bytes(name: str, start: str, text: str) -> bytes:
    """What a token adds to the text before it; nothing where that cannot be told from it alone."""
    if (BROKEN in text and BROKEN not in name) or (BYTE.fullmatch(name) and not text.endswith(name)):
        return _raw(name)
    return text[len(start) :].encode() if text.startswith(start) else b""


def _raw(name: str) -> bytes:
    """The bytes of a token that is no whole character, from how the vocabulary spells it."""
    byte = BYTE.fullmatch(name)
    if byte:
        return bytes([int(byte[1], 16)])
    return bytes(LETTERS[letter] for letter in name) if all(letter in LETTERS for letter in name) else b""


def _letters() -> dict[str, int]:
    """GPT-2's letters for bytes: visible ones stand for themselves, the others follow after 255."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


LETTERS = _letters()
