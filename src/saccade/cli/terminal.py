"""Terminal escape injection: control characters in texts and labels are printed as escapes, so that they have no effect."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# all but tab and newline; a carriage return is kept before a newline, and at the start of a text, as in a counter
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|(?<!^)\r(?!\n)")


def escape_control_characters(text: str) -> str:
    r"""Replace control characters by JSON escapes, so that printed JSON keeps its value.

    >>> print(escape_control_characters("good\x1b]0;owned\x07 day\n"), end="")
    good\u001b]0;owned\u0007 day
    """
    return CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class EscapingStream:
    """A text stream that escapes control characters; everything else is delegated to the wrapped stream."""

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
    """The wrapped stream, for code that moves the cursor or prints in color."""
    return stream.target_stream if isinstance(stream, EscapingStream) else stream


@contextmanager
def escape_output() -> Iterator[None]:
    """Escape control characters in everything that is printed inside this context."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (s if isinstance(s, EscapingStream) else EscapingStream(s) for s in streams)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
