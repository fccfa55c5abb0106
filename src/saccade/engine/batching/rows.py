"""Batch rows of continuous batching: how requests share one state, with a dynamic or a fixed batch size.

`DynamicRows` is fast: a finished request leaves the batch, together with the columns that only it needed. Floating-point sums
depend on the shape of the batch, so the result of a request equals that of a request by itself up to rounding.

`FixedRows` is reproducible to the last bit. How kernels round depends on tensor shapes and on the index of a row (the remainder
of a vectorized loop, the part of the batch that a second thread computes), never on the values in other rows. So shapes are
constant, idle rows are padding, every text ends in the last column, prompts are prefilled one by one, and the row of a request
follows from a hash of its content. A request may therefore wait for its row while other rows are idle.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Media, Source, Text
from saccade.engine.batching.request import RequestHandle
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import Slot, State

RequestSource = list[int] | Media


class DynamicRows:
    """As many rows as there are running requests."""

    model: AutoregressiveModel
    batch_size: int

    def __init__(self, model: AutoregressiveModel, batch_size: int, device: torch.device):
        self.model, self.batch_size, self.device = model, batch_size, device
        self.running: list[RequestHandle] = []
        self.state: State | None = None
        self._column_counts: list[dict[str, int]] = []  # per row: columns needed of each tensor that does not grow

    def check_source(self, source: RequestSource) -> None:
        """Every source is accepted."""

    def admit(self, waiting: deque[RequestHandle]) -> list[RequestHandle]:
        """Take requests from the queue, oldest first, while there are free rows."""
        return [waiting.popleft() for _ in range(min(len(waiting), self.batch_size - len(self.running)))]

    def group_for_prefill(self, new_handles: Iterable[RequestHandle]) -> list[list[RequestHandle]]:
        """Group requests for a joint prefill: texts of similar length (within a power of two), images of the same size."""
        groups: dict[object, list[RequestHandle]] = {}
        for handle in new_handles:
            source = handle.request.source
            size = (len(source) - 1).bit_length() if isinstance(source, list) else source.values.shape
            groups.setdefault(size, []).append(handle)
        return list(groups.values())

    def add_requests(self, handles: list[RequestHandle], state: State) -> None:
        """Append the rows of a prefilled state to the batch."""
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
        """One decoding step for every row: returns the requests and the scores (B, V) of their next tokens."""
        assert self.state is not None, "a step needs at least one request"
        last = torch.tensor([[handle.tokens[-1]] for handle in self.running], device=self.device)
        return list(self.running), self.model.step(Text(last), self.state)[:, -1]

    def drop_requests(self, finished_handles: Collection[RequestHandle]) -> None:
        """Remove finished requests, and the columns that only they needed."""
        rows = [row for row, handle in enumerate(self.running) if handle in finished_handles]
        kept = [row for row, handle in enumerate(self.running) if handle not in finished_handles]
        self.running = [self.running[row] for row in kept]
        self._column_counts = [self._column_counts[row] for row in kept]
        if not kept:
            self.state = None
        elif rows and self.state is not None:
            self.state.drop_rows(torch.tensor(rows, device=self.device))
            self._trim_columns(self.state)

    def _trim_columns(self, state: State) -> None:
        """Cut encoded sources to the length of the longest source that is still in the batch."""
        snapshot = state.snapshot()
        sizes = {name: max(counts[name] for counts in self._column_counts) for name in self._column_counts[0]}
        slots = {name: _resize_slot(snapshot.slots[name], size) for name, size in sizes.items()}
        state.restore(replace(snapshot, slots=snapshot.slots | slots))


class FixedRows:
    """Always `batch_size` rows of `max_total_tokens` columns."""

    model: AutoregressiveModel
    batch_size: int
    max_total_tokens: int

    def __init__(self, model: AutoregressiveModel, batch_size: int, max_total_tokens: int, device: torch.device):
        self.model, self.batch_size, self.max_total_tokens, self.device = model, batch_size, max_total_tokens, device
        self.rows: list[RequestHandle | None] = [None] * batch_size
        self.state: State | None = None
        self._input_shape: torch.Size | None = None

    @property
    def running(self) -> list[RequestHandle]:
        return [handle for handle in self.rows if handle is not None]

    def check_source(self, source: RequestSource) -> None:
        """Texts are padded to the limit; images and features must all have the shape of the first one."""
        if isinstance(source, list):
            return
        shape = source.values.shape
        self._input_shape = self._input_shape or shape
        if shape != self._input_shape:
            raise UsageError(
                f"With fixed_rows all inputs have the shape of the first, {tuple(self._input_shape)}; got {tuple(shape)}. "
                "Resize it, or make the BatchScheduler without fixed_rows."
            )

    def admit(self, waiting: deque[RequestHandle]) -> list[RequestHandle]:
        """Take for each idle row the request that has waited longest for it."""
        admitted: dict[int, RequestHandle] = {}
        for handle in waiting:
            row = self._row_of(handle)
            if self.rows[row] is None:
                admitted.setdefault(row, handle)
        for handle in admitted.values():
            waiting.remove(handle)
        return list(admitted.values())

    def group_for_prefill(self, new_handles: Iterable[RequestHandle]) -> list[list[RequestHandle]]:
        """Each request is prefilled by itself."""
        return [[handle] for handle in new_handles]

    def add_requests(self, handles: list[RequestHandle], state: State) -> None:
        """Put a prefilled request into its row."""
        (handle,) = handles
        row = self._row_of(handle)
        self._fit_columns(state, text=isinstance(handle.request.source, list))
        order = torch.arange(self.batch_size, device=self.device)
        if self.state is None:  # idle rows hold copies, so that all values are finite
            self.state = state
            state.reorder(torch.zeros_like(order))
        else:
            order[row] = self.batch_size
            self.state.append_rows(state)
            self.state.reorder(order)
            self._fit_columns(self.state)
        self.rows[row] = handle

    def step(self) -> tuple[list[RequestHandle], Tensor]:
        """One decoding step for every row: returns the requests and the scores (B, V) of their next tokens."""
        assert self.state is not None, "a step needs at least one request"
        last = [[0 if handle is None else handle.tokens[-1]] for handle in self.rows]
        real = torch.tensor([[handle is not None] for handle in self.rows], device=self.device)
        scores = self.model.step(Text(torch.tensor(last, device=self.device), real), self.state)[:, -1]
        self._fit_columns(self.state)
        occupied = [row for row, handle in enumerate(self.rows) if handle is not None]
        return self.running, scores[occupied]

    def drop_requests(self, finished_handles: Collection[RequestHandle]) -> None:
        """Free the rows of finished requests."""
        self.rows = [None if handle in finished_handles else handle for handle in self.rows]
        if not self.running:
            self.state = None

    def _row_of(self, handle: RequestHandle) -> int:
        return handle.request.content_hash % self.batch_size

    def _fit_columns(self, state: State, text: bool = False) -> None:
        """Bring all tensors to their fixed lengths, with one column left for the next step.

        An encoded `text` gets as many columns as the limit.
        """
        snapshot, length = state.snapshot(), self.max_total_tokens - 1
        slots = {
            name: _resize_slot(slot, length)
            if slot.grows
            else _resize_slot(slot, self.max_total_tokens)
            if text and _has_fixed_columns(slot)
            else slot
            for name, slot in snapshot.slots.items()
        }
        keep = snapshot.keep
        if keep is None:
            rows = next(iter(slots.values())).tensor.size(0)
            keep = torch.ones(rows, snapshot.length, dtype=torch.bool, device=self.device)
        state.restore(replace(snapshot, slots=slots, keep=_last_columns(keep, length, 1), length=length))


def batch_sources(sources: list[RequestSource]) -> Source:
    """Join sources of one kind into a batch; texts are padded on the left, so that all of them end in the last column."""
    first = sources[0]
    if isinstance(first, list):
        return Text.pad([source for source in sources if isinstance(source, list)], pad_left=True)
    return type(first).join([source for source in sources if isinstance(source, type(first))])  # type: ignore[arg-type]


def _has_fixed_columns(slot: Slot) -> bool:
    """Whether a slot has columns whose number does not change while decoding, such as those of an encoded source."""
    return slot.axis is not None and not slot.grows


def _resize_slot(slot: Slot, size: int) -> Slot:
    """The last `size` columns of a slot, padded with zeros on the left."""
    return Slot(_last_columns(slot.tensor, size, _column_axis(slot)), slot.axis, slot.grows)


def _column_axis(slot: Slot) -> int:
    assert slot.axis is not None, "a slot with columns has a column axis"
    return slot.axis


def _last_columns(x: Tensor, size: int, axis: int) -> Tensor:
    missing = size - x.size(axis)
    if missing > 0:
        return F.pad(x, [0, 0] * (x.dim() - 1 - axis) + [missing, 0])
    return x if not missing else x.narrow(axis, -missing, size)
