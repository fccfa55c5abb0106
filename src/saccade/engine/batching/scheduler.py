"""Continuous batching: requests of different lengths join and leave one running batch between two decoding steps.

    scheduler = BatchScheduler(model.eval(), batch_size=8, max_total_tokens=512)
    handle = scheduler.submit(Batch(Text.pad([ids])), StoppingCriteria(stop_ids=2, max_new_tokens=64), Sampler(seed=3))
    while scheduler.has_work:
        for event in scheduler.step(): ...  # one token for each running request
    handle.tokens



Every autoregressive model works, and each request has its own sampler, logits processors and stopping criteria. A request gets
the tokens that `generate` gives for it alone, up to rounding. With `fixed_rows` they are the same to the last bit whatever else
is in the batch, on a CPU with a given number of threads; see `rows` for what that costs.

**Threads.** One thread calls `wait` and `step` in a loop; other threads may `submit`, `cancel` and read handles (`stream`,
`result`) meanwhile. The lock of the queue is held only briefly, so `submit` and `cancel` never wait for a forward pass.
"""

import threading
from collections import deque
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from saccade.data import Batch
from saccade.decoding import SamplerFunction, StoppingCriteria, greedy
from saccade.decoding.loop import prefill
from saccade.engine.batching.request import Request, RequestEvent, RequestHandle, single_source
from saccade.engine.batching.rows import DynamicRows, FixedRows, RequestSource, batch_sources
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel


class QueueFull(Exception):
    """The queue holds `max_waiting` requests already; try again later."""


class BatchScheduler:
    """Generates up to `batch_size` sequences at once, while up to `max_waiting` requests wait in a first-in-first-out queue.

    `max_total_tokens` limits the tokens of a request: prompt and new tokens together for a decoder-only model, each of source and
    target for an encoder-decoder.
    """

    model: AutoregressiveModel
    batch_size: int
    max_total_tokens: int

    def __init__(
        self,
        model: AutoregressiveModel,
        batch_size: int,
        max_total_tokens: int,
        fixed_rows: bool = False,
        *,
        max_waiting: int = 64,
    ):
        _check_arguments(model, batch_size, max_total_tokens, max_waiting)
        device = next((p.device for p in getattr(model, "parameters", tuple)()), torch.device("cpu"))
        self.model, self.batch_size, self.max_total_tokens, self.device = model, batch_size, max_total_tokens, device
        self._rows = (
            FixedRows(model, batch_size, max_total_tokens, device)
            if fixed_rows
            else DynamicRows(model, batch_size, device)
        )
        self._max_waiting, self._request_ids = max_waiting, count()
        self._waiting: deque[RequestHandle] = deque()
        self._cancelled_events: list[RequestEvent] = []  # cancelled since the last step
        self._is_closed = False
        self._model_facts: ModelFacts | None = None
        self._step_lock = threading.Lock()  # held during a step
        self._condition = threading.Condition()  # guards the queue, `_cancelled_events` and `_is_closed`

    # thread-safe methods

    def submit(
        self, batch: Batch, criteria: StoppingCriteria, sampler: SamplerFunction = greedy, *, copy_index: int = 0
    ) -> RequestHandle:
        """Queue a request for the one row of a batch; raises `QueueFull` when the queue is full.

        A `sampler` with state of its own, such as `Sampler`, must not be shared between requests. With `fixed_rows`, equal
        requests get the same row and run one after the other, unless their `copy_index` differs.
        """
        source = single_source(batch)
        facts = self._model_facts = self._model_facts or probe_model(self.model, source, self.device)
        request = Request(source, criteria, sampler, criteria.resolve_stop_ids(facts.vocab), copy_index)
        self._check_length(facts, source, criteria.max_new_tokens)
        with self._condition:
            if self._is_closed:
                raise RuntimeError("This BatchScheduler is closed and takes no more requests; make a new one.")
            if len(self._waiting) >= self._max_waiting:
                raise QueueFull(f"The queue is full: {self._max_waiting} requests are waiting; try again later.")
            self._rows.check_source(source)
            handle = RequestHandle(next(self._request_ids), request)
            self._waiting.append(handle)
            self._condition.notify_all()
        return handle

    def cancel(self, handle: RequestHandle) -> bool:
        """Cancel a request; its row is free from the next step on. False if it had ended before."""
        event = handle.finish("cancelled")
        if event is None:
            return False
        with self._condition:
            self._cancelled_events.append(event)
            if handle in self._waiting:
                self._waiting.remove(handle)
            self._condition.notify_all()
        return True

    @property
    def has_work(self) -> bool:
        """Whether a step has requests to run or events to report."""
        return bool(self._waiting or self._cancelled_events or self._rows.running)

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait for a row."""
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """The number of requests that have a row."""
        return len(self._rows.running)

    def close(self) -> None:
        """Cancel all requests and accept no new ones."""
        with self._step_lock:
            with self._condition:
                self._is_closed = True
            for handle in [*self._waiting, *self._rows.running]:
                self.cancel(handle)
            self._drop_finished()

    # methods of the one thread that steps

    def wait(self, timeout: float | None = None) -> bool:
        """Block until there is work; False after `timeout` seconds or when the scheduler was closed."""
        with self._condition:
            self._condition.wait_for(lambda: self.has_work or self._is_closed, timeout)
            return self.has_work

    @torch.no_grad()
    def step(self) -> list[RequestEvent]:
        """Generate one token for each running request and prefill admitted ones; returns the events since the last step."""
        admitted: list[RequestHandle] = []
        with self._step_lock:
            try:
                self._drop_finished()
                with self._condition:
                    events, self._cancelled_events = self._cancelled_events, []
                    admitted = self._rows.admit(self._waiting)
                events += self._step_running()
                for group in self._rows.group_for_prefill(admitted):
                    events += self._prefill(group)
                self._drop_finished()
            except BaseException:  # such as Ctrl-C: the state after half a step is not usable
                for handle in [*self._rows.running, *admitted]:
                    handle.finish("failed", RuntimeError("The thread that steps was interrupted; submit again."))
                self._drop_finished()
                raise
            return events

    def _drop_finished(self) -> None:
        """Remove finished requests from the batch."""
        self._rows.drop_requests({handle for handle in self._rows.running if handle.finish_reason is not None})

    def _step_running(self) -> list[RequestEvent]:
        running = self._rows.running
        if not running:
            return []
        try:
            return _choose_tokens(*self._rows.step())
        except Exception as error:  # of the model, so the state of no request can be trusted
            return _fail_requests(running, error)

    def _prefill(self, handles: list[RequestHandle]) -> list[RequestEvent]:
        """Prefill a group of new requests together, sample the first token of each, and give a row to those that continue."""
        handles = [handle for handle in handles if handle.finish_reason is None]
        if not handles:
            return []
        try:
            batch = Batch(batch_sources([handle.request.source for handle in handles]))
            state, scores, history = prefill(self.model, batch.to(self.device), max_new_tokens=1)
        except Exception as error:
            if len(handles) > 1:  # find the request that fails by prefilling each of them alone
                return [event for handle in handles for event in self._prefill([handle])]
            return _fail_requests(handles, error)
        for handle, prompt in zip(handles, history.prompt, strict=True):
            handle.prompt = prompt
        events = _choose_tokens(handles, scores)
        ended = {row for row, handle in enumerate(handles) if handle.finish_reason is not None}
        if len(ended) < len(handles):
            if ended:
                state.drop_rows(torch.tensor(sorted(ended), device=self.device))
            self._rows.add_requests([handle for row, handle in enumerate(handles) if row not in ended], state)
        return events

    def _check_length(self, facts: "ModelFacts", source: RequestSource, max_new_tokens: int) -> None:
        """Refuse a request that is longer than `max_total_tokens`."""
        length = len(source) if isinstance(source, list) else 1
        needed = max(facts.start_tokens + max_new_tokens + (length - 1 if facts.continues_source else 0), length)
        if needed > self.max_total_tokens:
            raise UsageError(
                f"A text of {length} tokens and {max_new_tokens} new ones need {needed} tokens; max_total_tokens is "
                f"{self.max_total_tokens}. Shorten the text, lower max_new_tokens, or make a BatchScheduler with a larger limit."
            )


@dataclass(frozen=True)
class ModelFacts:
    """Properties of a model that decide whether a request fits."""

    continues_source: bool  # decoder-only: the source is the prompt, not the input of an encoder
    start_tokens: int  # number of tokens that the first step reads for a source of one token
    vocab: int


@torch.no_grad()
def probe_model(model: AutoregressiveModel, source: RequestSource, device: torch.device) -> ModelFacts:
    """Run the model on the shortest source of this kind."""
    state, text = model.start(Batch(batch_sources([[0]] if isinstance(source, list) else [source])).to(device))
    continues = not state.snapshot().slots
    return ModelFacts(continues, text.tokens.size(1), model.step(text, state).size(-1))


def _choose_tokens(handles: list[RequestHandle], scores: Tensor) -> list[RequestEvent]:
    """Choose the next token of each row; the argmax of greedy requests is computed for all rows at once."""
    top, best = scores.max(-1)
    rows = zip(handles, best.tolist(), top.isfinite().tolist(), strict=True)
    greedy_tokens = [token if finite and handle.request.is_greedy else None for handle, token, finite in rows]
    events = [handle.append_next(scores[row : row + 1], greedy_tokens[row]) for row, handle in enumerate(handles)]
    return [event for event in events if event is not None]


def _fail_requests(handles: list[RequestHandle], error: Exception) -> list[RequestEvent]:
    events = [handle.finish("failed", error) for handle in handles]
    return [event for event in events if event is not None]


def _check_arguments(model: AutoregressiveModel, batch_size: int, max_total_tokens: int, max_waiting: int) -> None:
    if batch_size < 1 or max_total_tokens < 2 or max_waiting < 1:
        raise UsageError(
            "A BatchScheduler needs batch_size >= 1, max_total_tokens >= 2 (one read, one generated) and max_waiting >= 1; got "
            f"batch_size={batch_size}, max_total_tokens={max_total_tokens}, max_waiting={max_waiting}."
        )
    limit = getattr(model, "max_positions", None)
    if limit is not None and max_total_tokens > limit:
        raise UsageError(
            f"This model reads at most {limit} tokens; max_total_tokens={max_total_tokens} is more. Use max_total_tokens={limit}."
        )
    if getattr(model, "training", False):
        raise UsageError(
            "The model is in training mode, where dropout changes the results; call model.eval() before making a BatchScheduler."
        )
