"""Optimized transformer sublayers: fused projections, and a decoding step with few native calls per token.

Each replaces a plain module and takes the same arguments under the same names, so that states, beam search and `watch` work
unchanged. Attention weights for `watch` come from the mechanism itself, whatever computes the output.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention import Dot, Mechanism, ScaledDot, Sight
from saccade.attention.normalizer import Softmax
from saccade.engine.kv_buffers import mmap_zeros
from saccade.engine.kv_cache import KVCache
from saccade.engine.native import ops
from saccade.engine.native.check_args import to_cache_dtype
from saccade.engine.packed_linear import LinearPacker, PackedLinear, fuse_linears
from saccade.engine.unpadded import UnpaddedSight
from saccade.parts.feedforward import ACTIVATIONS, FeedForward
from saccade.parts.layer import Sublayer
from saccade.parts.multihead_attention import Attention, select_head_bias, split_heads
from saccade.parts.norm import OffsetRMSNorm
from saccade.parts.position import Rotation
from saccade.parts.state import State

MAX_TOKENS_PER_CHUNK = 128  # tokens per chunk of a prefill; larger chunks take more memory and are not faster


@dataclass
class StepContext:
    """What all layers share during a decoding step of one new token per row."""

    kv_cache: KVCache
    lengths: Tensor  # (B,) length of each row, including the new token
    keep: Tensor | None = None  # (B, K)
    rotation: Rotation | None = None
    cross_memory: Tensor | None = None  # (B, K, W)
    cross_memory_keep: Tensor | None = None
    active_rows: Tensor | None = None  # (n,) rows that have not ended, the only ones that are computed; None for all
    cache: dict[Hashable, Tensor] = field(default_factory=dict)

    def padded_keep(self, length: int) -> Tensor | None:
        """`keep` padded with False to the capacity of a KV buffer."""
        if self.keep is not None and length not in self.cache:
            self.cache[length] = F.pad(self.keep, (0, length - self.keep.size(1)))
        return self.cache.get(length)

    def scatter_active(self, x: Tensor) -> Tensor:
        """Expand the results of active rows to the full batch, with zeros for rows that have ended."""
        if self.active_rows is None:
            return x
        return x.new_zeros(self.lengths.size(0), *x.shape[1:]).index_copy_(0, self.active_rows, x)

    def select_active(self, x: Tensor) -> Tensor:
        return x if self.active_rows is None else x.index_select(0, self.active_rows)

    def full_lengths(self, length: int, rows: int) -> Tensor:
        """A tensor of `rows` equal lengths."""
        if (length, rows) not in self.cache:
            self.cache[length, rows] = torch.full((rows,), length)
        return self.cache[length, rows]


class FastSublayer(nn.Module):
    """Residual connection and norm around a branch that adds the residual itself.

    `forward` takes (B, T, W) like the plain sublayer; `step` takes one new token per row, (B, W).
    """

    def __init__(self, branch: "FastSelfAttention | FastCrossAttention | FastFeedForward", sublayer: Sublayer):
        super().__init__()
        self.branch, self.norm, self.norm_first = branch, fast_norm(sublayer.norm), sublayer.norm_first
        self.post_norm = None if sublayer.post_norm is None else fast_norm(sublayer.post_norm)

    def forward(self, x: Tensor, *args, **options) -> Tensor:
        if self.norm_first:
            return self.forward_with_residual(x, x, *args, **options)
        return self.norm(self.branch(x, *args, add=x, **options))

    def forward_with_residual(self, x: Tensor, residual: Tensor, *args, **options) -> Tensor:
        """A pre-norm branch applied to x, added to `residual`, which in a parallel layer is the output of the other branch."""
        x = self.norm(x)
        if self.post_norm is None:
            return self.branch(x, *args, add=residual, **options)
        return residual + self.post_norm(self.branch(x, *args, add=None, **options))

    def step(self, x: Tensor, step_context: StepContext, path: str) -> Tensor:
        if self.norm_first:
            return self.step_with_residual(x, x, step_context, path)
        return self.norm.forward(self.branch.step(x, x, step_context, path))

    def step_with_residual(self, x: Tensor, residual: Tensor, step_context: StepContext, path: str) -> Tensor:
        """Like `forward_with_residual`, for one new token per row."""
        x = self.norm.forward(x)
        if self.post_norm is None:
            return self.branch.step(x, residual, step_context, path)
        return residual + self.post_norm.forward(self.branch.step(x, None, step_context, path))


class FastSelfAttention(nn.Module):
    """Self-attention with one fused product for query, key and value, and one native call per new token."""

    def __init__(self, original: Attention, pack: LinearPacker):
        super().__init__()
        self.mechanism, self.head_width, self.kept_heads = original.mechanism, original.head_width, original.kept_heads
        heads, kv_heads = (
            as_linear(layer).out_features // original.head_width for layer in (original.query, original.key)
        )
        self.query_key_heads, self.head_counts = heads + kv_heads, (heads, kv_heads, kv_heads)
        self.joint = fuse_linears([as_linear(original.query), as_linear(original.key), as_linear(original.value)], pack)
        self.output = pack_linear(original.output, pack)
        self.scale = softmax_scale(self.mechanism, self.head_width)
        self.qk_norm = original.qk_norm

    def forward(
        self,
        x: Tensor,
        sight: Sight,
        *,
        add: Tensor | None,
        rotation: Rotation | None = None,
        state: State | None = None,
    ) -> Tensor:
        joint = self.joint(x)
        heads = split_heads(sight.pad(joint) if isinstance(sight, UnpaddedSight) else joint, self.head_width)
        q, k, v = self._rotate_qk(self._normalize_qk(heads), rotation).split(
            self.head_counts, dim=1
        )  # (B, H or G, T, D)
        if state is not None:
            k, v = (
                state.append(name, to_cache_dtype(x, self.joint.kv_dtype)).float()
                for name, x in (("key", k), ("value", v))
            )
        out = self.mechanism(q, k, v, select_head_bias(sight, self.kept_heads)).transpose(1, 2).flatten(2)
        return self.output(sight.unpad(out) if isinstance(sight, UnpaddedSight) else out, "none", add)

    def step(self, x: Tensor, add: Tensor | None, step_context: StepContext, path: str) -> Tensor:
        heads = step_context.scatter_active(self.joint.forward(x)).unflatten(1, (-1, self.head_width))  # (B, H + 2G, D)
        if step_context.rotation is not None or self.qk_norm is not None:
            heads = self._rotate_qk(self._normalize_qk(heads[:, :, None]), step_context.rotation)[:, :, 0]
        q, k, v = heads.split(self.head_counts, dim=1)
        new_token = k[:, :, None].to(self.joint.kv_dtype)
        keys = step_context.kv_cache.reserve(f"{path}key", new_token).storage
        values = step_context.kv_cache.reserve(f"{path}value", new_token).storage
        out = ops.attend(
            q, keys, values, step_context.lengths, self.scale, step_context.padded_keep(keys.size(2)), (k, v)
        )
        return self.output.forward(step_context.select_active(out.flatten(1)), "none", add)

    def _normalize_qk(self, heads: Tensor) -> Tensor:
        """Normalize queries and keys (QK-norm), and keep the values; (B, H + 2G, T, D)."""
        if self.qk_norm is None:
            return heads
        q, k, v = heads.split(self.head_counts, dim=1)
        return torch.cat([self.qk_norm.query(q), self.qk_norm.key(k), v], dim=1)

    def _rotate_qk(self, heads: Tensor, rotation: Rotation | None) -> Tensor:
        """Apply rotary positions to queries and keys, and keep the values."""
        if rotation is None:
            return heads
        return torch.cat([rotation(heads[:, : self.query_key_heads]), heads[:, self.query_key_heads :]], dim=1)


class FastCrossAttention(nn.Module):
    """Cross-attention, whose keys and values are computed once per source, in one fused product."""

    def __init__(self, original: Attention, pack: LinearPacker):
        super().__init__()
        self.mechanism, self.head_width = original.mechanism, original.head_width
        self.query, self.output = pack_linear(original.query, pack), pack_linear(original.output, pack)
        self.joint = fuse_linears([as_linear(original.key), as_linear(original.value)], pack)
        self.scale = softmax_scale(self.mechanism, self.head_width)

    def forward(
        self, x: Tensor, sight: Sight, *, add: Tensor | None, memory: Tensor, state: State | None = None
    ) -> Tensor:
        q = split_heads(self.query(x), self.head_width)  # (B, H, T, D)
        k, v = (x.float() for x in self._get_keys_values(memory, sight.keep, state))
        return self.output(self.mechanism(q, k, v, sight).transpose(1, 2).flatten(2), "none", add)

    def step(self, x: Tensor, add: Tensor | None, step_context: StepContext, path: str) -> Tensor:
        q = step_context.scatter_active(self.query.forward(x)).unflatten(1, (-1, self.head_width))  # (B, H, D)
        k, v, group = self.keys_values_per_source(step_context, path)
        keep = None if step_context.cross_memory_keep is None else step_context.cross_memory_keep[::group]
        if group > 1:  # rows that share a source are computed as one row with more heads
            q = q.unflatten(0, (-1, group)).transpose(1, 2).flatten(1, 2)
        out = ops.attend(q, k, v, step_context.full_lengths(k.size(2), len(k)), self.scale, keep)
        if group > 1:
            out = out.unflatten(1, (-1, group)).transpose(1, 2).flatten(0, 1)
        return self.output.forward(step_context.select_active(out.flatten(1)), "none", add)

    def keys_values_per_source(self, step_context: StepContext, path: str) -> tuple[Tensor, Tensor, int]:
        """Keys and values with one row per source, and the number of rows that share a source."""
        assert step_context.cross_memory is not None, "a layer with cross-attention needs a memory"
        state = step_context.kv_cache.at(path[:-1])
        k, v = state.per_source("key"), state.per_source("value")
        keys_values = (
            self._make_keys_values(step_context.cross_memory, step_context.cross_memory_keep, state)
            if k is None or v is None
            else match_layout(k, v)
        )
        return *keys_values, state.rows_per_source("key")

    def _get_keys_values(self, memory: Tensor, keep: Tensor | None, state: State | None) -> tuple[Tensor, Tensor]:
        k, v = (None, None) if state is None else (state.get("key"), state.get("value"))
        return self._make_keys_values(memory, keep, state) if k is None or v is None else match_layout(k, v)

    def _make_keys_values(self, memory: Tensor, keep: Tensor | None, state: State | None) -> tuple[Tensor, Tensor]:
        """Keys and values (B, G, K, D) of the real tokens; all heads of a token are adjacent, so padding takes no memory."""
        shape = (*memory.shape[:2], self.joint.out_features // (2 * self.head_width), self.head_width)  # (B, K, G, D)
        k, v = (mmap_zeros(shape, memory.new_empty(0, dtype=self.joint.kv_dtype)) for _ in range(2))
        real = memory.new_ones((1, 1), dtype=torch.bool) if keep is None else keep
        for tokens in real.expand(shape[:2]).nonzero().split(MAX_TOKENS_PER_CHUNK):
            at = tuple(tokens.T)
            joint = to_cache_dtype(self.joint(memory[at]), self.joint.kv_dtype).unflatten(1, (-1, self.head_width))
            k[at], v[at] = joint.chunk(2, dim=1)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        return (k, v) if state is None else (state.put("key", k, 2), state.put("value", v, 2))


class FastFeedForward(nn.Module):
    """Feed-forward with gate and up projection fused into one product, and with a fused activation where there is no gate."""

    def __init__(self, original: FeedForward, pack: LinearPacker):
        super().__init__()
        self.activation, self.is_gated = original.activation, original.gate is not None
        self.up = (
            pack_linear(original.up, pack)
            if original.gate is None
            else fuse_linears([original.gate, original.up], pack)
        )
        self.down = pack_linear(original.down, pack)

    def forward(self, x: Tensor, *, add: Tensor | None) -> Tensor:
        if not self.is_gated:
            return self.down.forward(self.up.forward(x, self.activation), "none", add)
        gate, up = self.up.forward(x).chunk(2, dim=-1)
        return self.down.forward(ACTIVATIONS[self.activation](gate) * up, "none", add)

    def step(self, x: Tensor, add: Tensor | None, step_context: StepContext, path: str) -> Tensor:
        return self.forward(x, add=add)


class FastNorm(nn.Module):
    """Layer norm or RMS norm, computed by the native operator."""

    def __init__(self, original: nn.LayerNorm | nn.RMSNorm):
        super().__init__()
        self.weight = 1 + original.weight.detach() if isinstance(original, OffsetRMSNorm) else original.weight
        self.bias = original.bias if isinstance(original, nn.LayerNorm) else None
        self.eps = torch.finfo(torch.float32).eps if original.eps is None else original.eps
        self.is_layer_norm = isinstance(original, nn.LayerNorm)

    def forward(self, x: Tensor) -> Tensor:
        if self.is_layer_norm:
            return ops.layer_norm(x, self.weight, self.bias, self.eps)
        return ops.rms_norm(x, self.weight, self.eps)


NORMS = (nn.LayerNorm, nn.RMSNorm, OffsetRMSNorm)


def fast_norm(original: nn.Module) -> nn.Module:
    """The optimized form of a norm, or the norm itself where there is none."""
    common = type(original) in NORMS and isinstance(original.weight, Tensor) and original.weight.dim() == 1
    return FastNorm(original) if common and ops.is_available() else original  # type: ignore[arg-type]


def fast_sublayer(original: Sublayer, pack: LinearPacker, *, cross: bool = False) -> nn.Module:
    """The optimized form of a sublayer, or the sublayer itself where there is none."""
    branch = original.branch
    if not has_fast_form(original, cross=cross):
        return original
    if isinstance(branch, FeedForward):
        return FastSublayer(FastFeedForward(branch, pack), original)
    assert isinstance(branch, Attention), "it has a fast form"
    return FastSublayer(FastCrossAttention(branch, pack) if cross else FastSelfAttention(branch, pack), original)


def has_fast_form(original: Sublayer, *, cross: bool = False) -> bool:
    """Whether a sublayer has an optimized form."""
    branch = original.branch
    if original.post_norm is not None and not original.norm_first:
        return False
    if type(branch) is not Attention:
        return type(branch) is FeedForward
    usual = not branch.mechanism.ties_query_key and branch.value_width == branch.head_width and branch.gate is None
    return usual and type(branch.output) is nn.Linear and not (cross and branch.qk_norm is not None)


def softmax_scale(mechanism: Mechanism, width: int) -> float:
    """The scale of the scores in softmax attention; 0 for a mechanism that the native operator does not compute."""
    if type(mechanism) not in (ScaledDot, Dot) or type(mechanism.normalizer) is not Softmax:
        return 0.0
    assert isinstance(mechanism, ScaledDot)
    return 1 / math.sqrt(width) if mechanism.scale is None else mechanism.scale


def to_contiguous(x: Tensor) -> Tensor:
    """A contiguous copy with the strides of its shape, also along axes of size one."""
    return x.clone(memory_format=torch.contiguous_format)


def match_layout(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values in the layout that the native operator needs, which padding or cutting a state may have changed."""
    return (k, v) if k.stride() == v.stride() and k.stride(3) == 1 else (to_contiguous(k), to_contiguous(v))


def pack_linear(layer: nn.Module, pack: LinearPacker) -> PackedLinear:
    """Pack one layer; transposed weights, such as GPT-2's in its file, are made contiguous first, which is faster."""
    linear = as_linear(layer)
    return pack(to_contiguous(linear.weight.detach()), linear.bias)


def as_linear(layer: nn.Module) -> nn.Linear:
    assert isinstance(layer, nn.Linear), f"a linear layer is needed; got {type(layer).__name__}"
    return layer
