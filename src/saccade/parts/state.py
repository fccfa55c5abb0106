"""The KV cache and other decoding state of a model: keys, values, hidden states, and the padding mask of the tokens so far.

The state lives outside the modules: a `State` is passed in, its tensors are never changed in place, and the batch is their
first dimension. So beam search can reorder its rows, speculative decoding can roll it back, and continuous batching can add
and remove requests, without any module being involved.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention import Bias, Pattern, Sight, make_positions


@dataclass(frozen=True)
class Slot:
    """One tensor of the state; `axis` is the dimension along which rows may differ in length, None if there is none."""

    tensor: Tensor
    axis: int | None
    grows: bool = False  # whether it grows along the axis with each token, as keys and values do


@dataclass(frozen=True)
class Snapshot:
    """A saved state to restore."""

    slots: dict[str, Slot]
    keep: Tensor | None
    length: int
    new_tokens: int
    document_ids: Tensor | None = None


class State:
    """The decoding state (KV cache) of one batch.

    >>> state = State()
    >>> state.advance((1, 2))
    >>> layer = state.at("layer.0")
    >>> layer.append("key", torch.zeros(1, 4, 2, 8)).shape
    torch.Size([1, 4, 2, 8])
    >>> snapshot = state.snapshot()
    >>> state.advance((1, 1))
    >>> state.q_pos.tolist(), layer.append("key", torch.zeros(1, 4, 1, 8)).shape
    ([[2]], torch.Size([1, 4, 3, 8]))
    >>> state.restore(snapshot)
    >>> state.length, layer.get("key").shape
    (2, torch.Size([1, 4, 2, 8]))
    """

    def __init__(self, root: "State | None" = None, path: str = ""):
        self._root_state, self._path = root, path
        if root is None:
            self._slots: dict[str, Slot] = {}
            self._keep: Tensor | None = None  # (B, length)
            self._length = self._new_tokens = 0
            self._document_ids: Tensor | None = None  # (B, length), for packed rows
            self._group_shared: dict[str, Tensor] = {}  # tensors that are still the same for all rows of a group
            self._rows_per_group = 1  # the `times` of `expand_rows`, for example the number of beams

    @property
    def _root(self) -> Self:
        """The state that this is a view of; a root does not refer to itself, so that it is freed without garbage collection."""
        return self._root_state or self  # type: ignore[return-value]

    # used by modules

    def at(self, name: str) -> "State":
        """A view of the state for one module: names are prefixed with the name of the module."""
        return State(self._root, f"{self._path}{name}.")

    def get(self, name: str) -> Tensor | None:
        """The stored tensor of that name, or None."""
        slot = self._root._slots.get(self._path + name)
        return None if slot is None else slot.tensor

    def put(self, name: str, x: Tensor, axis: int | None = None) -> Tensor:
        """Store x, replacing the previous tensor of that name."""
        self._root._slots[self._path + name] = Slot(x, axis)
        return x

    def append(self, name: str, x: Tensor, axis: int = 2) -> Tensor:
        """Append x along `axis` to the stored tensor of that name, and return the whole."""
        before = self.get(name)
        x = x if before is None else torch.cat([before, x], dim=axis)
        self._root._slots[self._path + name] = Slot(x, axis, grows=True)
        return x

    def get_or_make(self, name: str, make: Callable[[], Tensor], axis: int | None = 2) -> Tensor:
        """The stored tensor of that name; the first call makes it."""
        stored = self.get(name)
        return self.put(name, make(), axis) if stored is None else stored

    # tokens so far

    def advance(self, shape: tuple[int, int], keep: Tensor | None = None, document_ids: Tensor | None = None) -> None:
        """Register new tokens, (B, T), before the layers process them; `keep` (B, T) is False for padding.

        `document_ids` (B, T) numbers the texts of packed rows, which must be processed in one pass and cannot be continued.
        """
        root = self._root
        if (document_ids is not None and root._length) or root._document_ids is not None:
            raise ValueError(
                "Packed rows (several texts per row) must be processed in one pass; they cannot continue a state or be continued."
            )
        root._document_ids = document_ids
        batch, new = shape
        if keep is not None or root._keep is not None:
            device = keep.device if keep is not None else root._keep.device  # type: ignore[union-attr]
            new_keep = torch.ones(batch, new, dtype=torch.bool, device=device) if keep is None else keep
            old_keep = new_keep.new_ones(batch, root._length) if root._keep is None else root._keep
            root._keep = torch.cat([old_keep, new_keep], dim=1)
        root._length += new
        root._new_tokens = new

    def undo_advance(self) -> None:
        """Undo the last `advance` before any layer has processed its tokens, for example because they were too many.

        >>> state = State()
        >>> state.advance((1, 2))
        >>> state.advance((1, 9))
        >>> state.undo_advance()
        >>> state.length
        2
        """
        root = self._root
        root._length -= root._new_tokens
        root._new_tokens = 0
        root._keep = None if root._keep is None else root._keep[:, : root._length]

    @property
    def length(self) -> int:
        """The number of tokens so far, including padding."""
        return self._root._length

    @property
    def keep(self) -> Tensor | None:
        """(B, length) padding mask of the tokens so far: True = real token; None = no padding."""
        return self._root._keep

    @property
    def k_pos(self) -> Tensor:
        """(B|1, length): the position of each token in its text."""
        keep, document_ids = self.keep, self._root._document_ids
        if keep is None and document_ids is None:
            return torch.arange(self.length)[None]
        return make_positions(keep, document_ids)

    @property
    def q_pos(self) -> Tensor:
        """(B|1, T): the positions of the new tokens."""
        return self.k_pos[:, self.length - self._root._new_tokens :]

    def make_sight(self, pattern: Pattern, bias: Bias | None = None, device: torch.device | None = None) -> Sight:
        """The attention mask of the new tokens over all tokens so far."""
        new = self._root._new_tokens
        if self.length == new:
            return Sight(pattern, keep=self.keep, bias=bias, document_ids=self._root._document_ids)
        query_keep = None if self.keep is None else self.keep[:, -new:]
        return Sight(
            pattern, self.q_pos.to(device), self.k_pos.to(device), self.keep, bias, query_keep, queries_are_last=True
        )

    # used by beam search, speculative decoding and continuous batching

    def reorder(self, rows: Tensor) -> None:
        """Select rows of the batch, in this order, as beam search does; a row may be selected several times or never."""
        root = self._root
        shared, groups_stay = self._find_group_shared(rows)
        slots = {}
        for name, slot in root._slots.items():
            unchanged = groups_stay and slot.tensor is shared.get(name)  # a permutation of equal rows changes nothing
            slots[name] = slot if unchanged else replace(slot, tensor=slot.tensor.index_select(0, rows))
        root._group_shared = {
            name: slots[name].tensor for name, slot in root._slots.items() if slot.tensor is shared.get(name)
        }
        root._slots = slots
        root._keep = None if root._keep is None else root._keep.index_select(0, rows)

    def expand_rows(self, times: int) -> None:
        """Repeat each row `times` times, as for beams; `reorder` within a group does not copy tensors that no step replaces."""
        root = self._root
        if not root._slots:
            raise ValueError("This state remembers nothing yet; run the first step before expanding its rows.")
        first = next(iter(root._slots.values())).tensor
        root._group_shared, root._rows_per_group = {}, 1
        self.reorder(torch.arange(len(first), device=first.device).repeat_interleave(times))
        root._group_shared = {name: slot.tensor for name, slot in root._slots.items() if not slot.grows}
        root._rows_per_group = times

    def _find_group_shared(self, rows: Tensor) -> tuple[dict[str, Tensor], bool]:
        """The tensors that stay equal within each group under this order of rows, and whether all groups keep their places."""
        shared, times = self._root._group_shared, self._root._rows_per_group
        if not shared or len(rows) % times:
            return {}, False
        groups = (rows // times).view(-1, times)
        if not bool((groups == groups[:, :1]).all()):
            return {}, False
        group_count = len(next(iter(shared.values()))) // times
        return shared, groups[:, 0].tolist() == list(range(group_count))

    def snapshot(self) -> Snapshot:
        """The current state, to `restore` later; it copies nothing, since tensors are never changed in place."""
        root = self._root
        return Snapshot(dict(root._slots), root._keep, root._length, root._new_tokens, root._document_ids)

    def restore(self, snapshot: Snapshot) -> None:
        """Discard everything after the snapshot."""
        root = self._root
        root._slots, root._keep, root._length, root._new_tokens = (
            dict(snapshot.slots),
            snapshot.keep,
            snapshot.length,
            snapshot.new_tokens,
        )
        root._document_ids = snapshot.document_ids

    def append_rows(self, other: "State") -> None:
        """Append the rows of another state to the batch; shorter sequences are padded on the left."""
        first, second = self._root, other._root
        if first._slots.keys() != second._slots.keys():
            different = sorted(first._slots.keys() ^ second._slots.keys())
            raise ValueError(
                f"Only states of the same model can be joined; these differ in {', '.join(different[:5])}."
            )
        if not first._slots:
            raise ValueError("These states are empty; run `start` on both before joining them.")
        batches = [next(iter(state._slots.values())).tensor.size(0) for state in (first, second)]
        length = max(first._length, second._length)
        keeps = [state._make_keep(batch) for state, batch in zip((first, second), batches, strict=True)]
        merged = {}
        for name, slot in first._slots.items():
            pair, axis = (slot.tensor, second._slots[name].tensor), slot.axis
            if axis is not None:
                size = max(x.size(axis) for x in pair)
                pair = tuple(_pad_left(x, size, axis) for x in pair)
            merged[name] = replace(slot, tensor=torch.cat(pair))
        first._slots, first._length = merged, length
        keep = torch.cat([_pad_left(keep, length, 1) for keep in keeps])
        first._keep = None if bool(keep.all()) else keep

    def drop_rows(self, rows: Tensor) -> None:
        """Remove rows from the batch, and then leading columns that are padding in all remaining rows."""
        root = self._root
        if not root._slots:
            raise ValueError("This state is empty, so there are no rows to drop.")
        batch = next(iter(root._slots.values())).tensor.size(0)
        keeps_row = torch.ones(batch, dtype=torch.bool, device=rows.device)
        keeps_row[rows] = False
        self.reorder(keeps_row.nonzero().squeeze(1))
        if root._keep is None or not len(root._keep):
            return
        empty = int((root._keep.any(0).long().cumsum(0) == 0).sum())  # leading columns without a real token
        for name, slot in root._slots.items():
            if slot.grows and slot.axis is not None:
                trimmed = slot.tensor.narrow(slot.axis, empty, root._length - empty)
                root._slots[name] = replace(slot, tensor=trimmed)
        root._keep, root._length = root._keep[:, empty:], root._length - empty
        root._keep = None if bool(root._keep.all()) else root._keep

    def _make_keep(self, batch: int) -> Tensor:
        if self._keep is not None:
            return self._keep
        device = next(iter(self._slots.values())).tensor.device
        return torch.ones(batch, self._length, dtype=torch.bool, device=device)


def _pad_left(x: Tensor, size: int, axis: int) -> Tensor:
    """Pad with zeros (False) on the left, along one axis, up to `size`."""
    missing = size - x.size(axis)
    return F.pad(x, [0, 0] * (x.dim() - 1 - axis) + [missing, 0]) if missing else x
