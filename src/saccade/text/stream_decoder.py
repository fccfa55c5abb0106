"""Text as it is being written: feed ids, get the characters that no later id can change.

>>> from saccade.text.train import train_tokenizer
>>> tokenizer = train_tokenizer([], "bytes")
>>> stream = StreamDecoder(tokenizer)
>>> [stream.feed([id]) for id in tokenizer.encode("a😀").ids], stream.finish()
(['a', '', '', '', '😀'], '')
"""

import re
from collections.abc import Sequence

from saccade.text.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\ufffd"  # what a decoder writes for bytes that are no character, or not yet
MAX_WINDOW_TOKENS = 24  # ids decoded again with every step at most, so that a long text costs linear time


class StreamDecoder:
    """Decodes ids one after another; all that it gives, put together, is what `decode` gives for all ids at once."""

    def __init__(self, tokenizer: Tokenizer, *, keep_special_tokens: bool = False):
        self.tokenizer, self.keep_special_tokens = tokenizer, keep_special_tokens
        self._skipped_ids = set() if keep_special_tokens else set(tokenizer.special_tokens.values())
        self._window: list[int] = []  # the last ids; the first of them are context for what follows
        self._emitted_characters = 0  # characters of the window's text that are out
        self._byte_run = 0  # ids at the end of the window that are bytes: a decoder looks at a run of them as a whole

    def feed(self, ids: Sequence[int]) -> str:
        """Take note of ids and return the text that is certain now."""
        for id in ids:
            if id not in self._skipped_ids:
                self._window.append(id)
                self._byte_run = self._byte_run + 1 if self._is_byte(id) else 0
        if self._byte_run and self._byte_run == len(self._window):
            return ""
        text = self._decode(self._window[: len(self._window) - self._byte_run])
        certain = text[:-1] if text.endswith(REPLACEMENT_CHARACTER) else text
        out = certain[self._emitted_characters :]
        self._emitted_characters = max(self._emitted_characters, len(certain))
        if len(self._window) > MAX_WINDOW_TOKENS and not self._byte_run:
            self._slide_window(text)
        return out

    def finish(self) -> str:
        """The rest, when no more ids come: an unfinished character is written as U+FFFD."""
        rest = self._decode(self._window)[self._emitted_characters :]
        self._window, self._emitted_characters, self._byte_run = [], 0, 0
        return rest

    def _is_byte(self, id: int) -> bool:
        return re.fullmatch("<0x[0-9A-F]{2}>", self.tokenizer.id_to_token(id)) is not None

    def _slide_window(self, text: str) -> None:
        """Forget all but the last ids; what is kept shows a character, so that the next id does not look like the first."""
        last = len(self._window) - 1
        for start in range(last, max(0, last - MAX_WINDOW_TOKENS), -1):
            tail = self._decode(self._window[start:])
            if (tail.strip() and REPLACEMENT_CHARACTER not in tail) or self._can_cut_at(text, start, tail):
                waiting = len(text) - self._emitted_characters if text.endswith(REPLACEMENT_CHARACTER) else 0
                self._window, self._emitted_characters = self._window[start:], len(tail) - waiting
                return

    def _can_cut_at(self, text: str, start: int, tail: str) -> bool:
        """Whether white space or broken bytes can be cut here: no character lies across, and at most a space is lost."""
        if not tail or not text.endswith(tail):
            return False
        if self._is_byte(self._window[start]) and self._is_byte(self._window[start - 1]):
            return False
        return len(self._decode(self._window[:start])) + len(tail) - len(text) in (0, -1)

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, keep_special_tokens=self.keep_special_tokens)
