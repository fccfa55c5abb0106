"""What each token of a vocabulary adds to a text, in bytes: at the beginning of a text, and later in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from saccade.decoding.automaton import Automaton
from saccade.text.stream import BROKEN
from saccade.text.tokenizer import Tokenizer

PROBES = 200  # tokens that are decoded to see how a vocabulary is spelled
BYTE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Level:
    """All different beginnings of one length that tokens have: each is one of the level before and a byte more."""

    before: np.ndarray
    letters: np.ndarray
    tokens: np.ndarray  # which tokens are whole here,
    at: np.ndarray  # and which beginning they are


class Spelling:
    """The bytes of each token, as a tree, so that what many begin with is read once; a token without any is never written."""

    def __init__(self, tokens: Sequence[bytes]):
        self.vocab, self.tokens = len(tokens), tuple(tokens)
        self.levels: list[Level] = []
        order = np.array(sorted(range(self.vocab), key=tokens.__getitem__), np.int64)
        lengths = np.array([len(tokens[i]) for i in order], np.int64)
        same = np.array([0, *(_alike(tokens[i], tokens[j]) for i, j in pairwise(order))], np.int64)
        node = np.zeros(self.vocab, np.int64)
        for place in range(int(lengths.max(initial=0))):
            new = (same <= place) & (lengths > place)
            letters = np.array([tokens[i][place] for i in order[new]], np.uint8)
            before, node = node[new], new.cumsum() - 1
            whole = lengths == place + 1
            self.levels.append(Level(before, letters, order[whole], node[whole]))

    @cached_property
    def short(self) -> "Spelling":
        """The same with only the tokens of one byte or one character: enough to write anything, where there are all."""
        return Spelling([token if len(token.decode(errors="replace")) == 1 else b"" for token in self.tokens])

    def run(self, machine: Automaton, state: int) -> np.ndarray:
        """The state in which each token leaves the machine that is now in this one, (V,); 0 where nothing can match then."""
        out = np.zeros(self.vocab, np.int32)
        states = np.array([state], np.int32)
        for level in self.levels:
            before = states[level.before]
            alive = np.flatnonzero(before)
            if not len(alive):
                break
            states = np.zeros(len(before), np.int32)
            states[alive] = machine.step(before[alive], level.letters[alive])
            out[level.tokens] = states[level.at]
        return out


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes two tokens share at their beginning."""
    least = min(len(one), len(other))
    return next((place for place in range(least) if one[place] != other[place]), least)


@lru_cache(4)
def spelling(tokenizer: Tokenizer) -> tuple[Spelling, Spelling]:
    """What each token adds as the first of a text, and what it adds later."""
    special = set(tokenizer.special.values())
    plain = [token for token in range(tokenizer.vocab) if token not in special]
    names = {token: tokenizer.token(token) for token in plain}
    first, later = [b""] * tokenizer.vocab, [b""] * tokenizer.vocab
    if _by_bytes(tokenizer, names):
        for token, name in names.items():
            first[token] = _raw(name)
        same = Spelling(first)
        return same, same
    texts = {token: tokenizer.decode([token]) for token in plain}
    shown = [token for token, text in texts.items() if text.strip() and BROKEN not in text]
    before = next((token for token in shown if texts[token].isalnum()), shown[0] if shown else None)
    for token, name in names.items():
        first[token] = _bytes(name, "", texts[token])
        if before is not None:  # a token that shows a letter, after which others stand as they do inside a text
            later[token] = _bytes(name, texts[before], tokenizer.decode([before, token]))
    return Spelling(first), Spelling(later)


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
