"""One request for a text: what was asked, what has been written for it, and whoever waits for it."""

import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from saccade.data import Batch, Features, Image, Text
from saccade.decoding import SamplerFunction, StoppingCriteria, greedy
from saccade.decoding.logits_processors import TokenHistory, apply_processors
from saccade.errors import UsageError

FinishReason = Literal["stop", "length", "cancelled", "failed"]


@dataclass(frozen=True)
class Request:
    """What was asked, for one row: where a text begins, how it goes on, and where it ends."""

    source: list[int] | Image | Features
    criteria: StoppingCriteria
    sampler: SamplerFunction
    stop_ids: frozenset[int]
    copy_index: int  # equal requests with different numbers may be written side by side in fixed slots

    @cached_property
    def content_hash(self) -> int:
        """A number that depends on nothing but the request."""
        source = self.source
        if isinstance(source, list):
            return zlib.crc32(repr(source).encode()) + self.copy_index
        return zlib.crc32(source_values(source).cpu().contiguous().numpy().tobytes()) + self.copy_index

    @property
    def is_greedy(self) -> bool:
        """Whether the best token is what it takes, so that many rows can be asked at once."""
        return self.sampler is greedy and not self.criteria.processors


@dataclass(frozen=True)
class RequestEvent:
    """What one step brought for one request: a token, the end, or both."""

    handle: "RequestHandle"
    token: int | None
    finish_reason: FinishReason | None


class RequestHandle:
    """A request that was taken in. Any thread may read it; only a `BatchScheduler` writes to it.

        for token in handle.stream(): ...       # as they come
        handle.result()                         # all of them, when the text has ended

    `finish_reason` says how: by a token or a string that "stop"s it, by its "length", "cancelled", or "failed", for the reason
    that `error` has.
    """

    def __init__(self, request_id: int, request: Request):
        self.request_id, self.request = request_id, request
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None
        self.prompt: list[int] = []  # what the first step read
        self._condition = threading.Condition()

    def __repr__(self) -> str:
        return f"RequestHandle({self.request_id}, {len(self.tokens)} tokens, {self.finish_reason or 'going on'})"

    def stream(self, timeout: float | None = None) -> Iterator[int]:
        """Yield the tokens as they are written, from the first on; waits for the thread that steps.

        After `timeout` seconds without news it raises `TimeoutError`; what failed raises what went wrong.
        """
        told, going = 0, True
        while going:
            fresh, going = self._wait_for_tokens(told, timeout)
            yield from fresh
            told += len(fresh)
        if self.error is not None:
            raise self.error

    def result(self, timeout: float | None = None) -> list[int]:
        """All tokens, once the text has ended."""
        return list(self.stream(timeout))

    def _wait_for_tokens(self, offset: int, timeout: float | None) -> tuple[list[int], bool]:
        """What stands after so many tokens, as soon as there is something, and whether more may come."""
        with self._condition:
            if not self._condition.wait_for(
                lambda: len(self.tokens) > offset or self.finish_reason is not None, timeout
            ):
                raise TimeoutError(
                    f"{self!r}: no news for {timeout} seconds; is a thread calling `BatchScheduler.step`?"
                )
            return self.tokens[offset:], self.finish_reason is None

    # what the BatchScheduler does

    def append_next(self, scores: Tensor, best_token: int | None = None) -> RequestEvent | None:
        """Choose the next token from the scores (1, V), unless it is known, and write it down; None if it has ended."""
        if self.finish_reason is not None:  # cancelled while the model was at work
            return None
        try:
            token = self._choose_token(scores) if best_token is None else best_token
            if token in self.request.stop_ids:
                return self.finish("stop")
            done = self._finish_reason_after([*self.tokens, token])
        except Exception as error:  # a sampler, a rule or a stop of this request; the others have no part in it
            return self.finish("failed", error)
        return self._record(token, done)

    def finish(self, reason: FinishReason, error: Exception | None = None) -> RequestEvent | None:
        """The end, without a token; None if it has ended before."""
        return self._record(None, reason, error)

    def _record(
        self, token: int | None, finish_reason: FinishReason | None, error: Exception | None = None
    ) -> RequestEvent | None:
        with self._condition:
            if self.finish_reason is not None:
                return None
            if token is not None:
                self.tokens.append(token)
            self.finish_reason, self.error = finish_reason, error
            self._condition.notify_all()
            return RequestEvent(self, token, finish_reason)

    def _choose_token(self, scores: Tensor) -> int:
        ruled = apply_processors(self.request.criteria.processors, scores, self._history(self.tokens))
        chosen = self.request.sampler(ruled)
        if chosen.shape != (1,):
            raise UsageError(f"A choice gives one token for each row, (1,); got {tuple(chosen.shape)}.")
        return int(chosen)

    def _finish_reason_after(self, tokens: list[int]) -> FinishReason | None:
        """How the text ends with these tokens; None if it goes on."""
        bounds = self.request.criteria
        if bounds.stop_condition is not None and bounds.finished_rows(self._history(tokens))[0]:
            return "stop"
        return "length" if len(tokens) >= bounds.max_new_tokens else None

    def _history(self, tokens: list[int]) -> TokenHistory:
        return TokenHistory([self.prompt], [list(tokens)], self.request.criteria.max_new_tokens)


def source_values(source: Image | Features) -> Tensor:
    """The numbers of a source that is no text."""
    return source.pixels if isinstance(source, Image) else source.values


def single_source(batch: Batch) -> list[int] | Image | Features:
    """The source of a batch that has one row: the real tokens of a text, or the numbers as they are."""
    source = batch.source
    rows = len(source.tokens if isinstance(source, Text) else source_values(source))
    if rows != 1:
        raise UsageError(f"A request is one row; the batch has {rows}. Submit each of them.")
    if not isinstance(source, Text):
        return source
    if source.document_ids is not None or source.segment_ids is not None or source.global_mask is not None:
        raise UsageError("A request is one text: its tokens and `keep`; segments, marks and parts are not taken.")
    tokens = source.tokens[0][source.keep_mask[0]]
    if not len(tokens):
        raise UsageError("The text is empty, and there is nothing to begin with; give at least one token.")
    return tokens.tolist()
