"""The rows that many requests have in one state: as many as there are requests, or always the same number.

`DynamicRows` rows are what is fast: whoever ends leaves the batch and takes along the columns that only it needed. How a sum is
rounded then depends on how many rows and columns there are, so an answer is that of a lone request up to rounding.

`FixedRows` rows are what is exact. Kernels round by the shapes they get and by the number of the row (the last columns that fill
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

from saccade.data import Features, Image, Text
from saccade.engine.batching.request import RequestHandle, source_values
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import Slot, State

RequestSource = list[int] | Image | Features


class DynamicRows:
    """A row for each request that is going on, and none else."""

    def __init__(self, model: AutoregressiveModel, batch_size: int, device: torch.device):
        self.model, self.batch_size, self.device = model, batch_size, device
        self.running: list[RequestHandle] = []
        self.state: State | None = None
        self._column_counts: list[dict[str, int]] = []  # how much of each tensor that does not grow a row needs

    def check_source(self, source: RequestSource) -> None:
        """Any source will do."""

    def admit(self, waiting: deque[RequestHandle]) -> list[RequestHandle]:
        """Those who have waited longest, as many as there is room for."""
        return [waiting.popleft() for _ in range(min(len(waiting), self.batch_size - len(self.running)))]

    def group_for_prefill(self, new_handles: Iterable[RequestHandle]) -> list[list[RequestHandle]]:
        """Who is read together: texts of like length, from one power of two to the next, and pictures of one size."""
        groups: dict[object, list[RequestHandle]] = {}
        for ticket in new_handles:
            source = ticket.request.source
            alike = (len(source) - 1).bit_length() if isinstance(source, list) else source_values(source).shape
            groups.setdefault(alike, []).append(ticket)
        return list(groups.values())

    def add_requests(self, handles: list[RequestHandle], state: State) -> None:
        """Let the rows of a state that has been read sit down below the others."""
        slots = state.snapshot().slots
        needed = {
            name: slot.tensor.size(_column_axis(slot)) for name, slot in slots.items() if _has_fixed_columns(slot)
        }
        if self.state is None:
            self.state = state
        else:
            self.state.append_rows(state)
        self.running += handles
        self._column_counts += [needed] * len(handles)

    def step(self) -> tuple[list[RequestHandle], Tensor]:
        """Read the last token of each row; gives the rows and the scores (B, V) of what follows."""
        assert self.state is not None, "nobody has joined"
        last = torch.tensor([[ticket.tokens[-1]] for ticket in self.running], device=self.device)
        return list(self.running), self.model.step(Text(last), self.state)[:, -1]

    def drop_requests(self, finished_handles: Collection[RequestHandle]) -> None:
        """Take these out, and what only they needed."""
        rows = [row for row, ticket in enumerate(self.running) if ticket in finished_handles]
        stay = [row for row, ticket in enumerate(self.running) if ticket not in finished_handles]
        self.running = [self.running[row] for row in stay]
        self._column_counts = [self._column_counts[row] for row in stay]
        if not stay:
            self.state = None
        elif rows and self.state is not None:
            self.state.drop_rows(torch.tensor(rows, device=self.device))
            self._trim_columns(self.state)

    def _trim_columns(self, state: State) -> None:
        """What was read stays as long as it was; the longest who is here says how much of it is kept."""
        mark = state.snapshot()
        most = {name: max(sizes[name] for sizes in self._column_counts) for name in self._column_counts[0]}
        slots = {name: _resize_slot(mark.slots[name], size) for name, size in most.items()}
        state.restore(replace(mark, slots=mark.slots | slots))


class FixedRows:
    """Always `batch_size` rows of `max_total_tokens` columns."""

    def __init__(self, model: AutoregressiveModel, batch_size: int, max_total_tokens: int, device: torch.device):
        self.model, self.batch_size, self.max_total_tokens, self.device = model, batch_size, max_total_tokens, device
        self.rows: list[RequestHandle | None] = [None] * batch_size
        self.state: State | None = None
        self._input_shape: torch.Size | None = None

    @property
    def running(self) -> list[RequestHandle]:
        return [ticket for ticket in self.rows if ticket is not None]

    def check_source(self, source: RequestSource) -> None:
        """Texts are padded to the limit; pictures have to be of one size from the beginning."""
        if isinstance(source, list):
            return
        shape = source_values(source).shape
        self._input_shape = self._input_shape or shape
        if shape != self._input_shape:
            raise UsageError(
                f"In fixed slots all inputs have the shape of the first, {tuple(self._input_shape)}; got {tuple(shape)}. "
                "Resize it, or use Slots without `fixed_rows`."
            )

    def admit(self, waiting: deque[RequestHandle]) -> list[RequestHandle]:
        """For each idle row the one who has waited longest for it."""
        chosen: dict[int, RequestHandle] = {}
        for ticket in waiting:
            home = self._row_of(ticket)
            if self.rows[home] is None:
                chosen.setdefault(home, ticket)
        for ticket in chosen.values():
            waiting.remove(ticket)
        return list(chosen.values())

    def group_for_prefill(self, new_handles: Iterable[RequestHandle]) -> list[list[RequestHandle]]:
        """Everyone is read alone."""
        return [[ticket] for ticket in new_handles]

    def add_requests(self, handles: list[RequestHandle], state: State) -> None:
        """Put a row that has been read where it belongs."""
        (ticket,) = handles
        home = self._row_of(ticket)
        self._fit_columns(state, text=isinstance(ticket.request.source, list))
        order = torch.arange(self.batch_size, device=self.device)
        if self.state is None:  # idle rows hold copies, so that there is something finite to compute with
            self.state = state
            state.reorder(torch.zeros_like(order))
        else:
            order[home] = self.batch_size
            self.state.append_rows(state)
            self.state.reorder(order)
            self._fit_columns(self.state)
        self.rows[home] = ticket

    def step(self) -> tuple[list[RequestHandle], Tensor]:
        """Read the last token of each row; gives the rows and the scores (B, V) of what follows."""
        assert self.state is not None, "nobody has joined"
        last = [[0 if ticket is None else ticket.tokens[-1]] for ticket in self.rows]
        real = torch.tensor([[ticket is not None] for ticket in self.rows], device=self.device)
        scores = self.model.step(Text(torch.tensor(last, device=self.device), real), self.state)[:, -1]
        self._fit_columns(self.state)
        taken = [row for row, ticket in enumerate(self.rows) if ticket is not None]
        return self.running, scores[taken]

    def drop_requests(self, finished_handles: Collection[RequestHandle]) -> None:
        """Let the rows of these be idle."""
        self.rows = [None if ticket in finished_handles else ticket for ticket in self.rows]
        if not self.running:
            self.state = None

    def _row_of(self, handle: RequestHandle) -> int:
        return handle.request.content_hash % self.batch_size

    def _fit_columns(self, state: State, text: bool = False) -> None:
        """Leave room for the one column that the next step adds; a `text` has a memory that may be as long as the limit."""
        mark, length = state.snapshot(), self.max_total_tokens - 1
        slots = {
            name: _resize_slot(slot, length)
            if slot.grows
            else _resize_slot(slot, self.max_total_tokens)
            if text and _has_fixed_columns(slot)
            else slot
            for name, slot in mark.slots.items()
        }
        keep = mark.keep
        if keep is None:
            rows = next(iter(slots.values())).tensor.size(0)
            keep = torch.ones(rows, mark.length, dtype=torch.bool, device=self.device)
        state.restore(replace(mark, slots=slots, keep=_last_columns(keep, length, 1), length=length))


def batch_sources(sources: list[RequestSource]) -> Text | Image | Features:
    """Rows of one kind as one; texts end together, so that none has to wait for another in the middle of a row."""
    first = sources[0]
    if isinstance(first, list):
        return Text.pad([source for source in sources if isinstance(source, list)], pad_left=True)
    return type(first)(torch.cat([source_values(source) for source in sources if not isinstance(source, list)]))


def _has_fixed_columns(slot: Slot) -> bool:
    """Whether it has columns that were there from the beginning, such as those of an encoded source."""
    return slot.axis is not None and not slot.grows


def _resize_slot(slot: Slot, size: int) -> Slot:
    """The last columns of a slot, as many as asked for; zeros in front where there are fewer."""
    return Slot(_last_columns(slot.tensor, size, _column_axis(slot)), slot.axis, slot.grows)


def _column_axis(slot: Slot) -> int:
    assert slot.axis is not None, "what has columns has an axis for them"
    return slot.axis


def _last_columns(x: Tensor, size: int, axis: int) -> Tensor:
    missing = size - x.size(axis)
    if missing > 0:
        return F.pad(x, [0, 0] * (x.dim() - 1 - axis) + [missing, 0])
    return x if not missing else x.narrow(axis, -missing, size)
