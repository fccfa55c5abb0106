"""Requests of continuous batching: the input and settings of one sequence, its generated tokens, and the threads that wait."""

import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from saccade.data import Batch, Media, Text
from saccade.decoding import SamplerFunction, StoppingCriteria, greedy
from saccade.decoding.logits_processors import TokenHistory, apply_processors
from saccade.errors import UsageError

FinishReason = Literal["stop", "length", "cancelled", "failed"]


@dataclass(frozen=True)
class Request:
    """The input of one sequence, how its tokens are sampled, and when it stops."""

    source: list[int] | Media
    criteria: StoppingCriteria
    sampler: SamplerFunction
    stop_ids: frozenset[int]
    copy_index: int  # equal requests with different indices may run at the same time in fixed rows

    @cached_property
    def content_hash(self) -> int:
        """A hash of the input and `copy_index` that is the same in every process."""
        source = self.source
        if isinstance(source, list):
            return zlib.crc32(repr(source).encode()) + self.copy_index
        return zlib.crc32(source.values.cpu().contiguous().numpy().tobytes()) + self.copy_index

    @property
    def is_greedy(self) -> bool:
        """Whether each token is the plain argmax, which can be computed for many rows at once."""
        return self.sampler is greedy and not self.criteria.processors


@dataclass(frozen=True)
class RequestEvent:
    """The outcome of one step for one request: a token, a finish reason, or both."""

    handle: "RequestHandle"
    token: int | None
    finish_reason: FinishReason | None


class RequestHandle:
    """A submitted request. Any thread may read it; only a `BatchScheduler` writes to it.

        for token in handle.stream(): ...       # tokens as they are generated
        handle.result()                         # all tokens, once the sequence has ended

    `finish_reason` is "stop" (a stop token or stop string), "length", "cancelled" or "failed"; `error` holds the exception of a
    failed request.
    """

    request_id: int
    request: Request

    def __init__(self, request_id: int, request: Request):
        self.request_id, self.request = request_id, request
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None
        self.prompt: list[int] = []  # the tokens that the first step read
        self._condition = threading.Condition()

    def __repr__(self) -> str:
        return f"RequestHandle({self.request_id}, {len(self.tokens)} tokens, {self.finish_reason or 'running'})"

    def stream(self, timeout: float | None = None) -> Iterator[int]:
        """Yield all tokens from the first on, waiting for new ones until the sequence has ended.

        Raises `TimeoutError` after `timeout` seconds without a new token, and the original error if the request failed.
        """
        offset, is_running = 0, True
        while is_running:
            new_tokens, is_running = self._wait_for_tokens(offset, timeout)
            yield from new_tokens
            offset += len(new_tokens)
        if self.error is not None:
            raise self.error

    def result(self, timeout: float | None = None) -> list[int]:
        """Wait until the sequence has ended, and return all of its tokens."""
        return list(self.stream(timeout))

    def _wait_for_tokens(self, offset: int, timeout: float | None) -> tuple[list[int], bool]:
        """Wait for tokens after the first `offset`; returns them, and whether the request is still running."""
        with self._condition:
            if not self._condition.wait_for(
                lambda: len(self.tokens) > offset or self.finish_reason is not None, timeout
            ):
                raise TimeoutError(
                    f"{self!r}: no new token for {timeout} seconds; is a thread calling `BatchScheduler.step`?"
                )
            return self.tokens[offset:], self.finish_reason is None

    # called by the BatchScheduler

    def append_next(self, scores: Tensor, best_token: int | None = None) -> RequestEvent | None:
        """Sample the next token from the scores (1, V), unless `best_token` gives it; None if the request has ended."""
        if self.finish_reason is not None:  # cancelled during the forward pass
            return None
        try:
            token = self._choose_token(scores) if best_token is None else best_token
            if token in self.request.stop_ids:
                return self.finish("stop")
            reason = self._finish_reason_after([*self.tokens, token])
        except Exception as error:  # raised by this request's sampler, processor or stop condition: the others go on
            return self.finish("failed", error)
        return self._record(token, reason)

    def finish(self, reason: FinishReason, error: Exception | None = None) -> RequestEvent | None:
        """End the request without a token; None if it had ended before."""
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
        processed = apply_processors(self.request.criteria.processors, scores, self._history(self.tokens))
        token = self.request.sampler(processed)
        if token.shape != (1,):
            raise UsageError(f"A sampler must return one token per row, of shape (1,); got {tuple(token.shape)}.")
        return int(token)

    def _finish_reason_after(self, tokens: list[int]) -> FinishReason | None:
        """The reason to stop after these tokens; None if the sequence continues."""
        criteria = self.request.criteria
        if criteria.stop_condition is not None and criteria.finished_rows(self._history(tokens))[0]:
            return "stop"
        return "length" if len(tokens) >= criteria.max_new_tokens else None

    def _history(self, tokens: list[int]) -> TokenHistory:
        return TokenHistory([self.prompt], [list(tokens)], self.request.criteria.max_new_tokens)


def single_source(batch: Batch) -> list[int] | Media:
    """The source of a batch of one row: the token ids of a text without padding, or another source unchanged."""
    source = batch.source
    if len(source) != 1:
        raise UsageError(f"A request is one row; the batch has {len(source)}. Submit each row by itself.")
    if not isinstance(source, Text):
        return source
    if source.document_ids is not None or source.segment_ids is not None or source.global_mask is not None:
        raise UsageError(
            "A request takes tokens and `keep` only; segment_ids, document_ids and global_mask are not supported."
        )
    tokens = source.tokens[0][source.keep_mask[0]]
    if not len(tokens):
        raise UsageError("The text is empty; give at least one token.")
    return tokens.tolist()
