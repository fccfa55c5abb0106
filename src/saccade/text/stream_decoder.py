"""Streaming detokenization: feed token ids as they are generated, get the characters that later ids cannot change.

>>> from saccade.text.train import train_tokenizer
>>> tokenizer = train_tokenizer([], "bytes")
>>> stream = StreamDecoder(tokenizer)
>>> [stream.feed([id]) for id in tokenizer.encode("a😀").ids], stream.finish()
(['a', '', '', '', '😀'], '')
"""

import re
from collections.abc import Sequence

from saccade.text.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\ufffd"  # stands for bytes that are not valid UTF-8, or not yet a whole character
MAX_WINDOW_TOKENS = 24  # ids that are decoded again with every step, so that the cost of a long text is linear


class StreamDecoder:
    """Decodes ids incrementally: the concatenation of all outputs equals `decode` of all ids at once."""

    tokenizer: Tokenizer
    keep_special_tokens: bool

    def __init__(self, tokenizer: Tokenizer, *, keep_special_tokens: bool = False):
        self.tokenizer, self.keep_special_tokens = tokenizer, keep_special_tokens
        self._skipped_ids = set() if keep_special_tokens else set(tokenizer.special_tokens.values())
        self._window: list[int] = []  # the last ids, including those that are kept as context only
        self._emitted_characters = 0  # characters of the window's text that were returned already
        self._byte_run = 0  # byte tokens at the end of the window: a run of them is decoded as a whole

    def feed(self, ids: Sequence[int]) -> str:
        """Add ids and return the new text that is final."""
        for id in ids:
            if id not in self._skipped_ids:
                self._window.append(id)
                self._byte_run = self._byte_run + 1 if self._is_byte(id) else 0
        if self._byte_run and self._byte_run == len(self._window):
            return ""
        text = self._decode(self._window[: len(self._window) - self._byte_run])
        final = text[:-1] if text.endswith(REPLACEMENT_CHARACTER) else text
        new_text = final[self._emitted_characters :]
        self._emitted_characters = max(self._emitted_characters, len(final))
        if len(self._window) > MAX_WINDOW_TOKENS and not self._byte_run:
            self._slide_window(text)
        return new_text

    def finish(self) -> str:
        """Return the rest of the text after the last id; an incomplete character becomes U+FFFD."""
        rest = self._decode(self._window)[self._emitted_characters :]
        self._window, self._emitted_characters, self._byte_run = [], 0, 0
        return rest

    def _is_byte(self, id: int) -> bool:
        return re.fullmatch("<0x[0-9A-F]{2}>", self.tokenizer.id_to_token(id)) is not None

    def _slide_window(self, text: str) -> None:
        """Drop all but the last ids, keeping at least one visible character: decoders treat the first token differently."""
        last = len(self._window) - 1
        for start in range(last, max(0, last - MAX_WINDOW_TOKENS), -1):
            tail = self._decode(self._window[start:])
            if (tail.strip() and REPLACEMENT_CHARACTER not in tail) or self._can_cut_at(text, start, tail):
                pending = len(text) - self._emitted_characters if text.endswith(REPLACEMENT_CHARACTER) else 0
                self._window, self._emitted_characters = self._window[start:], len(tail) - pending
                return

    def _can_cut_at(self, text: str, start: int, tail: str) -> bool:
        """Whether whitespace or invalid bytes can be cut here: no character spans the cut, and at most one space is lost."""
        if not tail or not text.endswith(tail):
            return False
        if self._is_byte(self._window[start]) and self._is_byte(self._window[start - 1]):
            return False
        return len(self._decode(self._window[:start])) + len(tail) - len(text) in (0, -1)

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, keep_special_tokens=self.keep_special_tokens)
