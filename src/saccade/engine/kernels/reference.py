"""The definition of the encoder kernels in PyTorch: what each of them computes, written to be read and compared with."""

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.engine.kernels.encoder_program import EmbeddingTables, EncoderLayer, EncoderProgram, NormWeights
from saccade.engine.kernels.matrix import PackedMatrix
from saccade.engine.native.reference_ops import ACTIVATIONS


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize each row to levels 0 to 255 of a range that includes zero: (levels, scale, zero), value = (level - zero) * scale.

    A row with an infinity or a NaN gets the scale NaN.
    """
    low, high = x.amin(-1).clamp(max=0), x.amax(-1).clamp(min=0)
    span = high - low
    is_flat = ~((span > 1e-30) & (span < 3e38))
    factor = torch.where(is_flat, 0, torch.tensor(255.0) / span)
    zero = torch.nan_to_num(-low * factor).round().int()
    levels = torch.nan_to_num(x * factor[..., None]).round().int() + zero[..., None]
    scale = torch.where(is_flat, 0, span / 255) + (x * 0).sum(-1)
    return levels.clamp(0, 255), scale, zero


def linear(matrix: PackedMatrix, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
    """activation(x · weight + bias) + add."""
    weight = matrix.unpack()
    if matrix.precision == "int8":
        assert matrix.scales is not None, "int8 weights have scales"
        levels, scale, zero = quantize_rows(x)
        total = F.linear((levels - zero[..., None]).double(), weight.double()).float()  # exact integers
        y = total * (scale[..., None] * matrix.scales[: matrix.outputs])
    else:
        y = F.linear(x.to(weight.dtype).float(), weight.float())
    y = y if matrix.bias is None else y + matrix.bias[: matrix.outputs]
    y = ACTIVATIONS[activation](y)
    return y if add is None else y + add


def normalize(norm: NormWeights, x: Tensor) -> Tensor:
    """Layer norm, or the root-mean-square norm."""
    if norm.is_rms:
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)
    return F.layer_norm(x, norm.weight.shape, norm.weight, norm.bias, norm.eps)


def attend(layer: EncoderLayer, joint: Tensor, precision: str) -> Tensor:
    """Softmax attention of all heads over one text, (n, joint width) to (n, H·D); scores are in bfloat16 or float32."""
    counts = (layer.heads, layer.kv_heads, layer.kv_heads)
    q, k, v = joint.unflatten(1, (-1, layer.head_width)).transpose(0, 1).split(counts)  # (H or G, n, D)
    k, v = (t.repeat_interleave(layer.heads // layer.kv_heads, 0) for t in (k, v))
    q = q * layer.scale
    if precision != "float32":
        q, k = q.bfloat16().float(), k.bfloat16().float()
    return ((q @ k.mT).softmax(-1) @ v).transpose(0, 1).flatten(1)


def feed_forward(layer: EncoderLayer, x: Tensor) -> Tensor:
    """The feed-forward of a layer, with a gate or without."""
    if not layer.is_gated:
        return linear(layer.down, linear(layer.up, x, layer.activation))
    gate, up = linear(layer.up, x).chunk(2, dim=-1)
    return linear(layer.down, ACTIVATIONS[layer.activation](gate) * up)


def embed(tables: EmbeddingTables, tokens: Tensor, segments: Tensor | None) -> Tensor:
    """The sum of the embeddings of one text, (n, W), normalized and projected."""
    x = tables.words[tokens.long()] * tables.scale
    if tables.segments is not None:
        x = x + tables.segments[0 if segments is None else segments.long()]
    if tables.positions is not None:
        x = x + tables.positions[: len(tokens)]
    x = x if tables.norm is None else normalize(tables.norm, x)
    return x if tables.project is None else linear(tables.project, x)


def encode_rows(program: EncoderProgram, x: Tensor) -> Tensor:
    """The layers of a program for the rows of one text, (n, W) to (n, W)."""
    for layer in program.layers:
        if layer.norm_first:
            joint = linear(layer.joint, normalize(layer.attention_norm, x))
            x = x + linear(layer.output, attend(layer, joint, program.precision))
            x = x + feed_forward(layer, normalize(layer.feedforward_norm, x))
        else:
            attended = attend(layer, linear(layer.joint, x), program.precision)
            x = normalize(layer.attention_norm, x + linear(layer.output, attended))
            x = normalize(layer.feedforward_norm, x + feed_forward(layer, x))
    return x if program.leave is None else normalize(program.leave, x)
