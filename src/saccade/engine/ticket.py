"""One request for a text: what was asked, what has been written for it, and whoever waits for it."""

import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from saccade.data import Batch, Image, Points, Text
from saccade.decoding import Bounds, Choose, greedy
from saccade.decoding.rules import Sofar, obey
from saccade.errors import UsageError

End = Literal["stop", "limit", "cancelled", "failed"]


@dataclass(frozen=True)
class Request:
    """What was asked, for one row: where a text begins, how it goes on, and where it ends."""

    source: list[int] | Image | Points
    bounds: Bounds
    choose: Choose
    stops: frozenset[int]
    copy: int  # equal requests with different numbers may be written side by side in fixed slots

    @cached_property
    def home(self) -> int:
        """A number that depends on nothing but the request."""
        source = self.source
        if isinstance(source, list):
            return zlib.crc32(repr(source).encode()) + self.copy
        return zlib.crc32(values(source).cpu().contiguous().numpy().tobytes()) + self.copy

    @property
    def greedy(self) -> bool:
        """Whether the best token is what it takes, so that many rows can be asked at once."""
        return self.choose is greedy and not self.bounds.rules


@dataclass(frozen=True)
class Event:
    """What one step brought for one request: a token, the end, or both."""

    ticket: "Ticket"
    token: int | None
    ended: End | None


class Ticket:
    """A request that was taken in. Any thread may read it; only `Slots` writes to it.

        for token in ticket.stream(): ...       # as they come
        ticket.result()                         # all of them, when the text has ended

    `ended` says how: by a token or a string that "stop"s it, by its "limit", "cancelled", or "failed", for the reason
    that `error` has.
    """

    def __init__(self, number: int, request: Request):
        self.number, self.request = number, request
        self.tokens: list[int] = []
        self.ended: End | None = None
        self.error: Exception | None = None
        self.prompt: list[int] = []  # what the first step read
        self._news = threading.Condition()

    def __repr__(self) -> str:
        return f"Ticket({self.number}, {len(self.tokens)} tokens, {self.ended or 'going on'})"

    def stream(self, timeout: float | None = None) -> Iterator[int]:
        """Yield the tokens as they are written, from the first on; waits for the thread that steps.

        After `timeout` seconds without news it raises `TimeoutError`; what failed raises what went wrong.
        """
        told, going = 0, True
        while going:
            fresh, going = self._after(told, timeout)
            yield from fresh
            told += len(fresh)
        if self.error is not None:
            raise self.error

    def result(self, timeout: float | None = None) -> list[int]:
        """All tokens, once the text has ended."""
        return list(self.stream(timeout))

    def _after(self, told: int, timeout: float | None) -> tuple[list[int], bool]:
        """What stands after so many tokens, as soon as there is something, and whether more may come."""
        with self._news:
            if not self._news.wait_for(lambda: len(self.tokens) > told or self.ended is not None, timeout):
                raise TimeoutError(f"{self!r}: no news for {timeout} seconds; is a thread calling `Slots.step`?")
            return self.tokens[told:], self.ended is None

    # what Slots does

    def take(self, scores: Tensor, best: int | None = None) -> Event | None:
        """Choose the next token from the scores (1, V), unless it is known, and write it down; None if it has ended."""
        if self.ended is not None:  # cancelled while the model was at work
            return None
        try:
            token = self._choose(scores) if best is None else best
            if token in self.request.stops:
                return self.end("stop")
            done = self._written([*self.tokens, token])
        except Exception as error:  # a sampler, a rule or a stop of this request; the others have no part in it
            return self.end("failed", error)
        return self._note(token, done)

    def end(self, why: End, error: Exception | None = None) -> Event | None:
        """The end, without a token; None if it has ended before."""
        return self._note(None, why, error)

    def _note(self, token: int | None, ended: End | None, error: Exception | None = None) -> Event | None:
        with self._news:
            if self.ended is not None:
                return None
            if token is not None:
                self.tokens.append(token)
            self.ended, self.error = ended, error
            self._news.notify_all()
            return Event(self, token, ended)

    def _choose(self, scores: Tensor) -> int:
        ruled = obey(self.request.bounds.rules, scores, self._sofar(self.tokens))
        chosen = self.request.choose(ruled)
        if chosen.shape != (1,):
            raise UsageError(f"A choice gives one token for each row, (1,); got {tuple(chosen.shape)}.")
        return int(chosen)

    def _written(self, tokens: list[int]) -> End | None:
        """How the text ends with these tokens; None if it goes on."""
        bounds = self.request.bounds
        if bounds.until is not None and bounds.over(self._sofar(tokens))[0]:
            return "stop"
        return "limit" if len(tokens) >= bounds.limit else None

    def _sofar(self, tokens: list[int]) -> Sofar:
        return Sofar([self.prompt], [list(tokens)], self.request.bounds.limit)


def values(source: Image | Points) -> Tensor:
    """The numbers of a source that is no text."""
    return source.pixels if isinstance(source, Image) else source.values


def one_row(batch: Batch) -> list[int] | Image | Points:
    """The source of a batch that has one row: the real tokens of a text, or the numbers as they are."""
    source = batch.source
    rows = len(source.tokens if isinstance(source, Text) else values(source))
    if rows != 1:
        raise UsageError(f"A request is one row; the batch has {rows}. Submit each of them.")
    if not isinstance(source, Text):
        return source
    if source.parts is not None or source.segment is not None or source.marked is not None:
        raise UsageError("A request is one text: its tokens and `keep`; segments, marks and parts are not taken.")
    tokens = source.tokens[0][source.real[0]]
    if not len(tokens):
        raise UsageError("The text is empty, and there is nothing to begin with; give at least one token.")
    return tokens.tolist()
