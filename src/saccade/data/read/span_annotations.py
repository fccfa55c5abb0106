"""Convert character spans to words with BIO tags: the text is split into words, and again where a span begins or ends."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from saccade.data.read.parse_values import Location

WORD_OR_PUNCTUATION = re.compile(r"\w+|[^\w\s]")


def find_word_offsets(text: str, boundaries: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Start and end of each word; a word is also split at the `boundaries`.

    >>> find_word_offsets("don't go", (5,))
    [(0, 3), (3, 4), (4, 5), (6, 8)]
    """
    offsets, boundaries = [], tuple(sorted(set(boundaries)))
    for match in WORD_OR_PUNCTUATION.finditer(text):
        start, end = match.span()
        for boundary in boundaries[bisect_right(boundaries, start) : bisect_left(boundaries, end)]:
            offsets.append((start, boundary))
            start = boundary
        offsets.append((start, end))
    return offsets


def spans_to_tags(text: str, spans: Any, location: Location) -> dict[str, Any]:
    """Words, their BIO tags, and their offsets in the text."""
    parsed = _parse_spans(text, spans, location)
    offsets = find_word_offsets(text, tuple(edge for start, end, _ in parsed for edge in (start, end)))
    tags, starts = ["O"] * len(offsets), [a for a, _ in offsets]
    for start, end, label in parsed:
        within = range(bisect_left(starts, start), bisect_left(starts, end))  # words are split at the edges of spans
        if not within:
            raise location.error("a span contains no word", {"start": start, "end": end}, "extend it to cover a word")
        for n, i in enumerate(within):
            tags[i] = f"{'I' if n else 'B'}-{label}"
    return {"words": [text[a:b] for a, b in offsets], "tags": tags, "text": text, "offsets": offsets}


def _parse_spans(text: str, spans: Any, location: Location) -> list[tuple[int, int, str]]:
    if not isinstance(spans, list):
        raise location.error("a list of spans is needed", spans, 'write [{"start": 0, "end": 5, "label": "PER"}]')
    parsed = sorted((_parse_span(text, span, location) for span in spans), key=lambda span: span[:2])
    for (_, end, _), (start, next_end, label) in pairwise(parsed):
        if start < end:
            span = {"start": start, "end": next_end, "label": label}
            raise location.error("two spans overlap", span, "a word can have one tag only; keep one of the spans")
    return parsed


def _parse_span(text: str, span: Any, location: Location) -> tuple[int, int, str]:
    hint = 'write {"start": 0, "end": 5, "label": "PER"}, counted in characters, the end not included'
    if isinstance(span, Mapping):
        label = span.get("label", span.get("type", span.get("tag")))
        parts = [span.get("start", span.get("start_offset")), span.get("end", span.get("end_offset")), label]
    else:
        parts = list(span) if isinstance(span, list | tuple) else []
    if len(parts) != 3 or any(isinstance(x, bool) or not isinstance(x, int) for x in parts[:2]):
        raise location.error("a span needs a start, an end and a label", span, hint)
    start, end, label = parts
    if not isinstance(label, str) or not label.strip() or any(c.isspace() for c in label.strip()):
        raise location.error("the label of a span has to be one word", span, hint)
    if not 0 <= start < end <= len(text):
        raise location.error(f"a span is outside the text of {len(text)} characters", span, hint)
    return start, end, label.strip()
