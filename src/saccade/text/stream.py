"""Text as it is being written: feed ids, get the characters that no later id can change.

>>> from saccade.text.train import train
>>> tokenizer = train([], "bytes")
>>> stream = Stream(tokenizer)
>>> [stream.feed([id]) for id in tokenizer.encode("a😀").ids], stream.end()
(['a', '', '', '', '😀'], '')
"""

import re
from collections.abc import Sequence

from saccade.text.tokenizer import Tokenizer

BROKEN = "\ufffd"  # what a decoder writes for bytes that are no character, or not yet
WINDOW = 24  # ids decoded again with every step at most, so that a long text costs linear time


class Stream:
    """Decodes ids one after another; all that it gives, put together, is what `decode` gives for all ids at once."""

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False):
        self.tokenizer, self.special = tokenizer, special
        self._skip = set() if special else set(tokenizer.special.values())
        self._window: list[int] = []  # the last ids; the first of them are context for what follows
        self._given = 0  # characters of the window's text that are out

    def feed(self, ids: Sequence[int]) -> str:
        """Take note of ids and return the text that is certain now."""
        self._window += [id for id in ids if id not in self._skip]
        settled = self._window[: self._settled()]
        text = self._decode(settled)
        certain = text[:-1] if text.endswith(BROKEN) else text
        out = certain[self._given :]
        self._given = max(self._given, len(certain))
        if len(self._window) > WINDOW and certain == text and settled == self._window:
            self._slide()
        return out

    def end(self) -> str:
        """The rest, when no more ids come: an unfinished character is written as U+FFFD."""
        rest = self._decode(self._window)[self._given :]
        self._window, self._given = [], 0
        return rest

    def _settled(self) -> int:
        """How many ids stand before the bytes at the end: a decoder looks at a run of bytes as a whole."""
        count = len(self._window)
        while count and re.fullmatch("<0x[0-9A-F]{2}>", self.tokenizer.token(self._window[count - 1])):
            count -= 1
        return count

    def _slide(self) -> None:
        """Forget all but the last ids; what is kept shows a character, so that the next id does not look like the first."""
        for start in range(len(self._window) - 1, 0, -1):
            tail = self._decode(self._window[start:])
            if tail.strip() and BROKEN not in tail:
                self._window, self._given = self._window[start:], len(tail)
                return

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, special=self.special)
