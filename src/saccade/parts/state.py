"""What a writer remembers between steps: keys, values, hidden states, and which tokens were real.

Memory lives outside the modules: `State` is handed in and out, tensors in it are never changed in place, and every one of
them has the batch in front. So beams reorder it, speculation rewinds it, and requests join and leave it, and no module
knows.
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
    """One remembered tensor; `axis` is the one along which rows of different length may differ, None if there is none."""

    tensor: Tensor
    axis: int | None
    grows: bool = False  # along the axis, with the text


@dataclass(frozen=True)
class Snapshot:
    """A moment to go back to."""

    slots: dict[str, Slot]
    keep: Tensor | None
    length: int
    new_tokens: int
    document_ids: Tensor | None = None


class State:
    """The memory of one batch of texts.

    >>> state = State()
    >>> state.advance((1, 2))
    >>> layer = state.at("layer.0")
    >>> layer.append("key", torch.zeros(1, 4, 2, 8)).shape
    torch.Size([1, 4, 2, 8])
    >>> mark = state.snapshot()
    >>> state.advance((1, 1))
    >>> state.q_pos.tolist(), layer.append("key", torch.zeros(1, 4, 1, 8)).shape
    ([[2]], torch.Size([1, 4, 3, 8]))
    >>> state.restore(mark)
    >>> state.length, layer.get("key").shape
    (2, torch.Size([1, 4, 2, 8]))
    """

    def __init__(self, root: "State | None" = None, path: str = ""):
        self._root_state, self._path = root, path
        if root is None:
            self._slots: dict[str, Slot] = {}
            self._keep: Tensor | None = None  # (B, length)
            self._length = self._new_tokens = 0
            self._document_ids: Tensor | None = None  # (B, length), where rows hold several texts
            self._group_shared: dict[
                str, Tensor
            ] = {}  # what `expand_rows` made equal for all rows of a group, and nobody replaced
            self._rows_per_group = 1  # rows of a group

    @property
    def _root(self) -> Self:
        """The memory that this is a part of; not kept in itself, or only the garbage collector would free it."""
        return self._root_state or self  # type: ignore[return-value]

    # what modules do

    def at(self, name: str) -> "State":
        """The part of the memory that belongs to one module."""
        return State(self._root, f"{self._path}{name}.")

    def get(self, name: str) -> Tensor | None:
        slot = self._root._slots.get(self._path + name)
        return None if slot is None else slot.tensor

    def put(self, name: str, x: Tensor, axis: int | None = None) -> Tensor:
        """Remember x in place of what was there."""
        self._root._slots[self._path + name] = Slot(x, axis)
        return x

    def append(self, name: str, x: Tensor, axis: int = 2) -> Tensor:
        """Remember x after what was there, and return it all."""
        before = self.get(name)
        x = x if before is None else torch.cat([before, x], dim=axis)
        self._root._slots[self._path + name] = Slot(x, axis, grows=True)
        return x

    def get_or_make(self, name: str, make: Callable[[], Tensor], axis: int | None = 2) -> Tensor:
        """What was remembered under that name; made now if this is the first time."""
        found = self.get(name)
        return self.put(name, make(), axis) if found is None else found

    # where the text stands

    def advance(self, shape: tuple[int, int], keep: Tensor | None = None, document_ids: Tensor | None = None) -> None:
        """Take note of new tokens, (B, T), before the layers see them; `keep` (B, T) is False where a token is padding.

        `document_ids` (B, T) numbers the texts where a row holds several; such a row is read at once and cannot be continued.
        """
        root = self._root
        if (document_ids is not None and root._length) or root._document_ids is not None:
            raise ValueError("A row that holds several texts is read at once; it cannot continue, or be continued.")
        root._document_ids = document_ids
        batch, new = shape
        if keep is not None or root._keep is not None:
            device = keep.device if keep is not None else root._keep.device  # type: ignore[union-attr]
            now = torch.ones(batch, new, dtype=torch.bool, device=device) if keep is None else keep
            before = now.new_ones(batch, root._length) if root._keep is None else root._keep
            root._keep = torch.cat([before, now], dim=1)
        root._length += new
        root._new_tokens = new

    def undo_advance(self) -> None:
        """Take the newest tokens back before any layer has seen them: they turned out to be too many.

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
        """How many tokens are remembered, padding counted."""
        return self._root._length

    @property
    def keep(self) -> Tensor | None:
        """(B, length) which of them are real; None = all."""
        return self._root._keep

    @property
    def k_pos(self) -> Tensor:
        """(B|1, length): the number of each token in its text."""
        keep = self.keep
        parts = self._root._document_ids
        return torch.arange(self.length)[None] if keep is None and parts is None else make_positions(keep, parts)

    @property
    def q_pos(self) -> Tensor:
        """(B|1, T): the numbers of the newest tokens."""
        return self.k_pos[:, self.length - self._root._new_tokens :]

    def make_sight(self, pattern: Pattern, bias: Bias | None = None, device: torch.device | None = None) -> Sight:
        """What the newest tokens may see of all that is remembered."""
        new = self._root._new_tokens
        if self.length == new:
            return Sight(pattern, keep=self.keep, bias=bias, document_ids=self._root._document_ids)
        real = None if self.keep is None else self.keep[:, -new:]
        return Sight(
            pattern, self.q_pos.to(device), self.k_pos.to(device), self.keep, bias, real, queries_are_last=True
        )

    # what searches do

    def reorder(self, rows: Tensor) -> None:
        """Let the batch consist of these rows, in this order; a row may be taken more than once or not at all."""
        root = self._root
        alike, stays = self._find_group_shared(rows)
        slots = {}
        for name, slot in root._slots.items():
            same = stays and slot.tensor is alike.get(name)  # rows that are alike need not change places
            slots[name] = slot if same else replace(slot, tensor=slot.tensor.index_select(0, rows))
        root._group_shared = {
            name: slots[name].tensor for name, slot in root._slots.items() if slot.tensor is alike.get(name)
        }
        root._slots = slots
        root._keep = None if root._keep is None else root._keep.index_select(0, rows)

    def expand_rows(self, times: int) -> None:
        """Let each row become `times` rows that are alike; what no step replaces is not copied when they change places."""
        root = self._root
        if not root._slots:
            raise ValueError("This state remembers nothing yet; take the first step before its rows are spread.")
        first = next(iter(root._slots.values())).tensor
        root._group_shared, root._rows_per_group = {}, 1
        self.reorder(torch.arange(len(first), device=first.device).repeat_interleave(times))
        root._group_shared = {name: slot.tensor for name, slot in root._slots.items() if not slot.grows}
        root._rows_per_group = times

    def _find_group_shared(self, rows: Tensor) -> tuple[dict[str, Tensor], bool]:
        """What is still alike in each group if the rows move so, and whether every group stays where it is."""
        alike, times = self._root._group_shared, self._root._rows_per_group
        if not alike or len(rows) % times:
            return {}, False
        groups = (rows // times).view(-1, times)
        if not bool((groups == groups[:, :1]).all()):
            return {}, False
        before = len(next(iter(alike.values()))) // times
        return alike, groups[:, 0].tolist() == list(range(before))

    def snapshot(self) -> Snapshot:
        """This moment, to come back to; costs nothing, since tensors are never changed in place."""
        root = self._root
        return Snapshot(dict(root._slots), root._keep, root._length, root._new_tokens, root._document_ids)

    def restore(self, snapshot: Snapshot) -> None:
        """Forget all that came after the mark."""
        root = self._root
        root._slots, root._keep, root._length, root._new_tokens = (
            dict(snapshot.slots),
            snapshot.keep,
            snapshot.length,
            snapshot.new_tokens,
        )
        root._document_ids = snapshot.document_ids

    def append_rows(self, other: "State") -> None:
        """Put the rows of another state below the rows of this one; shorter memories are padded on the left."""
        one, two = self._root, other._root
        if one._slots.keys() != two._slots.keys():
            odd = sorted(one._slots.keys() ^ two._slots.keys())
            raise ValueError(f"Only states of the same model can be joined; these differ in {', '.join(odd[:5])}.")
        if not one._slots:
            raise ValueError("These states remember nothing yet; run `start` on both before joining them.")
        batches = [next(iter(state._slots.values())).tensor.size(0) for state in (one, two)]
        length = max(one._length, two._length)
        keeps = [state._make_keep(batch) for state, batch in zip((one, two), batches, strict=True)]
        merged = {}
        for name, slot in one._slots.items():
            pair, axis = (slot.tensor, two._slots[name].tensor), slot.axis
            if axis is not None:
                size = max(x.size(axis) for x in pair)
                pair = tuple(_pad_left(x, size, axis) for x in pair)
            merged[name] = replace(slot, tensor=torch.cat(pair))
        one._slots, one._length = merged, length
        keep = torch.cat([_pad_left(keep, length, 1) for keep in keeps])
        one._keep = None if bool(keep.all()) else keep

    def drop_rows(self, rows: Tensor) -> None:
        """Take these rows out of the batch, and with them the columns that only they needed."""
        root = self._root
        if not root._slots:
            raise ValueError("This state remembers nothing yet, so no row can leave it.")
        batch = next(iter(root._slots.values())).tensor.size(0)
        stay = torch.ones(batch, dtype=torch.bool, device=rows.device)
        stay[rows] = False
        self.reorder(stay.nonzero().squeeze(1))
        if root._keep is None or not len(root._keep):
            return
        empty = int((root._keep.any(0).long().cumsum(0) == 0).sum())  # leading columns in which nobody has a token
        for name, slot in root._slots.items():
            if slot.grows and slot.axis is not None:
                rest = slot.tensor.narrow(slot.axis, empty, root._length - empty)
                root._slots[name] = replace(slot, tensor=rest)
        root._keep, root._length = root._keep[:, empty:], root._length - empty
        root._keep = None if bool(root._keep.all()) else root._keep

    def _make_keep(self, batch: int) -> Tensor:
        if self._keep is not None:
            return self._keep
        device = next(iter(self._slots.values())).tensor.device
        return torch.ones(batch, self._length, dtype=torch.bool, device=device)


def _pad_left(x: Tensor, size: int, axis: int) -> Tensor:
    """Pad with zeros (False) in front, along one axis, up to `size`."""
    missing = size - x.size(axis)
    return F.pad(x, [0, 0] * (x.dim() - 1 - axis) + [missing, 0]) if missing else x
