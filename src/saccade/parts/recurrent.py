"""LSTM and GRU layers whose gates can be watched, as a form of attention over the hidden units.

The cell is the definition and returns its gates; PyTorch's fused layer is the fast path, with the same weights. The forget,
input and output gates of an LSTM (Hochreiter & Schmidhuber 1997) say at every step how much of each unit is kept, written
and output; the gates of a GRU (Cho et al. 2014, arXiv 1406.1078) how much is reset and how much is kept.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from saccade.attention.mechanism import Watcher
from saccade.attention.sdpa import is_cpu_autocast, upcast_bfloat16
from saccade.parts.state import State

Hidden = tuple[Tensor, ...]  # (h, c) of an LSTM or (h,) of a GRU, each (B, U)


def lstm_cell(x: Tensor, hidden: Hidden, weights: list[Tensor]) -> tuple[Hidden, Tensor]:
    """One LSTM step: x (B, W) to the new (h, c), and the input, forget and output gates, (B, 3, U)."""
    h, c = hidden
    w_x, w_h, b_x, b_h = weights
    i, f, g, o = (x @ w_x.T + b_x + h @ w_h.T + b_h).chunk(4, dim=-1)
    i, f, o = i.sigmoid(), f.sigmoid(), o.sigmoid()
    c = f * c + i * g.tanh()
    return (o * c.tanh(), c), torch.stack([i, f, o], dim=1)


def gru_cell(x: Tensor, hidden: Hidden, weights: list[Tensor]) -> tuple[Hidden, Tensor]:
    """One GRU step: x (B, W) to the new (h,), and the reset and update gates, (B, 2, U)."""
    (h,) = hidden
    w_x, w_h, b_x, b_h = weights
    r_x, z_x, n_x = (x @ w_x.T + b_x).chunk(3, dim=-1)
    r_h, z_h, n_h = (h @ w_h.T + b_h).chunk(3, dim=-1)
    r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = (n_x + r * n_h).tanh()
    return ((1 - z) * n + z * h,), torch.stack([r, z], dim=1)


CELLS = {"lstm": (lstm_cell, nn.LSTM, ("input", "forget", "output")), "gru": (gru_cell, nn.GRU, ("reset", "update"))}


class Recurrent(nn.Module):
    """An LSTM or GRU layer, (B, L, W) to (B, L, U), or (B, L, 2U) if bidirectional.

    Padding is skipped: it leaves the hidden state unchanged and its output is zero. With a `state`, x continues the tokens
    before it, which a bidirectional layer cannot do.
    """

    units: int
    bidirectional: bool

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
        """The number of vectors of the hidden state: 2 for an LSTM (h, c), 1 for a GRU."""
        return 2 if isinstance(self.fused, nn.LSTM) else 1

    def forward(self, x: Tensor, keep: Tensor | None = None, state: State | None = None) -> Tensor:
        start = self._initial_state(x, state)
        if not x.size(1):
            return x.new_zeros(x.size(0), 0, self.units * (2 if self.bidirectional else 1))
        if self.watcher is not None:
            gates = self.forward_reference(x, keep, start)[2]  # (B, L, gates, units)
            self.watcher(lambda rows: gates.index_select(1, rows.to(x.device)), gates.shape)
        if is_cpu_autocast(x):  # PyTorch's fused layers lack bfloat16 on CPUs without instructions for it
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
        """The definition, step by step: outputs, last hidden state, and gates (concatenated for both directions)."""
        directions = [self._run_direction(x, keep, initial_state, "")]
        if self.bidirectional:
            backward = self._run_direction(x.flip(1), None if keep is None else keep.flip(1), initial_state, "_reverse")
            directions.append((backward[0].flip(1), backward[1], backward[2].flip(1)))
        out = torch.cat([direction[0] for direction in directions], dim=-1)
        return out, directions[0][1], torch.cat([direction[2] for direction in directions], dim=-1)

    def _run_direction(
        self, x: Tensor, keep: Tensor | None, hidden: Hidden, suffix: str
    ) -> tuple[Tensor, Hidden, Tensor]:
        weights = [
            getattr(self.fused, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        outputs, all_gates = [], []
        for t in range(x.size(1)):
            new, gates = self.cell(x[:, t], hidden, weights)
            out = new[0]
            if keep is not None:
                real = keep[:, t, None]
                new = tuple(torch.where(real, a, b) for a, b in zip(new, hidden, strict=True))
                out, gates = torch.where(real, out, 0.0), torch.where(real[:, :, None], gates, 0.0)
            hidden = new
            outputs.append(out)
            all_gates.append(gates)
        return torch.stack(outputs, dim=1), hidden, torch.stack(all_gates, dim=1)

    def _forward_fused(self, x: Tensor, keep: Tensor | None, initial_state: Hidden) -> tuple[Tensor, Hidden]:
        """PyTorch's fused layer on a packed sequence of the real tokens."""
        first = tuple(part.expand(2 if self.bidirectional else 1, *part.shape).contiguous() for part in initial_state)
        hidden = first if self.state_count == 2 else first[0]
        if keep is None or x.size(1) == 1:
            out, end = self.fused(x, hidden)
            out = out if keep is None else torch.where(keep.unsqueeze(-1), out, 0.0)
        else:
            order = keep.long().argsort(dim=1, descending=True, stable=True)  # (B, L)
            front = _gather_tokens(x, order)
            lengths = keep.sum(1)
            # a packed sequence needs at least one token; the state of a row of padding only is restored below
            packed = pack_padded_sequence(front, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            out, end = self.fused(packed, hidden)
            assert isinstance(out, PackedSequence)
            out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.size(1))
            out = torch.where(keep.unsqueeze(-1), _gather_tokens(out, order.argsort(1)), 0.0)
        last = tuple(part[0] for part in (end if self.state_count == 2 else (end,)))
        if keep is not None:
            has_tokens = keep.any(1, keepdim=True)
            last = tuple(torch.where(has_tokens, a, b) for a, b in zip(last, initial_state, strict=True))
        return out, last

    def _initial_state(self, x: Tensor, state: State | None) -> Hidden:
        if state is not None and self.bidirectional:
            raise ValueError(
                "A layer that reads in both directions needs the whole text at once and cannot continue a state; "
                "use bidirectional=False."
            )
        stored = (
            []
            if state is None
            else [part for name in "hc"[: self.state_count] if (part := state.get(name)) is not None]
        )
        return tuple(stored) if stored else tuple(x.new_zeros(x.size(0), self.units) for _ in range(self.state_count))


def _gather_tokens(x: Tensor, order: Tensor) -> Tensor:
    """The tokens of x (B, L, W), reordered within each row by `order` (B, L)."""
    start = torch.arange(x.size(0), device=x.device)[:, None] * x.size(1)
    return x.flatten(0, 1).index_select(0, (order + start).flatten()).view_as(x)
