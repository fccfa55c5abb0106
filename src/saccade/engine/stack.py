"""A stack in its fast form: padding is left out, and one new token a row takes a short way."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Layout, Mechanism, Pattern, Window
from saccade.engine import native
from saccade.engine.layers import FastLayer
from saccade.engine.links import linked
from saccade.engine.memory import Memory
from saccade.engine.packing import PackedSight
from saccade.engine.quantise import Packed, Tiles
from saccade.engine.sublayers import TOGETHER, Around, Now
from saccade.parts.layer import Scene
from saccade.parts.position import Position
from saccade.parts.stack import Stack
from saccade.parts.state import State

WORTH = 0.9  # the share of real tokens above which gathering costs more than it saves


class FastStack(Stack):
    """A stack of fast layers, called as the plain one is; what stands at padding may come out as zero."""

    def __init__(self, plain: Stack, layers: list[FastLayer]):
        super().__init__(layers, plain.patterns, plain.position, plain.enter, plain.leave)
        rests = [part for layer in layers for part in (layer.across, layer.feedforward) if part is not None]
        looks = [layer.attention for layer in layers]
        whole = all(isinstance(part, Around) for part in looks)
        self.gathers = whole and all(isinstance(part, Around) for part in rests)
        self.gathers = self.gathers and all(layer.across is None for layer in layers)
        self.hurries = native.ready() and bool(layers) and all(_able(part) for part in rests)
        self.straight = whole and all(_able(part) for part in looks)  # self-attention too has a short way
        # our own operator rounds each row by itself: who else is multiplied makes no difference, to the last bit
        self.apart = all(isinstance(part, Tiles) for part in self.layers.modules() if isinstance(part, Packed))
        self.links = linked(layers, plain.position) if self.hurries and self.straight else None
        self.eyes = [part for part in self.layers.modules() if isinstance(part, Mechanism)]

    def forward(
        self,
        x: Tensor,
        layout: Layout | None = None,
        state: State | None = None,
        *,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
    ) -> Tensor:
        keep = None if layout is None else layout.keep
        usual = layout is None or (layout.document_ids is None and layout.global_tokens is None)
        if usual and all(eye.watcher is None for eye in self.eyes):
            if x.size(1) == 1 and isinstance(state, Memory) and self._may_hurry(x, memory, state):
                return self._next(x, keep, state, memory, memory_keep)
            many = len(x) > 1 < x.size(1) and len(x) * x.size(1) > TOGETHER
            if self.gathers and many and (state is None or _fresh(state)):
                return self._in_turn(x, keep, state)
            if self.gathers and keep is not None and _worth(keep, state):
                return self._gathered(x, keep, state)
        if memory is not None and len(memory) < len(x):  # one row of it for several of x, such as the beams of a source
            memory = memory.repeat_interleave(len(x) // len(memory), dim=0)
        return super().forward(x, layout, state, memory=memory, memory_keep=memory_keep)

    def _may_hurry(self, x: Tensor, memory: Tensor | None, state: Memory) -> bool:
        """Whether there is a short way and something to look at, and the memory is this stack's alone."""
        empty = not x.size(0) or (memory is not None and not memory.size(1))
        return self.hurries and not empty and not state._path

    def _in_turn(self, x: Tensor, keep: Tensor | None, state: State | None) -> Tensor:
        """A large batch read a few rows of like length at a time, as no row knows of another: (B, T, W)."""
        out = x[:0]
        for rows, length in _alike(torch.full((len(x),), x.size(1)) if keep is None else _ends(keep)):
            part = state.part(rows, (len(x), x.size(1))) if isinstance(state, Memory) else None
            read = self(x[rows, :length], Layout(None if keep is None else keep[rows, :length]), part)
            out = out if len(out) else read.new_zeros(*x.shape[:2], read.size(2))
            out[rows, :length] = read
        if state is not None:
            state.advance((x.size(0), x.size(1)), keep)
        return out

    def _next(
        self, x: Tensor, keep: Tensor | None, state: Memory, memory: Tensor | None, memory_keep: Tensor | None
    ) -> Tensor:
        """One new token a row: (B, 1, W) to (B, 1, W)."""
        x, pos = self._entered(x, keep, state)
        lengths = torch.full((x.size(0),), state.length)
        across_keep = None if memory_keep is None else memory_keep.contiguous()
        ended = self.apart and keep is not None and not bool(keep.all())
        live = keep[:, 0].nonzero()[:, 0] if ended else None  # type: ignore[index]

        def way(pattern: Pattern, scheme: Position) -> tuple[Now, Scene | None]:
            bias, turn = scheme.bias(), scheme.turning(pos)
            short = self.straight and bias is None and _looks_back(pattern)
            seen = _seen(pattern, state, pos, x.size(0)) if short else state.keep
            now = Now(state, lengths, seen, turn, memory, across_keep, live)
            return now, None if short else Scene(state.sight(pattern, bias), turn)

        ways = self.shared(way)
        now, scene = ways[0]
        new = now.live_rows(x[:, 0]).contiguous()
        if self.links is not None and scene is None and live is None and all(other is ways[0] for other in ways):
            return self.leave(self.links.next(new, now))[:, None]
        for number, (layer, (now, scene)) in enumerate(zip(self.layers, ways, strict=True)):
            new = layer.next(new, now, f"{number}.", scene)  # type: ignore[operator]
        return now.all_rows(self.leave(new))[:, None]

    def _gathered(self, x: Tensor, keep: Tensor, state: State | None) -> Tensor:
        """A padded batch, read without its padding."""
        clock = State() if state is None else state
        x, pos = self._entered(x, keep, clock)
        sight = PackedSight(FULL, keep=keep)
        scenes = self.scenes(pos, lambda pattern, bias: PackedSight(pattern, keep=keep, bias=bias))
        x = sight.gather(x)
        for number, layer in enumerate(self.layers):
            x = layer(x, scenes[number], None if state is None else state.at(f"{number}"))
        return torch.where(keep.unsqueeze(-1), sight.spread(self.leave(x)), 0.0)

    def _entered(self, x: Tensor, keep: Tensor | None, clock: State) -> tuple[Tensor, Tensor]:
        """The tokens noted and placed, and their positions."""
        clock.advance((x.size(0), x.size(1)), keep)
        pos = clock.q_pos
        try:
            self._room(clock, pos)
        except ValueError:
            clock.withdraw()  # what was refused was not read
            raise
        return self.enter(self.position.place(x, pos)), pos


def _able(part: nn.Module) -> bool:
    """Whether a sublayer has a short way for one new token."""
    return isinstance(part, Around) and getattr(part.branch, "scale", 1.0) != 0.0


def _looks_back(pattern: Pattern) -> bool:
    """Whether the newest token sees all that came before, or the nearest of it."""
    return pattern == CAUSAL or (isinstance(pattern, Window) and not pattern.right)


def _seen(pattern: Pattern, state: State, pos: Tensor, rows: int) -> Tensor | None:
    """Which of all that is remembered the newest token sees, (B, K); None = all of it."""
    if state.length <= pattern.reach[0] + 1:
        return state.keep
    near = pattern.allows(pos[:, :, None], state.k_pos[:, None, :])[:, 0].expand(rows, -1)
    return near if state.keep is None else near & state.keep


def _fresh(state: State) -> bool:
    """Whether nothing was read before into a memory that is this stack's alone."""
    return isinstance(state, Memory) and not state.length and not state._path


def _ends(keep: Tensor) -> Tensor:
    """Where the last real token of each row ends, (B,); a row of padding alone counts as one token."""
    places = torch.arange(1, keep.size(1) + 1, device=keep.device)
    return (places * keep).amax(1).clamp(min=1)


def _alike(lengths: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Rows that are read together and the length of the longest, so that no more tokens come together than should."""
    order, at = lengths.argsort(descending=True, stable=True), 0
    while at < len(order):
        length = int(lengths[order[at]])
        rows = order[at : at + max(1, TOGETHER // length)]
        yield rows, length
        at += len(rows)


def _worth(keep: Tensor, state: State | None) -> bool:
    """Whether enough is padding, and nothing was read before."""
    return (state is None or not state.length) and 0 < int(keep.sum()) < WORTH * keep.numel()
