"""The rows that many requests have in one state: as many as there are requests, or always the same number.

`Loose` rows are what is fast: whoever ends leaves the batch and takes along the columns that only it needed. How a sum is
rounded then depends on how many rows and columns there are, so an answer is that of a lone request up to rounding.

`Fixed` rows are what is exact. Kernels round by the shapes they get and by the number of the row (the last columns that fill
no vector, the part of the batch that a second thread takes), never by what stands in other rows. So the shapes are always
the same, idle rows are padding, a text ends in the last column, a prompt is read by itself, and a request gets the row that
follows from its own content: it may have to wait for that row while others are idle.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Image, Points, Text
from saccade.engine.ticket import Ticket, values
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import Slot, State

Source = list[int] | Image | Points


class Loose:
    """A row for each request that is going on, and none else."""

    def __init__(self, model: AutoregressiveModel, size: int, device: torch.device):
        self.model, self.size, self.device = model, size, device
        self.seated: list[Ticket] = []
        self.state: State | None = None
        self._sizes: list[dict[str, int]] = []  # how much of each tensor that does not grow a row needs

    def check(self, source: Source) -> None:
        """Any source will do."""

    def take(self, waiting: deque[Ticket]) -> list[Ticket]:
        """Those who have waited longest, as many as there is room for."""
        return [waiting.popleft() for _ in range(min(len(waiting), self.size - len(self.seated)))]

    def groups(self, newcomers: Iterable[Ticket]) -> list[list[Ticket]]:
        """Who is read together: texts of like length, from one power of two to the next, and pictures of one size."""
        groups: dict[object, list[Ticket]] = {}
        for ticket in newcomers:
            source = ticket.request.source
            alike = (len(source) - 1).bit_length() if isinstance(source, list) else values(source).shape
            groups.setdefault(alike, []).append(ticket)
        return list(groups.values())

    def join(self, tickets: list[Ticket], state: State) -> None:
        """Let the rows of a state that has been read sit down below the others."""
        slots = state.mark().slots
        needed = {name: slot.tensor.size(_axis(slot)) for name, slot in slots.items() if _lasting(slot)}
        if self.state is None:
            self.state = state
        else:
            self.state.join(state)
        self.seated += tickets
        self._sizes += [needed] * len(tickets)

    def step(self) -> tuple[list[Ticket], Tensor]:
        """Read the last token of each row; gives the rows and the scores (B, V) of what follows."""
        assert self.state is not None, "nobody has joined"
        last = torch.tensor([[ticket.tokens[-1]] for ticket in self.seated], device=self.device)
        return list(self.seated), self.model.step(Text(last), self.state)[:, -1]

    def leave(self, gone: Collection[Ticket]) -> None:
        """Take these out, and what only they needed."""
        rows = [row for row, ticket in enumerate(self.seated) if ticket in gone]
        stay = [row for row, ticket in enumerate(self.seated) if ticket not in gone]
        self.seated = [self.seated[row] for row in stay]
        self._sizes = [self._sizes[row] for row in stay]
        if not stay:
            self.state = None
        elif rows and self.state is not None:
            self.state.leave(torch.tensor(rows, device=self.device))
            self._narrow(self.state)

    def _narrow(self, state: State) -> None:
        """What was read stays as long as it was; the longest who is here says how much of it is kept."""
        mark = state.mark()
        most = {name: max(sizes[name] for sizes in self._sizes) for name in self._sizes[0]}
        slots = {name: _sized(mark.slots[name], size) for name, size in most.items()}
        state.rewind(replace(mark, slots=mark.slots | slots))


class Fixed:
    """Always `size` rows of `limit` columns."""

    def __init__(self, model: AutoregressiveModel, size: int, limit: int, device: torch.device):
        self.model, self.size, self.limit, self.device = model, size, limit, device
        self.rows: list[Ticket | None] = [None] * size
        self.state: State | None = None
        self._shape: torch.Size | None = None

    @property
    def seated(self) -> list[Ticket]:
        return [ticket for ticket in self.rows if ticket is not None]

    def check(self, source: Source) -> None:
        """Texts are padded to the limit; pictures have to be of one size from the beginning."""
        if isinstance(source, list):
            return
        shape = values(source).shape
        self._shape = self._shape or shape
        if shape != self._shape:
            raise UsageError(
                f"In fixed slots all inputs have the shape of the first, {tuple(self._shape)}; got {tuple(shape)}. "
                "Resize it, or use Slots without `fixed`."
            )

    def take(self, waiting: deque[Ticket]) -> list[Ticket]:
        """For each idle row the one who has waited longest for it."""
        chosen: dict[int, Ticket] = {}
        for ticket in waiting:
            home = self._home(ticket)
            if self.rows[home] is None:
                chosen.setdefault(home, ticket)
        for ticket in chosen.values():
            waiting.remove(ticket)
        return list(chosen.values())

    def groups(self, newcomers: Iterable[Ticket]) -> list[list[Ticket]]:
        """Everyone is read alone."""
        return [[ticket] for ticket in newcomers]

    def join(self, tickets: list[Ticket], state: State) -> None:
        """Put a row that has been read where it belongs."""
        (ticket,) = tickets
        home = self._home(ticket)
        self._fit(state, text=isinstance(ticket.request.source, list))
        order = torch.arange(self.size, device=self.device)
        if self.state is None:  # idle rows hold copies, so that there is something finite to compute with
            self.state = state
            state.reorder(torch.zeros_like(order))
        else:
            order[home] = self.size
            self.state.join(state)
            self.state.reorder(order)
            self._fit(self.state)
        self.rows[home] = ticket

    def step(self) -> tuple[list[Ticket], Tensor]:
        """Read the last token of each row; gives the rows and the scores (B, V) of what follows."""
        assert self.state is not None, "nobody has joined"
        last = [[0 if ticket is None else ticket.tokens[-1]] for ticket in self.rows]
        real = torch.tensor([[ticket is not None] for ticket in self.rows], device=self.device)
        scores = self.model.step(Text(torch.tensor(last, device=self.device), real), self.state)[:, -1]
        self._fit(self.state)
        taken = [row for row, ticket in enumerate(self.rows) if ticket is not None]
        return self.seated, scores[taken]

    def leave(self, gone: Collection[Ticket]) -> None:
        """Let the rows of these be idle."""
        self.rows = [None if ticket in gone else ticket for ticket in self.rows]
        if not self.seated:
            self.state = None

    def _home(self, ticket: Ticket) -> int:
        return ticket.request.home % self.size

    def _fit(self, state: State, text: bool = False) -> None:
        """Leave room for the one column that the next step adds; a `text` has a memory that may be as long as the limit."""
        mark, length = state.mark(), self.limit - 1
        slots = {
            name: _sized(slot, length) if slot.grows else _sized(slot, self.limit) if text and _lasting(slot) else slot
            for name, slot in mark.slots.items()
        }
        keep = mark.keep
        if keep is None:
            rows = next(iter(slots.values())).tensor.size(0)
            keep = torch.ones(rows, mark.length, dtype=torch.bool, device=self.device)
        state.rewind(replace(mark, slots=slots, keep=_last(keep, length, 1), length=length))


def together(sources: list[Source]) -> Text | Image | Points:
    """Rows of one kind as one; texts end together, so that none has to wait for another in the middle of a row."""
    first = sources[0]
    if isinstance(first, list):
        return Text.of([source for source in sources if isinstance(source, list)], left=True)
    return type(first)(torch.cat([values(source) for source in sources if not isinstance(source, list)]))


def _lasting(slot: Slot) -> bool:
    """Whether it has columns that were there from the beginning, such as those of an encoded source."""
    return slot.axis is not None and not slot.grows


def _sized(slot: Slot, size: int) -> Slot:
    """The last columns of a slot, as many as asked for; zeros in front where there are fewer."""
    return Slot(_last(slot.tensor, size, _axis(slot)), slot.axis, slot.grows)


def _axis(slot: Slot) -> int:
    assert slot.axis is not None, "what has columns has an axis for them"
    return slot.axis


def _last(x: Tensor, size: int, axis: int) -> Tensor:
    missing = size - x.size(axis)
    if missing > 0:
        return F.pad(x, [0, 0] * (x.dim() - 1 - axis) + [missing, 0])
    return x if not missing else x.narrow(axis, -missing, size)
