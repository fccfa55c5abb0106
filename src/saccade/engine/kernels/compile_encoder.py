"""Compilation of an encoder into one program, from the declared parts of its stack; what has no equivalent is named."""

from collections.abc import Sequence

from torch import Tensor, nn

from saccade.attention import FULL
from saccade.engine.int8_linear import ACTIVATION_CODES
from saccade.engine.kernels import library
from saccade.engine.kernels.encoder_program import (
    MAX_HEAD_WIDTH,
    EmbeddingTables,
    EncoderLayer,
    EncoderProgram,
    NormWeights,
)
from saccade.engine.kernels.matrix import PER_BLOCK, PackedMatrix
from saccade.engine.layers import FastLayer
from saccade.engine.native import ops
from saccade.engine.packed_linear import PanelLinear
from saccade.engine.stack import FastStack
from saccade.engine.sublayers import FastFeedForward, FastNorm, FastSelfAttention, FastSublayer, softmax_scale
from saccade.models.capabilities import TextEncoderParts
from saccade.parts.embeddings import SegmentEmbedding, TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, Sublayer
from saccade.parts.multihead_attention import Attention
from saccade.parts.norm import OffsetRMSNorm
from saccade.parts.position import AdditivePosition, PerLayerPosition, Position
from saccade.parts.stack import Stack

NORMS = (nn.LayerNorm, nn.RMSNorm, OffsetRMSNorm)


def encoder_unsupported_reason(stack: Stack, precision: str) -> str:
    """Why a stack cannot be one encoder program; empty if it can."""
    if precision not in PER_BLOCK:
        return f"there are no encoder kernels in {precision}"
    if not (library.is_available() and ops.is_available()):
        return library.unavailable_reason() or ops.unavailable_reason() or "the compiled operators are switched off"
    if any(pattern != FULL for pattern in stack.patterns):
        return "not all tokens attend to all others"
    position = stack.position
    rotates = type(position).rotate is not Position.rotate
    if rotates or position.bias() is not None or isinstance(position, PerLayerPosition):
        return f"positions are encoded in its attention ({type(position).__name__})"
    if type(stack.leave) not in (nn.Identity, *NORMS):
        return f"it ends in {type(stack.leave).__name__}"
    if not stack.layers:
        return "it has no layers"
    if len({layer.attention.norm_first for layer in stack.layers if type(layer) is Layer}) > 1:
        return "some of its layers are pre-norm and others post-norm"
    return next(filter(None, (_layer_reason(layer) for layer in stack.layers)), "")


def _layer_reason(layer: nn.Module) -> str:
    if type(layer) is not Layer or layer.across is not None:
        return f"it has other layers ({type(layer).__name__}) than self-attention and feed-forward"
    sublayers = (layer.attention, layer.feedforward)
    if any(type(sublayer) is not Sublayer or sublayer.post_norm is not None for sublayer in sublayers):
        return "its sublayers have further norms"
    if layer.attention.norm_first != layer.feedforward.norm_first:
        return "some of its sublayers are pre-norm and others post-norm"
    for norm in (layer.attention.norm, layer.feedforward.norm):
        if type(norm) not in NORMS or not isinstance(norm.weight, Tensor) or norm.weight.dim() != 1:
            return f"its norm is {type(norm).__name__}"
    return _attention_reason(layer.attention.branch) or _feedforward_reason(layer.feedforward.branch)


def _attention_reason(branch: nn.Module) -> str:
    if type(branch) is not Attention or not softmax_scale(branch.mechanism, branch.head_width):
        mechanism = branch.mechanism if isinstance(branch, Attention) else branch
        return f"its attention is {type(mechanism).__name__}"
    if branch.mechanism.ties_query_key or branch.qk_norm is not None or branch.gate is not None:
        return "its attention ties queries to keys, normalizes them, or has a gate"
    if branch.value_width != branch.head_width or type(branch.output) is not nn.Linear:
        return "its values have another width than its queries, or no output projection"
    return f"its heads are wider than {MAX_HEAD_WIDTH}" if branch.head_width > MAX_HEAD_WIDTH else ""


def _feedforward_reason(branch: nn.Module) -> str:
    if type(branch) is not FeedForward:
        return f"its feed-forward is {type(branch).__name__}"
    return "" if branch.activation in ACTIVATION_CODES else f"its activation is {branch.activation}"


def compile_encoder(layers: Sequence[FastLayer], leave: nn.Module, precision: str) -> EncoderProgram:
    """The program of converted layers, which shares their weights; `encoder_unsupported_reason` is empty for them."""
    width = _matrix(_branches(layers[0])[1].down).outputs
    norm = _norm_weights(leave) if isinstance(leave, FastNorm) else None
    return EncoderProgram([_compile_layer(layer) for layer in layers], width, precision, leave=norm)


def _compile_layer(layer: FastLayer) -> EncoderLayer:
    attention, feedforward = _branches(layer)
    heads, kv_heads, _ = attention.head_counts
    return EncoderLayer(
        joint=_matrix(attention.joint),
        output=_matrix(attention.output),
        up=_matrix(feedforward.up),
        down=_matrix(feedforward.down),
        attention_norm=_norm_weights(layer.attention.norm),
        feedforward_norm=_norm_weights(layer.feedforward.norm),
        heads=heads,
        kv_heads=kv_heads,
        head_width=attention.head_width,
        scale=attention.scale,
        activation=feedforward.activation,
        is_gated=feedforward.is_gated,
        norm_first=layer.attention.norm_first,
    )


def _branches(layer: FastLayer) -> tuple[FastSelfAttention, FastFeedForward]:
    attention, feedforward = (
        part.branch for part in (layer.attention, layer.feedforward) if isinstance(part, FastSublayer)
    )
    assert isinstance(attention, FastSelfAttention), "encoder_unsupported_reason has checked it"
    assert isinstance(feedforward, FastFeedForward), "encoder_unsupported_reason has checked it"
    return attention, feedforward


def _matrix(layer: nn.Module) -> PackedMatrix:
    assert isinstance(layer, PanelLinear), "the converter packs the layers of an encoder this way"
    return layer.matrix


def _norm_weights(norm: nn.Module) -> NormWeights:
    assert isinstance(norm, FastNorm), "encoder_unsupported_reason has checked it"
    return NormWeights(norm.weight, norm.bias, norm.eps, not norm.is_layer_norm)


def compile_text_encoder(body: nn.Module, parts: TextEncoderParts | None) -> EncoderProgram | None:
    """The program of a whole body from token ids, if its family declares that it is nothing but these parts."""
    if parts is None:
        return None
    stack, words = body.get_submodule(parts.stack), body.get_submodule(parts.words)
    segments = body.get_submodule(parts.segments) if parts.segments else None
    if not isinstance(stack, FastStack) or stack.encoder_program is None or not isinstance(words, TokenEmbedding):
        return None
    enter = _enter_parts(stack.enter)
    if enter is None or type(words.vectors) is not nn.Embedding:
        return None
    if not isinstance(stack.position, AdditivePosition) or stack.position.max_positions is None:
        return None
    norm, project = enter
    tables = EmbeddingTables(
        words.vectors.weight,
        stack.position.to_matrix(stack.position.max_positions),
        segments.vectors.weight if isinstance(segments, SegmentEmbedding) else None,
        words.scale,
        norm,
        project,
    )
    return stack.encoder_program.with_embedding(tables)


def _enter_parts(enter: nn.Module) -> tuple[NormWeights | None, PackedMatrix | None] | None:
    """The norm and the projection of embeddings in front of a stack; None if there is anything else."""
    modules = list(enter.children()) if isinstance(enter, nn.Sequential) else [enter]
    modules = [module for module in modules if not isinstance(module, nn.Identity)]
    norm = _norm_weights(modules.pop(0)) if modules and isinstance(modules[0], FastNorm) else None
    project = _matrix(modules.pop(0)) if modules and isinstance(modules[0], PanelLinear) else None
    return None if modules else (norm, project)
