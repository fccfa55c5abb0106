"""A very long text in stretches of bounded length, cut where most tokenizers would cut it anyway."""

import re
import unicodedata
from collections.abc import Iterator

MAX_CHUNK_CHARACTERS = 1 << 16  # characters
SPACE_BEFORE_WORD = re.compile(r" (?=\S)")


def chunk_text(text: str, max_characters: int = MAX_CHUNK_CHARACTERS) -> Iterator[tuple[int, int]]:
    """Where stretches of at most `most` characters begin and end: before a space in front of a word if there is one.

    >>> [text[a:b] for text in ["to be or not"] for a, b in chunk_text(text, 8)]
    ['to be', ' or not']
    """
    start = 0
    while len(text) - start > max_characters:
        end = start + max_characters
        found = [match.start() for match in SPACE_BEFORE_WORD.finditer(text, start + max_characters // 2, end + 1)]
        if found:
            end = found[-1]
        while end > start + max_characters // 2 and unicodedata.combining(text[end]):  # a mark stays with its letter
            end -= 1
        yield start, end
        start = end
    yield start, len(text)
