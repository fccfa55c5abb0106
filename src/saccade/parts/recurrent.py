"""LSTM and GRU layers whose gates can be watched: attention as a map that a network makes over its own units.

The cell is the definition and returns its gates; torch's fused layer is the fast path, with the same weights. An LSTM's
forget, input and output maps (Hochreiter & Schmidhuber 1997) say at every step how much of each unit is kept, written and
shown; a GRU's (Cho et al. 2014, arXiv 1406.1078) how much is reset and how much is kept.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from saccade.attention.mechanism import Watcher
from saccade.attention.sdpa import is_cpu_autocast, upcast_bfloat16
from saccade.parts.state import State

Hidden = tuple[Tensor, ...]  # (h, c) of an LSTM or (h,) of a GRU, each (B, U)


def lstm_cell(x: Tensor, hidden: Hidden, weights: list[Tensor]) -> tuple[Hidden, Tensor]:
    """One step of an LSTM: x (B, W) to the new (h, c) and the maps (B, 3, U) of input, forget and output."""
    h, c = hidden
    w_x, w_h, b_x, b_h = weights
    i, f, g, o = (x @ w_x.T + b_x + h @ w_h.T + b_h).chunk(4, dim=-1)
    i, f, o = i.sigmoid(), f.sigmoid(), o.sigmoid()
    c = f * c + i * g.tanh()
    return (o * c.tanh(), c), torch.stack([i, f, o], dim=1)


def gru_cell(x: Tensor, hidden: Hidden, weights: list[Tensor]) -> tuple[Hidden, Tensor]:
    """One step of a GRU: x (B, W) to the new (h,) and the maps (B, 2, U) of reset and update."""
    (h,) = hidden
    w_x, w_h, b_x, b_h = weights
    r_x, z_x, n_x = (x @ w_x.T + b_x).chunk(3, dim=-1)
    r_h, z_h, n_h = (h @ w_h.T + b_h).chunk(3, dim=-1)
    r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = (n_x + r * n_h).tanh()
    return ((1 - z) * n + z * h,), torch.stack([r, z], dim=1)


CELLS = {"lstm": (lstm_cell, nn.LSTM, ("input", "forget", "output")), "gru": (gru_cell, nn.GRU, ("reset", "update"))}


class Recurrent(nn.Module):
    """One recurrent layer, (B, L, W) to (B, L, U), or (B, L, 2U) when it reads in both directions.

    Padding is skipped: it neither moves the hidden state nor has an output (zero). With a `state` the text goes on where it
    stopped, which only one direction can do.
    """

    watcher: Watcher | None = None
    axes = ("batch", "time", "gate", "unit")

    def __init__(self, width: int, units: int, cell: str = "lstm", *, bidirectional: bool = False):
        super().__init__()
        if cell not in CELLS:
            raise ValueError(f"Unknown cell {cell!r}; known are {', '.join(CELLS)}.")
        self.cell, fused, self.gates = CELLS[cell]
        self.units, self.bidirectional = units, bidirectional
        self.fused = fused(width, units, batch_first=True, bidirectional=bidirectional)

    @property
    def state_count(self) -> int:
        """How many vectors the hidden state has."""
        return 2 if isinstance(self.fused, nn.LSTM) else 1

    def forward(self, x: Tensor, keep: Tensor | None = None, state: State | None = None) -> Tensor:
        start = self._initial_state(x, state)
        if not x.size(1):
            return x.new_zeros(x.size(0), 0, self.units * (2 if self.bidirectional else 1))
        if self.watcher is not None:
            maps = self.forward_reference(x, keep, start)[2]  # (B, L, gates, units)
            self.watcher(lambda rows: maps.index_select(1, rows.to(x.device)), maps.shape)
        if is_cpu_autocast(x):  # torch's fused layers have no bfloat16 on processors without instructions for it
            with torch.autocast("cpu", enabled=False):
                out, end = self._forward_fused(upcast_bfloat16(x), keep, tuple(upcast_bfloat16(part) for part in start))
            out = out.to(x.dtype)
        else:
            out, end = self._forward_fused(x, keep, start)
        if state is not None:
            for name, part in zip("hc", end, strict=False):
                state.put(name, part)
        return out

    def forward_reference(self, x: Tensor, keep: Tensor | None, initial_state: Hidden) -> tuple[Tensor, Hidden, Tensor]:
        """The definition, step by step: outputs, last hidden state and all gates (those of both directions side by side)."""
        ways = [self._run_direction(x, keep, initial_state, "")]
        if self.bidirectional:
            back = self._run_direction(x.flip(1), None if keep is None else keep.flip(1), initial_state, "_reverse")
            ways.append((back[0].flip(1), back[1], back[2].flip(1)))
        out = torch.cat([way[0] for way in ways], dim=-1)
        return out, ways[0][1], torch.cat([way[2] for way in ways], dim=-1)

    def _run_direction(
        self, x: Tensor, keep: Tensor | None, hidden: Hidden, suffix: str
    ) -> tuple[Tensor, Hidden, Tensor]:
        weights = [
            getattr(self.fused, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        outs, maps = [], []
        for t in range(x.size(1)):
            new, gates = self.cell(x[:, t], hidden, weights)
            out = new[0]
            if keep is not None:
                real = keep[:, t, None]
                new = tuple(torch.where(real, a, b) for a, b in zip(new, hidden, strict=True))
                out, gates = torch.where(real, out, 0.0), torch.where(real[:, :, None], gates, 0.0)
            hidden = new
            outs.append(out)
            maps.append(gates)
        return torch.stack(outs, dim=1), hidden, torch.stack(maps, dim=1)

    def _forward_fused(self, x: Tensor, keep: Tensor | None, initial_state: Hidden) -> tuple[Tensor, Hidden]:
        """The fused layer on the real tokens, moved to the front of each row and packed."""
        first = tuple(part.expand(2 if self.bidirectional else 1, *part.shape).contiguous() for part in initial_state)
        given = first if self.state_count == 2 else first[0]
        if keep is None or x.size(1) == 1:
            out, end = self.fused(x, given)
            out = out if keep is None else torch.where(keep.unsqueeze(-1), out, 0.0)
        else:
            order = keep.long().argsort(dim=1, descending=True, stable=True)  # (B, L)
            front = _gather_tokens(x, order)
            lengths = keep.sum(1)
            # a packed row has at least one token; a row of padding alone reads one and is put back below
            packed = pack_padded_sequence(front, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            out, end = self.fused(packed, given)
            assert isinstance(out, PackedSequence)
            out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.size(1))
            out = torch.where(keep.unsqueeze(-1), _gather_tokens(out, order.argsort(1)), 0.0)
        last = tuple(part[0] for part in (end if self.state_count == 2 else (end,)))
        if keep is not None:
            some = keep.any(1, keepdim=True)
            last = tuple(torch.where(some, a, b) for a, b in zip(last, initial_state, strict=True))
        return out, last

    def _initial_state(self, x: Tensor, state: State | None) -> Hidden:
        if state is not None and self.bidirectional:
            raise ValueError(
                "A layer that reads in both directions needs the whole text at once; use bidirectional=False to go on."
            )
        found = (
            []
            if state is None
            else [part for name in "hc"[: self.state_count] if (part := state.get(name)) is not None]
        )
        return tuple(found) if found else tuple(x.new_zeros(x.size(0), self.units) for _ in range(self.state_count))


def _gather_tokens(x: Tensor, order: Tensor) -> Tensor:
    """Rows of x (B, L, W) in the order given for each text, (B, L)."""
    start = torch.arange(x.size(0), device=x.device)[:, None] * x.size(1)
    return x.flatten(0, 1).index_select(0, (order + start).flatten()).view_as(x)
