"""Chunks of a very long text for tokenization, split where most tokenizers would split it anyway."""

import re
import unicodedata
from collections.abc import Iterator

MAX_CHUNK_CHARACTERS = 1 << 16
SPACE_BEFORE_WORD = re.compile(r" (?=\S)")


def chunk_text(text: str, max_characters: int = MAX_CHUNK_CHARACTERS) -> Iterator[tuple[int, int]]:
    """Start and end of each chunk of at most `max_characters`, split before a space in front of a word if there is one.

    >>> [text[a:b] for text in ["to be or not"] for a, b in chunk_text(text, 8)]
    ['to be', ' or not']
    """
    start = 0
    while len(text) - start > max_characters:
        end = start + max_characters
        spaces = [match.start() for match in SPACE_BEFORE_WORD.finditer(text, start + max_characters // 2, end + 1)]
        if spaces:
            end = spaces[-1]
        while end > start + max_characters // 2 and unicodedata.combining(
            text[end]
        ):  # keep combining marks with their letter
            end -= 1
        yield start, end
        start = end
    yield start, len(text)
