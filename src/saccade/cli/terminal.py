"""Texts and labels that others wrote, printed without harm: control characters, which a terminal acts on, become escapes."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# all but tab and newline; a carriage return may end a line with a newline, or begin what is printed, as a counter does
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|(?<!^)\r(?!\n)")


def escape_control_characters(text: str) -> str:
    r"""A text whose control characters are written as JSON escapes, so that printed JSON stays what it was.

    >>> print(escape_control_characters("good\x1b]0;owned\x07 day\n"), end="")
    good\u001b]0;owned\u0007 day
    """
    return CONTROL_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class EscapingStream:
    """A stream that writes texts harmlessly; all else is asked of the stream below."""

    def __init__(self, target_stream: TextIO):
        self.target_stream = target_stream

    def write(self, text: str) -> int:
        self.target_stream.write(escape_control_characters(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target_stream, name)


def unwrap_stream(stream: Any) -> Any:
    """The stream below, for those who move the cursor and colour letters on purpose."""
    return stream.target_stream if isinstance(stream, EscapingStream) else stream


@contextmanager
def escape_output() -> Iterator[None]:
    """Whatever is printed meanwhile is harmless."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (one if isinstance(one, EscapingStream) else EscapingStream(one) for one in before)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
