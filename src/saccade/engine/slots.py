"""Continuous batching: requests of different lengths join and leave one batch between two steps, and nobody notices.

    slots = Slots(model.eval(), size=8, limit=512)
    ticket = slots.submit(Batch(Text.of([ids])), Bounds(stop=2, limit=64), Draw(seed=3))
    while slots.busy:
        for event in slots.step(): ...      # one token for each request that is going on
    ticket.tokens

Any writer will do, and each request has its own choice, rules and end. It gets what `generate` would have written for it
alone, up to rounding; with `fixed` the very same bits whoever else is there, on a CPU with a given number of threads, for the
price of `Fixed` rows (see `rows`).

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
from saccade.decoding import Bounds, Choose, greedy
from saccade.decoding.loop import begin
from saccade.engine.rows import Fixed, Loose, Source, together
from saccade.engine.ticket import Event, Request, Ticket, one_row
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel


class Full(Exception):
    """No more requests may wait; try again later."""


class Slots:
    """At most `size` requests are written at once and `waiting` wait, first come, first served.

    `limit` is the most tokens that a request may have: those it continues and those it writes, together; where the source
    is a text of its own, each of the two.
    """

    def __init__(self, model: AutoregressiveModel, size: int, limit: int, fixed: bool = False, *, waiting: int = 64):
        _checked(model, size, limit, waiting)
        device = next((p.device for p in getattr(model, "parameters", tuple)()), torch.device("cpu"))
        self.model, self.size, self.limit, self.device = model, size, limit, device
        self._rows = Fixed(model, size, limit, device) if fixed else Loose(model, size, device)
        self._most, self._numbers = waiting, count()
        self._waiting: deque[Ticket] = deque()
        self._gone: list[Event] = []  # cancelled since the last step
        self._closed = False
        self._about: About | None = None
        self._turn = threading.Lock()  # held during a step
        self._news = threading.Condition()  # guards the queue, `_gone` and `_closed`

    # what any thread may do

    def submit(self, batch: Batch, bounds: Bounds, choose: Choose = greedy, *, copy: int = 0) -> Ticket:
        """Ask for a text after the one row of a batch; raises `Full` when too many wait already.

        A `choose` that remembers, such as `Draw`, must be the request's own. In fixed slots equal requests get the same row,
        one after the other, unless they have different numbers (`copy`).
        """
        source = one_row(batch)
        about = self._about = self._about or learn(self.model, source, self.device)
        request = Request(source, bounds, choose, bounds.stops(about.vocab), copy)
        self._check_room(about, source, bounds.limit)
        with self._news:
            if self._closed:
                raise RuntimeError("These slots are closed and take no more requests; make new ones.")
            if len(self._waiting) >= self._most:
                raise Full(f"{self._most} requests wait already, and no more may; try again later.")
            self._rows.check(source)
            ticket = Ticket(next(self._numbers), request)
            self._waiting.append(ticket)
            self._news.notify_all()
        return ticket

    def cancel(self, ticket: Ticket) -> bool:
        """End a request at once; its row is free with the next step. False if it had ended before."""
        event = ticket.end("cancelled")
        if event is None:
            return False
        with self._news:
            self._gone.append(event)
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            self._news.notify_all()
        return True

    @property
    def busy(self) -> bool:
        """Whether a step would have something to do or to tell."""
        return bool(self._waiting or self._gone or self._rows.seated)

    @property
    def queued(self) -> int:
        """How many wait for a row."""
        return len(self._waiting)

    @property
    def seated(self) -> int:
        """How many rows are taken."""
        return len(self._rows.seated)

    def close(self) -> None:
        """Cancel whatever is going on, and take no more."""
        with self._turn:
            with self._news:
                self._closed = True
            for ticket in [*self._waiting, *self._rows.seated]:
                self.cancel(ticket)
            self._clear()

    # what the thread that steps does

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until there is something to do; False if `timeout` seconds have passed or the slots were closed."""
        with self._news:
            self._news.wait_for(lambda: self.busy or self._closed, timeout)
            return self.busy

    @torch.no_grad()
    def step(self) -> list[Event]:
        """One token for each request that has a row, the newcomers among them; gives what happened since the last step."""
        newcomers: list[Ticket] = []
        with self._turn:
            try:
                self._clear()
                with self._news:
                    events, self._gone = self._gone, []
                    newcomers = self._rows.take(self._waiting)
                events += self._go_on()
                for group in self._rows.groups(newcomers):
                    events += self._read(group)
                self._clear()
            except BaseException:  # such as Ctrl-C: half a step is no state to go on from
                for ticket in [*self._rows.seated, *newcomers]:
                    ticket.end("failed", RuntimeError("The thread that writes was interrupted; submit again."))
                self._clear()
                raise
            return events

    def _clear(self) -> None:
        """Whoever has ended leaves."""
        self._rows.leave({ticket for ticket in self._rows.seated if ticket.ended is not None})

    def _go_on(self) -> list[Event]:
        seated = self._rows.seated
        if not seated:
            return []
        try:
            return _chosen(*self._rows.step())
        except Exception as error:  # of the model, so that nobody's state can be trusted
            return _failed(seated, error)

    def _read(self, tickets: list[Ticket]) -> list[Event]:
        """Read the sources of newcomers together, give each its first token, and a row if it goes on."""
        tickets = [ticket for ticket in tickets if ticket.ended is None]
        if not tickets:
            return []
        try:
            batch = Batch(together([ticket.request.source for ticket in tickets]))
            state, scores, sofar = begin(self.model, batch.to(self.device), limit=1)
        except Exception as error:
            if len(tickets) > 1:  # one of them is to blame
                return [event for ticket in tickets for event in self._read([ticket])]
            return _failed(tickets, error)
        for ticket, prompt in zip(tickets, sofar.prompt, strict=True):
            ticket.prompt = prompt
        events = _chosen(tickets, scores)
        gone = {row for row, ticket in enumerate(tickets) if ticket.ended is not None}
        if len(gone) < len(tickets):
            if gone:
                state.leave(torch.tensor(sorted(gone), device=self.device))
            self._rows.join([ticket for row, ticket in enumerate(tickets) if row not in gone], state)
        return events

    def _check_room(self, about: "About", source: Source, limit: int) -> None:
        """Refuse at once what has no room in a slot."""
        long = len(source) if isinstance(source, list) else 1
        needed = max(about.begins + limit + (long - 1 if about.continues else 0), long)
        if needed > self.limit:
            raise UsageError(
                f"A text of {long} tokens and {limit} to be written need a slot of {needed} tokens; these have {self.limit}. "
                "Shorten the text, ask for fewer tokens, or make Slots with a larger limit."
            )


@dataclass(frozen=True)
class About:
    """What has to be known of a model before a request can be refused."""

    continues: bool  # its source is what it continues, not something that it looks at
    begins: int  # tokens that the first step reads after a source of one token
    vocab: int


@torch.no_grad()
def learn(model: AutoregressiveModel, source: Source, device: torch.device) -> About:
    """Let it read the shortest source of this kind."""
    state, text = model.start(Batch(together([[0]] if isinstance(source, list) else [source])).to(device))
    continues = not state.mark().slots
    return About(continues, text.tokens.size(1), model.step(text, state).size(-1))


def _chosen(tickets: list[Ticket], scores: Tensor) -> list[Event]:
    """The next token of each row; those that take the best are asked together."""
    top, best = scores.max(-1)
    known = zip(tickets, best.tolist(), top.isfinite().tolist(), strict=True)
    quick = [token if fine and ticket.request.greedy else None for ticket, token, fine in known]
    events = [ticket.take(scores[row : row + 1], quick[row]) for row, ticket in enumerate(tickets)]
    return [event for event in events if event is not None]


def _failed(tickets: list[Ticket], error: Exception) -> list[Event]:
    events = [ticket.end("failed", error) for ticket in tickets]
    return [event for event in events if event is not None]


def _checked(model: AutoregressiveModel, size: int, limit: int, waiting: int) -> None:
    if size < 1 or limit < 2 or waiting < 1:
        raise UsageError(
            f"Slots have at least one row, two tokens (one read, one written) and one place to wait; got size={size}, "
            f"limit={limit}, waiting={waiting}."
        )
    most = getattr(model, "limit", None)
    if most is not None and limit > most:
        raise UsageError(f"This model reads at most {most} tokens, so a slot cannot have {limit}; use limit={most}.")
    if getattr(model, "training", False):
        raise UsageError("In training dropout would change the answers; say model.eval() before making Slots.")
