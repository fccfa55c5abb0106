"""Continuous batching: requests of different lengths join and leave one batch between two steps, and nobody notices.

    scheduler = BatchScheduler(model.eval(), batch_size=8, max_total_tokens=512)
    handle = scheduler.submit(Batch(Text.pad([ids])), StoppingCriteria(stop_ids=2, max_new_tokens=64), Sampler(seed=3))
    while scheduler.has_work:
        for event in scheduler.step(): ...  # one token for each request that is going on
    handle.tokens

Any writer will do, and each request has its own choice, rules and end. It gets what `generate` would have written for it
alone, up to rounding; with `fixed_rows` the very same bits whoever else is there, on a CPU with a given number of threads,
for the price of `FixedRows` (see `rows`).

**Threads.** One thread steps, in a loop of `wait` and `step`; any other may `submit`, `cancel` and read tickets (`stream`,
`result`) meanwhile. A lock guards the queue for moments only: nobody who submits or cancels waits for the model.
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
    """No more requests may wait; try again later."""


class BatchScheduler:
    """At most `batch_size` requests are written at once and `max_waiting` wait, first come, first served.

    `max_total_tokens` is the most tokens that a request may have: those it continues and those it writes, together; where
    the source is a text of its own, each of the two.
    """

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

    # what any thread may do

    def submit(
        self, batch: Batch, criteria: StoppingCriteria, sampler: SamplerFunction = greedy, *, copy_index: int = 0
    ) -> RequestHandle:
        """Ask for a text after the one row of a batch; raises `QueueFull` when too many wait already.

        A `sampler` that remembers, such as `Sampler`, must be the request's own. In fixed slots equal requests get the same row,
        one after the other, unless they have different numbers (`copy_index`).
        """
        source = single_source(batch)
        about = self._model_facts = self._model_facts or probe_model(self.model, source, self.device)
        request = Request(source, criteria, sampler, criteria.resolve_stop_ids(about.vocab), copy_index)
        self._check_length(about, source, criteria.max_new_tokens)
        with self._condition:
            if self._is_closed:
                raise RuntimeError("These slots are closed and take no more requests; make new ones.")
            if len(self._waiting) >= self._max_waiting:
                raise QueueFull(f"{self._max_waiting} requests wait already, and no more may; try again later.")
            self._rows.check_source(source)
            ticket = RequestHandle(next(self._request_ids), request)
            self._waiting.append(ticket)
            self._condition.notify_all()
        return ticket

    def cancel(self, handle: RequestHandle) -> bool:
        """End a request at once; its row is free with the next step. False if it had ended before."""
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
        """Whether a step would have something to do or to tell."""
        return bool(self._waiting or self._cancelled_events or self._rows.running)

    @property
    def waiting_count(self) -> int:
        """How many wait for a row."""
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """How many rows are taken."""
        return len(self._rows.running)

    def close(self) -> None:
        """Cancel whatever is going on, and take no more."""
        with self._step_lock:
            with self._condition:
                self._is_closed = True
            for ticket in [*self._waiting, *self._rows.running]:
                self.cancel(ticket)
            self._drop_finished()

    # what the thread that steps does

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until there is something to do; False if `timeout` seconds have passed or the slots were closed."""
        with self._condition:
            self._condition.wait_for(lambda: self.has_work or self._is_closed, timeout)
            return self.has_work

    @torch.no_grad()
    def step(self) -> list[RequestEvent]:
        """One token for each request that has a row, the newcomers among them; gives what happened since the last step."""
        newcomers: list[RequestHandle] = []
        with self._step_lock:
            try:
                self._drop_finished()
                with self._condition:
                    events, self._cancelled_events = self._cancelled_events, []
                    newcomers = self._rows.admit(self._waiting)
                events += self._step_running()
                for group in self._rows.group_for_prefill(newcomers):
                    events += self._prefill(group)
                self._drop_finished()
            except BaseException:  # such as Ctrl-C: half a step is no state to go on from
                for ticket in [*self._rows.running, *newcomers]:
                    ticket.finish("failed", RuntimeError("The thread that writes was interrupted; submit again."))
                self._drop_finished()
                raise
            return events

    def _drop_finished(self) -> None:
        """Whoever has ended leaves."""
        self._rows.drop_requests({ticket for ticket in self._rows.running if ticket.finish_reason is not None})

    def _step_running(self) -> list[RequestEvent]:
        seated = self._rows.running
        if not seated:
            return []
        try:
            return _choose_tokens(*self._rows.step())
        except Exception as error:  # of the model, so that nobody's state can be trusted
            return _fail_requests(seated, error)

    def _prefill(self, handles: list[RequestHandle]) -> list[RequestEvent]:
        """Read the sources of newcomers together, give each its first token, and a row if it goes on."""
        handles = [ticket for ticket in handles if ticket.finish_reason is None]
        if not handles:
            return []
        try:
            batch = Batch(batch_sources([ticket.request.source for ticket in handles]))
            state, scores, sofar = prefill(self.model, batch.to(self.device), max_new_tokens=1)
        except Exception as error:
            if len(handles) > 1:  # one of them is to blame
                return [event for ticket in handles for event in self._prefill([ticket])]
            return _fail_requests(handles, error)
        for ticket, prompt in zip(handles, sofar.prompt, strict=True):
            ticket.prompt = prompt
        events = _choose_tokens(handles, scores)
        gone = {row for row, ticket in enumerate(handles) if ticket.finish_reason is not None}
        if len(gone) < len(handles):
            if gone:
                state.drop_rows(torch.tensor(sorted(gone), device=self.device))
            self._rows.add_requests([ticket for row, ticket in enumerate(handles) if row not in gone], state)
        return events

    def _check_length(self, facts: "ModelFacts", source: RequestSource, max_new_tokens: int) -> None:
        """Refuse at once what has no room in a slot."""
        long = len(source) if isinstance(source, list) else 1
        needed = max(facts.start_tokens + max_new_tokens + (long - 1 if facts.continues_source else 0), long)
        if needed > self.max_total_tokens:
            raise UsageError(
                f"A text of {long} tokens and {max_new_tokens} to be written need a slot of {needed} tokens; these "
                f"have {self.max_total_tokens}. "
                "Shorten the text, ask for fewer tokens, or make Slots with a larger limit."
            )


@dataclass(frozen=True)
class ModelFacts:
    """What has to be known of a model before a request can be refused."""

    continues_source: bool  # its source is what it continues, not something that it looks at
    start_tokens: int  # tokens that the first step reads after a source of one token
    vocab: int


@torch.no_grad()
def probe_model(model: AutoregressiveModel, source: RequestSource, device: torch.device) -> ModelFacts:
    """Let it read the shortest source of this kind."""
    state, text = model.start(Batch(batch_sources([[0]] if isinstance(source, list) else [source])).to(device))
    continues = not state.snapshot().slots
    return ModelFacts(continues, text.tokens.size(1), model.step(text, state).size(-1))


def _choose_tokens(handles: list[RequestHandle], scores: Tensor) -> list[RequestEvent]:
    """The next token of each row; those that take the best are asked together."""
    top, best = scores.max(-1)
    known = zip(handles, best.tolist(), top.isfinite().tolist(), strict=True)
    quick = [token if fine and ticket.request.is_greedy else None for ticket, token, fine in known]
    events = [ticket.append_next(scores[row : row + 1], quick[row]) for row, ticket in enumerate(handles)]
    return [event for event in events if event is not None]


def _fail_requests(handles: list[RequestHandle], error: Exception) -> list[RequestEvent]:
    events = [ticket.finish("failed", error) for ticket in handles]
    return [event for event in events if event is not None]


def _check_arguments(model: AutoregressiveModel, batch_size: int, max_total_tokens: int, max_waiting: int) -> None:
    if batch_size < 1 or max_total_tokens < 2 or max_waiting < 1:
        raise UsageError(
            "Slots have at least one row, two tokens (one read, one written) and one place to wait; got "
            f"batch_size={batch_size}, "
            f"max_total_tokens={max_total_tokens}, max_waiting={max_waiting}."
        )
    most = getattr(model, "max_positions", None)
    if most is not None and max_total_tokens > most:
        raise UsageError(
            f"This model reads at most {most} tokens, so a slot cannot have {max_total_tokens}; use max_total_tokens={most}."
        )
    if getattr(model, "training", False):
        raise UsageError(
            "In training dropout would change the answers; say model.eval() before making a BatchScheduler."
        )
