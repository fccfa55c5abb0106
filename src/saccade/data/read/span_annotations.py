"""Spans of characters as words with tags: the text is cut into words, and cut again where a span begins or ends."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from saccade.data.read.parse_values import Location

WORD_OR_PUNCTUATION = re.compile(r"\w+|[^\w\s]")


def find_word_offsets(text: str, boundaries: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Where each word begins and ends; `at` are places where a word must not run on.

    >>> find_word_offsets("don't go", (5,))
    [(0, 3), (3, 4), (4, 5), (6, 8)]
    """
    found, marks = [], sorted(set(boundaries))
    for match in WORD_OR_PUNCTUATION.finditer(text):
        start, end = match.span()
        for mark in marks[bisect_right(marks, start) : bisect_left(marks, end)]:
            found.append((start, mark))
            start = mark
        found.append((start, end))
    return found


def spans_to_tags(text: str, spans: Any, location: Location) -> dict[str, Any]:
    """Words, BIO tags, and the offsets that lead back to the text."""
    found = _parse_spans(text, spans, location)
    offsets = find_word_offsets(text, tuple(edge for start, end, _ in found for edge in (start, end)))
    tags, starts = ["O"] * len(offsets), [a for a, _ in offsets]
    for start, end, label in found:
        within = range(bisect_left(starts, start), bisect_left(starts, end))  # no word runs across an edge of a span
        if not within:
            raise location.error("a span has no word in it", {"start": start, "end": end}, "let it cover a word")
        for n, i in enumerate(within):
            tags[i] = f"{'I' if n else 'B'}-{label}"
    return {"words": [text[a:b] for a, b in offsets], "tags": tags, "text": text, "offsets": offsets}


def _parse_spans(text: str, spans: Any, location: Location) -> list[tuple[int, int, str]]:
    if not isinstance(spans, list):
        raise location.error("a list of spans is needed", spans, 'write [{"start": 0, "end": 5, "label": "PER"}]')
    found = sorted((_parse_span(text, span, location) for span in spans), key=lambda span: span[:2])
    for (_, end, _), (start, stop, label) in pairwise(found):
        if start < end:
            shown = {"start": start, "end": stop, "label": label}
            raise location.error("two spans overlap", shown, "a word can have one tag; keep one of the spans")
    return found


def _parse_span(text: str, span: Any, location: Location) -> tuple[int, int, str]:
    hint = 'write {"start": 0, "end": 5, "label": "PER"}, counted in characters, the end not included'
    if isinstance(span, Mapping):
        label = span.get("label", span.get("type", span.get("tag")))
        parts = [span.get("start", span.get("start_offset")), span.get("end", span.get("end_offset")), label]
    else:
        parts = list(span) if isinstance(span, list | tuple) else []
    if len(parts) != 3 or any(isinstance(x, bool) or not isinstance(x, int) for x in parts[:2]):
        raise location.error("a span has a start, an end and a label", span, hint)
    start, end, label = parts
    if not isinstance(label, str) or not label.strip() or any(c.isspace() for c in label.strip()):
        raise location.error("the label of a span is one word", span, hint)
    if not 0 <= start < end <= len(text):
        raise location.error(f"a span lies outside the text of {len(text)} characters", span, hint)
    return start, end, label.strip()
