"""Compilation of a stack's layers into one program: a decoding step for one new token per row is a single native call."""

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
    """A module has no equivalent among the native operators."""


def compile_layers(layers: Sequence[Layer], position: Position) -> "LayerProgram | None":
    """Compile layers into one program; None if one of them has no equivalent among the native operators."""
    try:
        return LayerProgram(layers, position) if ops.is_available() and layers else None
    except NotCompilable:
        return None


class LayerProgram:
    """The program of a stack of layers, and the KV buffers that its attention operators read."""

    program: StepProgram

    def __init__(self, layers: Sequence[Layer], position: Position) -> None:
        if not isinstance(position, Rotary) and type(position).rotate is not Position.rotate:
            raise NotCompilable
        if isinstance(position, PerLayerPosition) or (isinstance(position, Rotary) and position.is_partial):
            raise NotCompilable
        self.rotary: Rotary | None = position if isinstance(position, Rotary) else None
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
        assert isinstance(sublayer, FastSublayer), "_get_norm raises for other modules"
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
            activation = branch.activation
            if activation not in ops.ACTIVATION_CODES:
                raise NotCompilable
            up = self.program.linear(x, _get_tiles(branch.up), "none" if branch.is_gated else activation)
            hidden = self.program.gate(up, activation) if branch.is_gated else up
            return self.program.linear(hidden, _get_tiles(branch.down), add=add)
        if not isinstance(branch, FastSelfAttention | FastCrossAttention) or not branch.scale:
            raise NotCompilable
        buffer, width = len(self.attentions), branch.head_width
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
            self.program.attend(x, heads, groups, width, branch.scale, buffer=buffer),
            _get_tiles(branch.output),
            add=add,
        )

    def step(self, x: Tensor, step_context: StepContext) -> Tensor:
        """Run one new token per row through all layers, (B, W); no row may have ended."""
        buffers = [self._buffer_ref(path, branch, step_context, len(x)) for path, branch in self.attentions]
        return self.program(x, buffers, None if step_context.rotation is None else self._cos_sin(step_context, len(x)))

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
        """Cosines and sines of the new token's rotary angles, side by side (B, D): the rotation of unit vectors (1, 0)."""
        assert self.rotary is not None, "a stack that rotates has a Rotary position"
        assert step_context.rotation is not None, "only called where there is a rotation"
        width = self.rotary.waves.width
        unit_pairs = torch.zeros(width // 2, 2)
        unit_pairs[:, 0] = 1
        interleaved = self.rotary.interleaved
        unit_pairs = (unit_pairs if interleaved else unit_pairs.T).reshape(1, 1, 1, width)
        rotated: Any = step_context.rotation(unit_pairs).view(-1, width)
        rotated = rotated.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1) if interleaved else rotated
        return rotated.expand(rows, width)


def _get_norm(sublayer: nn.Module) -> FastNorm:
    if not isinstance(sublayer, FastSublayer) or not isinstance(sublayer.norm, FastNorm):
        raise NotCompilable
    return sublayer.norm


def _get_tiles(layer: PackedLinear) -> ops.Int8Tiles:
    """The int8 tiles of a linear layer that the native operator multiplies."""
    if not isinstance(layer, Int8TiledLinear):
        raise NotCompilable
    return layer.weights
