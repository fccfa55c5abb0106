"""Lead-1: the first sentence of a text as its summary."""

import re
from collections.abc import Iterator

SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|(?<=[。！？])|\n+")


def split_sentences(text: str) -> Iterator[tuple[int, int]]:
    """The start and end of each sentence, at its punctuation and at line breaks.

    >>> text = "It rained. Then, at 3.30, it stopped!"
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['It rained.', 'Then, at 3.30, it stopped!']
    """
    start = 0
    for match in SENTENCE_END.finditer(text):
        if text[start : match.start()].strip():
            yield start, match.start()
        start = match.end()
    if text[start:].strip():
        yield start, len(text)


def lead_sentence(text: str) -> str:
    """The first sentence; the text itself if it has none."""
    return next((text[start:end].strip() for start, end in split_sentences(text)), text)
