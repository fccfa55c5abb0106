"""A very long text in stretches of bounded length, cut where most tokenizers would cut it anyway."""

import re
import unicodedata
from collections.abc import Iterator

STRETCH = 1 << 16  # characters
SPACE = re.compile(r" (?=\S)")


def stretches(text: str, most: int = STRETCH) -> Iterator[tuple[int, int]]:
    """Where stretches of at most `most` characters begin and end: before a space in front of a word if there is one.

    >>> [text[a:b] for text in ["to be or not"] for a, b in stretches(text, 8)]
    ['to be', ' or not']
    """
    start = 0
    while len(text) - start > most:
        end = start + most
        found = [match.start() for match in SPACE.finditer(text, start + most // 2, end + 1)]
        if found:
            end = found[-1]
        while end > start + most // 2 and unicodedata.combining(text[end]):  # a mark stays with its letter
            end -= 1
        yield start, end
        start = end
    yield start, len(text)
