"""An optimized stack: it skips padding, prefills large batches in chunks, and has a fast step for one new token per row."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Layout, Mechanism, Pattern, Window
from saccade.engine.kernels.encoder_program import EncoderProgram
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

MAX_REAL_FRACTION = 0.9  # above this fraction of real tokens, removing padding costs more than it saves


class FastStack(Stack):
    """A stack of optimized layers with the interface of `Stack`; outputs at padding positions may be zero.

    An encoder of known parts is one native call, `encoder_program`; `program_reason` says why there is none.
    """

    def __init__(
        self,
        original: Stack,
        layers: list[FastLayer],
        encoder_program: EncoderProgram | None = None,
        program_reason: str = "",
    ):
        super().__init__(layers, original.patterns, original.position, original.enter, original.leave)
        attentions = [layer.attention for layer in layers]
        others = [part for layer in layers for part in (layer.across, layer.feedforward) if part is not None]
        fast_attentions = all(isinstance(part, FastSublayer) for part in attentions)
        self.can_unpad = fast_attentions and all(isinstance(part, FastSublayer) for part in others)
        self.can_unpad: bool = self.can_unpad and all(layer.across is None for layer in layers)
        self.has_fast_step: bool = ops.is_available() and bool(layers) and all(_has_fast_step(part) for part in others)
        self.has_fast_self_attention: bool = fast_attentions and all(_has_fast_step(part) for part in attentions)
        # the native int8 operator quantizes each row by itself, so a result does not depend on the other rows at all
        self.rows_are_independent: bool = all(
            isinstance(part, Int8TiledLinear) for part in self.layers.modules() if isinstance(part, PackedLinear)
        )
        self.program = (
            compile_layers(layers, original.position) if self.has_fast_step and self.has_fast_self_attention else None
        )
        self.mechanisms: list[Mechanism] = [part for part in self.layers.modules() if isinstance(part, Mechanism)]
        self.encoder_program, self.program_reason = encoder_program, program_reason

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
        if usual and not self.is_watched:
            if self.encoder_program is not None and state is None and memory is None:
                return self._encode(self.encoder_program, x, keep)
            if x.size(1) == 1 and isinstance(state, KVCache) and self._can_step_fast(x, memory, state):
                return self._step(x, keep, state, memory, memory_keep)
            is_large = len(x) > 1 < x.size(1) and len(x) * x.size(1) > MAX_TOKENS_PER_CHUNK
            if self.can_unpad and is_large and (state is None or _is_empty_cache(state)):
                return self._forward_in_chunks(x, keep, state)
            if self.can_unpad and keep is not None and _is_worth_unpadding(keep, state):
                return self._forward_unpadded(x, keep, state)
        if memory is not None and len(memory) < len(
            x
        ):  # one memory row for several rows of x, such as the beams of a source
            memory = memory.repeat_interleave(len(x) // len(memory), dim=0)
        return super().forward(x, layout, state, memory=memory, memory_keep=memory_keep)

    @property
    def is_watched(self) -> bool:
        """Whether someone records attention weights, which only the mechanisms themselves compute."""
        return any(mechanism.watcher is not None for mechanism in self.mechanisms)

    def _encode(self, program: EncoderProgram, x: Tensor, keep: Tensor | None) -> Tensor:
        """Encode the real tokens of a batch in one native call, (B, L, W) to (B, L, W') with zeros at padding."""
        x, _ = self._enter_tokens(x, keep, State())
        if keep is None:
            return program.encode([x.size(1)] * x.size(0), rows=x.flatten(0, 1)).unflatten(0, x.shape[:2])
        out = x.new_zeros(*x.shape[:2], program.width)
        out[keep] = program.encode(keep.sum(1).tolist(), rows=x[keep])
        return out

    def _can_step_fast(self, x: Tensor, memory: Tensor | None, state: KVCache) -> bool:
        """Whether the fast step applies: nothing is empty, and the cache belongs to this stack alone."""
        is_empty = not x.size(0) or (memory is not None and not memory.size(1))
        return self.has_fast_step and not is_empty and not state._path

    def _forward_in_chunks(self, x: Tensor, keep: Tensor | None, state: State | None) -> Tensor:
        """Process a large batch in chunks of rows of similar length, which saves memory and padding: (B, T, W)."""
        out = x[:0]
        for rows, length in _chunks_by_length(torch.full((len(x),), x.size(1)) if keep is None else _row_lengths(keep)):
            part = state.view(rows, (len(x), x.size(1))) if isinstance(state, KVCache) else None
            chunk = self(x[rows, :length], Layout(None if keep is None else keep[rows, :length]), part)
            out = out if len(out) else chunk.new_zeros(*x.shape[:2], chunk.size(2))
            out[rows, :length] = chunk
        if state is not None:
            state.advance((x.size(0), x.size(1)), keep)
        return out

    def _step(
        self, x: Tensor, keep: Tensor | None, state: KVCache, memory: Tensor | None, memory_keep: Tensor | None
    ) -> Tensor:
        """Decode one new token per row: (B, 1, W) to (B, 1, W)."""
        x, pos = self._enter_tokens(x, keep, state)
        lengths = torch.full((x.size(0),), state.length)
        across_keep = None if memory_keep is None else memory_keep.contiguous()

        some_ended = self.rows_are_independent and keep is not None and not bool(keep.all())
        active_rows = keep[:, 0].nonzero()[:, 0] if some_ended else None  # type: ignore[index]

        def make_contexts(pattern: Pattern, scheme: Position) -> tuple[StepContext, LayerContext | None]:
            bias, rotation = scheme.bias(), scheme.rotation_at(pos)
            is_fast = self.has_fast_self_attention and bias is None and _sees_only_past(pattern)
            visible = _step_keep(pattern, state, pos, x.size(0)) if is_fast else state.keep
            step_context = StepContext(state, lengths, visible, rotation, memory, across_keep, active_rows)
            return step_context, None if is_fast else LayerContext(state.make_sight(pattern, bias), rotation)

        contexts = self.build_per_layer(make_contexts)
        step_context, layer_context = contexts[0]
        new = step_context.select_active(x[:, 0]).contiguous()
        is_uniform = layer_context is None and all(other is contexts[0] for other in contexts)
        if self.program is not None and active_rows is None and is_uniform:
            return self.leave(self.program.step(new, step_context))[:, None]
        for number, (layer, (step_context, layer_context)) in enumerate(zip(self.layers, contexts, strict=True)):
            new = layer.step(new, step_context, f"{number}.", layer_context)  # type: ignore[operator]
        return step_context.scatter_active(self.leave(new))[:, None]

    def _forward_unpadded(self, x: Tensor, keep: Tensor, state: State | None) -> Tensor:
        """Process a padded batch without its padding."""
        clock = State() if state is None else state
        x, pos = self._enter_tokens(x, keep, clock)
        sight = UnpaddedSight(FULL, keep=keep)
        contexts = self.make_contexts(pos, lambda pattern, bias: UnpaddedSight(pattern, keep=keep, bias=bias))
        x = sight.unpad(x)
        for number, layer in enumerate(self.layers):
            x = layer(x, contexts[number], None if state is None else state.at(f"{number}"))
        return torch.where(keep.unsqueeze(-1), sight.pad(self.leave(x)), 0.0)

    def _enter_tokens(self, x: Tensor, keep: Tensor | None, state: State) -> tuple[Tensor, Tensor]:
        """Advance the state by the new tokens and add their positions; returns the input of the layers and the positions."""
        state.advance((x.size(0), x.size(1)), keep)
        pos = state.q_pos
        try:
            self._check_length(state, pos)
        except ValueError:
            state.undo_advance()  # a refused input must not change the state
            raise
        return self.enter(self.position.add_to_input(x, pos)), pos


def _has_fast_step(sublayer: nn.Module) -> bool:
    """Whether a sublayer has a fast step for one new token."""
    return isinstance(sublayer, FastSublayer) and getattr(sublayer.branch, "scale", 1.0) != 0.0


def _sees_only_past(pattern: Pattern) -> bool:
    """Whether the newest token attends to all earlier tokens, or to a window of them."""
    return pattern == CAUSAL or (isinstance(pattern, Window) and not pattern.right)


def _step_keep(pattern: Pattern, state: State, pos: Tensor, rows: int) -> Tensor | None:
    """The cached positions that the newest token attends to, (B, K); None for all."""
    if state.length <= pattern.reach[0] + 1:
        return state.keep
    near = pattern.allows(pos[:, :, None], state.k_pos[:, None, :])[:, 0].expand(rows, -1)
    return near if state.keep is None else near & state.keep


def _is_empty_cache(state: State) -> bool:
    """Whether this is an empty KV cache that belongs to the stack alone."""
    return isinstance(state, KVCache) and not state.length and not state._path


def _row_lengths(keep: Tensor) -> Tensor:
    """The length of each row up to its last real token, (B,); a row of padding alone counts as one token."""
    positions = torch.arange(1, keep.size(1) + 1, device=keep.device)
    return (positions * keep).amax(1).clamp(min=1)


def _chunks_by_length(lengths: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Chunks of rows of similar length, each with its longest length and at most `MAX_TOKENS_PER_CHUNK` tokens."""
    order, at = lengths.argsort(descending=True, stable=True), 0
    while at < len(order):
        length = int(lengths[order[at]])
        rows = order[at : at + max(1, MAX_TOKENS_PER_CHUNK // length)]
        yield rows, length
        at += len(rows)


def _is_worth_unpadding(keep: Tensor, state: State | None) -> bool:
    """Whether enough of the batch is padding, and the state is empty."""
    return (state is None or not state.length) and 0 < int(keep.sum()) < MAX_REAL_FRACTION * keep.numel()
