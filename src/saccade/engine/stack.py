"""A stack in its fast form: padding is left out, and one new token a row takes a short way."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Layout, Mechanism, Pattern, Window
from saccade.engine.kv_cache import KVCache
from saccade.engine.layers import FastLayer
from saccade.engine.native import ops
from saccade.engine.native.compile_layers import compile_layers
from saccade.engine.packed_linear import Int8TiledLinear, PackedLinear
from saccade.engine.sublayers import MAX_TOKENS_PER_CHUNK, FastSublayer, StepContext
from saccade.engine.unpadded import UnpaddedSight
from saccade.parts.layer import LayerContext
from saccade.parts.position import Position
from saccade.parts.stack import Stack
from saccade.parts.state import State

MAX_REAL_FRACTION = 0.9  # the share of real tokens above which gathering costs more than it saves


class FastStack(Stack):
    """A stack of fast layers, called as the plain one is; what stands at padding may come out as zero."""

    def __init__(self, original: Stack, layers: list[FastLayer]):
        super().__init__(layers, original.patterns, original.position, original.enter, original.leave)
        rests = [part for layer in layers for part in (layer.across, layer.feedforward) if part is not None]
        looks = [layer.attention for layer in layers]
        whole = all(isinstance(part, FastSublayer) for part in looks)
        self.can_unpad = whole and all(isinstance(part, FastSublayer) for part in rests)
        self.can_unpad = self.can_unpad and all(layer.across is None for layer in layers)
        self.has_fast_step = ops.is_available() and bool(layers) and all(_has_fast_step(part) for part in rests)
        self.has_fast_self_attention = whole and all(
            _has_fast_step(part) for part in looks
        )  # self-attention too has a short way
        # our own operator rounds each row by itself: who else is multiplied makes no difference, to the last bit
        self.rows_are_independent = all(
            isinstance(part, Int8TiledLinear) for part in self.layers.modules() if isinstance(part, PackedLinear)
        )
        self.program = (
            compile_layers(layers, original.position) if self.has_fast_step and self.has_fast_self_attention else None
        )
        self.mechanisms = [part for part in self.layers.modules() if isinstance(part, Mechanism)]

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
        if usual and all(eye.watcher is None for eye in self.mechanisms):
            if x.size(1) == 1 and isinstance(state, KVCache) and self._can_step_fast(x, memory, state):
                return self._step(x, keep, state, memory, memory_keep)
            many = len(x) > 1 < x.size(1) and len(x) * x.size(1) > MAX_TOKENS_PER_CHUNK
            if self.can_unpad and many and (state is None or _is_empty_cache(state)):
                return self._forward_in_chunks(x, keep, state)
            if self.can_unpad and keep is not None and _is_worth_unpadding(keep, state):
                return self._forward_unpadded(x, keep, state)
        if memory is not None and len(memory) < len(x):  # one row of it for several of x, such as the beams of a source
            memory = memory.repeat_interleave(len(x) // len(memory), dim=0)
        return super().forward(x, layout, state, memory=memory, memory_keep=memory_keep)

    def _can_step_fast(self, x: Tensor, memory: Tensor | None, state: KVCache) -> bool:
        """Whether there is a short way and something to look at, and the memory is this stack's alone."""
        empty = not x.size(0) or (memory is not None and not memory.size(1))
        return self.has_fast_step and not empty and not state._path

    def _forward_in_chunks(self, x: Tensor, keep: Tensor | None, state: State | None) -> Tensor:
        """A large batch read a few rows of like length at a time, as no row knows of another: (B, T, W)."""
        out = x[:0]
        for rows, length in _chunks_by_length(torch.full((len(x),), x.size(1)) if keep is None else _row_lengths(keep)):
            part = state.view(rows, (len(x), x.size(1))) if isinstance(state, KVCache) else None
            read = self(x[rows, :length], Layout(None if keep is None else keep[rows, :length]), part)
            out = out if len(out) else read.new_zeros(*x.shape[:2], read.size(2))
            out[rows, :length] = read
        if state is not None:
            state.advance((x.size(0), x.size(1)), keep)
        return out

    def _step(
        self, x: Tensor, keep: Tensor | None, state: KVCache, memory: Tensor | None, memory_keep: Tensor | None
    ) -> Tensor:
        """One new token a row: (B, 1, W) to (B, 1, W)."""
        x, pos = self._enter_tokens(x, keep, state)
        lengths = torch.full((x.size(0),), state.length)
        across_keep = None if memory_keep is None else memory_keep.contiguous()
        ended = self.rows_are_independent and keep is not None and not bool(keep.all())
        live = keep[:, 0].nonzero()[:, 0] if ended else None  # type: ignore[index]

        def way(pattern: Pattern, scheme: Position) -> tuple[StepContext, LayerContext | None]:
            bias, turn = scheme.bias(), scheme.rotation_at(pos)
            short = self.has_fast_self_attention and bias is None and _sees_only_past(pattern)
            seen = _step_keep(pattern, state, pos, x.size(0)) if short else state.keep
            now = StepContext(state, lengths, seen, turn, memory, across_keep, live)
            return now, None if short else LayerContext(state.make_sight(pattern, bias), turn)

        ways = self.build_per_layer(way)
        now, scene = ways[0]
        new = now.select_active(x[:, 0]).contiguous()
        if self.program is not None and scene is None and live is None and all(other is ways[0] for other in ways):
            return self.leave(self.program.step(new, now))[:, None]
        for number, (layer, (now, scene)) in enumerate(zip(self.layers, ways, strict=True)):
            new = layer.step(new, now, f"{number}.", scene)  # type: ignore[operator]
        return now.scatter_active(self.leave(new))[:, None]

    def _forward_unpadded(self, x: Tensor, keep: Tensor, state: State | None) -> Tensor:
        """A padded batch, read without its padding."""
        clock = State() if state is None else state
        x, pos = self._enter_tokens(x, keep, clock)
        sight = UnpaddedSight(FULL, keep=keep)
        scenes = self.make_contexts(pos, lambda pattern, bias: UnpaddedSight(pattern, keep=keep, bias=bias))
        x = sight.unpad(x)
        for number, layer in enumerate(self.layers):
            x = layer(x, scenes[number], None if state is None else state.at(f"{number}"))
        return torch.where(keep.unsqueeze(-1), sight.pad(self.leave(x)), 0.0)

    def _enter_tokens(self, x: Tensor, keep: Tensor | None, state: State) -> tuple[Tensor, Tensor]:
        """The tokens noted and placed, and their positions."""
        state.advance((x.size(0), x.size(1)), keep)
        pos = state.q_pos
        try:
            self._check_length(state, pos)
        except ValueError:
            state.undo_advance()  # what was refused was not read
            raise
        return self.enter(self.position.add_to_input(x, pos)), pos


def _has_fast_step(sublayer: nn.Module) -> bool:
    """Whether a sublayer has a short way for one new token."""
    return isinstance(sublayer, FastSublayer) and getattr(sublayer.branch, "scale", 1.0) != 0.0


def _sees_only_past(pattern: Pattern) -> bool:
    """Whether the newest token sees all that came before, or the nearest of it."""
    return pattern == CAUSAL or (isinstance(pattern, Window) and not pattern.right)


def _step_keep(pattern: Pattern, state: State, pos: Tensor, rows: int) -> Tensor | None:
    """Which of all that is remembered the newest token sees, (B, K); None = all of it."""
    if state.length <= pattern.reach[0] + 1:
        return state.keep
    near = pattern.allows(pos[:, :, None], state.k_pos[:, None, :])[:, 0].expand(rows, -1)
    return near if state.keep is None else near & state.keep


def _is_empty_cache(state: State) -> bool:
    """Whether nothing was read before into a memory that is this stack's alone."""
    return isinstance(state, KVCache) and not state.length and not state._path


def _row_lengths(keep: Tensor) -> Tensor:
    """Where the last real token of each row ends, (B,); a row of padding alone counts as one token."""
    places = torch.arange(1, keep.size(1) + 1, device=keep.device)
    return (places * keep).amax(1).clamp(min=1)


def _chunks_by_length(lengths: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Rows that are read together and the length of the longest, so that no more tokens come together than should."""
    order, at = lengths.argsort(descending=True, stable=True), 0
    while at < len(order):
        length = int(lengths[order[at]])
        rows = order[at : at + max(1, MAX_TOKENS_PER_CHUNK // length)]
        yield rows, length
        at += len(rows)


def _is_worth_unpadding(keep: Tensor, state: State | None) -> bool:
    """Whether enough is padding, and nothing was read before."""
    return (state is None or not state.length) and 0 < int(keep.sum()) < MAX_REAL_FRACTION * keep.numel()
