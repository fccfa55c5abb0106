"""The layers of a fast stack as one chain: all that one new token a row goes through, in a single call."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from saccade.engine.layers import FastParallelLayer
from saccade.engine.native import ops
from saccade.engine.native.step_program import KVBufferRef, StepProgram
from saccade.engine.packed_linear import Int8TiledLinear, PackedLinear
from saccade.engine.sublayers import (
    FastCrossAttention,
    FastFeedForward,
    FastNorm,
    FastSelfAttention,
    FastSublayer,
    StepContext,
)
from saccade.parts.layer import Layer
from saccade.parts.position import PerLayerPosition, Position, Rotary


class NotCompilable(Exception):
    """A part has no place in a chain."""


def compile_layers(layers: Sequence[Layer], position: Position) -> "LayerProgram | None":
    """The layers in one chain; None where one of them is of another kind than a chain can walk."""
    try:
        return LayerProgram(layers, position) if ops.is_available() and layers else None
    except NotCompilable:
        return None


class LayerProgram:
    """A chain of layers, and the rooms of memory that it looks at in turn."""

    def __init__(self, layers: Sequence[Layer], position: Position) -> None:
        if not isinstance(position, Rotary) and type(position).rotate is not Position.rotate:
            raise NotCompilable
        if isinstance(position, PerLayerPosition) or (isinstance(position, Rotary) and position.is_partial):
            raise NotCompilable
        self.rotary = position if isinstance(position, Rotary) else None
        self.attentions: list[tuple[str, FastSelfAttention | FastCrossAttention]] = []
        self.program, x = StepProgram(_get_norm(layers[0].attention).weight.numel()), 0
        for number, layer in enumerate(layers):
            if isinstance(layer, FastParallelLayer):
                raise NotCompilable
            for name, part in (("attention", layer.attention), ("across", layer.across), ("", layer.feedforward)):
                if part is not None:
                    x = self._compile_sublayer(x, f"{number}.{name}.", part)

    def _compile_sublayer(self, x: int, path: str, sublayer: nn.Module) -> int:
        norm = _get_norm(sublayer)
        assert isinstance(sublayer, FastSublayer), "only what goes around a branch has a norm"
        if sublayer.post_norm is not None:
            raise NotCompilable
        if sublayer.norm_first:
            return self._compile_branch(self._compile_norm(x, norm), x, path, sublayer.branch)
        return self._compile_norm(self._compile_branch(x, x, path, sublayer.branch), norm)

    def _compile_norm(self, x: int, norm: FastNorm) -> int:
        if norm.is_layer_norm:
            return self.program.layer_norm(x, norm.weight, norm.bias, norm.eps)
        return self.program.rms_norm(x, norm.weight, norm.eps)

    def _compile_branch(self, x: int, add: int, path: str, branch: nn.Module) -> int:
        if isinstance(branch, FastFeedForward):
            act = branch.activation
            if act not in ops.ACTIVATION_CODES:
                raise NotCompilable
            up = self.program.linear(x, _get_tiles(branch.up), "none" if branch.is_gated else act)
            return self.program.linear(
                self.program.gate(up, act) if branch.is_gated else up, _get_tiles(branch.down), add=add
            )
        if not isinstance(branch, FastSelfAttention | FastCrossAttention) or not branch.scale:
            raise NotCompilable
        room, width = len(self.attentions), branch.head_width
        self.attentions.append((path, branch))
        if isinstance(branch, FastSelfAttention):
            if branch.qk_norm is not None:
                raise NotCompilable
            heads, groups, _ = branch.head_counts
            x = self.program.linear(x, _get_tiles(branch.joint))
            if self.rotary is not None:
                x = self.program.rotate(x, branch.query_key_heads, width, interleaved=self.rotary.interleaved)
        else:
            heads, groups = _get_tiles(branch.query).rows // width, branch.joint.out_features // width // 2
            x = self.program.linear(x, _get_tiles(branch.query))
        return self.program.linear(
            self.program.attend(x, heads, groups, width, branch.scale, buffer=room), _get_tiles(branch.output), add=add
        )

    def step(self, x: Tensor, step_context: StepContext) -> Tensor:
        """One new token a row through all layers, (B, W); every row goes on."""
        rooms = [self._buffer_ref(path, branch, step_context, len(x)) for path, branch in self.attentions]
        return self.program(x, rooms, None if step_context.rotation is None else self._cos_sin(step_context, len(x)))

    def _buffer_ref(
        self, path: str, branch: FastSelfAttention | FastCrossAttention, step_context: StepContext, rows: int
    ) -> KVBufferRef:
        if isinstance(branch, FastSelfAttention):
            shape = step_context.cache.get("new_token")
            if shape is None or shape.size(1) != branch.head_counts[1] or shape.size(3) != branch.head_width:
                sizes = (rows, branch.head_counts[1], 1, branch.head_width)
                shape = step_context.cache["new_token"] = torch.empty(sizes, dtype=branch.joint.kv_dtype)
            key, value = (step_context.kv_cache.reserve_unordered(f"{path}{name}", shape) for name in ("key", "value"))
            return KVBufferRef(
                key.storage,
                value.storage,
                step_context.lengths,
                step_context.padded_keep(key.storage.size(2)),
                indirection=key.indirection,
            )
        keys, values, group = branch.keys_values_per_source(step_context, path)
        keep = None if step_context.cross_memory_keep is None else step_context.cross_memory_keep[::group]
        return KVBufferRef(keys, values, step_context.full_lengths(keys.size(2), len(keys)), keep, group)

    def _cos_sin(self, step_context: StepContext, rows: int) -> Tensor:
        """The cosines beside the sines of the new token's angles, (B, D): what turning makes of the pairs (1, 0)."""
        assert self.rotary is not None, "what turns is a Rotary"
        assert step_context.rotation is not None, "asked for only where something turns"
        width = self.rotary.waves.width
        axes = torch.zeros(width // 2, 2)
        axes[:, 0] = 1
        apart = self.rotary.interleaved
        turned: Any = step_context.rotation((axes if apart else axes.T).reshape(1, 1, 1, width)).view(-1, width)
        turned = turned.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1) if apart else turned
        return turned.expand(rows, width)


def _get_norm(sublayer: nn.Module) -> FastNorm:
    if not isinstance(sublayer, FastSublayer) or not isinstance(sublayer.norm, FastNorm):
        raise NotCompilable
    return sublayer.norm


def _get_tiles(layer: PackedLinear) -> ops.Int8Tiles:
    """The weights of a layer, if our own operator multiplies them."""
    if not isinstance(layer, Int8TiledLinear):
        raise NotCompilable
    return layer.weights
