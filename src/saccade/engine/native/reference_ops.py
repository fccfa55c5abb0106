"""Reference implementations of the native operators in PyTorch: their definition, and the fallback without a compiler."""

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP_SIZE = 64  # columns of an input that share a scale, as in int8_matmul.h
ACTIVATIONS = {
    "none": lambda y: y,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize each row to int8 in [-127, 127]; returns codes and scales. A row with an infinity or a NaN gets the scale NaN."""
    largest, poison = x.abs().amax(-1), (x * 0).sum(-1)
    is_nonzero = largest > 1e-30
    # PyTorch computes `127.0 / tensor` as a reciprocal times 127, which rounds twice and sometimes gives another level
    factor = torch.where(is_nonzero, torch.tensor(127.0) / largest, 0)
    q = torch.nan_to_num(x * factor[..., None]).round().clamp(-127, 127).to(torch.int8)
    return q, torch.where(is_nonzero, largest / 127, 0) + poison


def fake_quantize(x: Tensor) -> Tensor:
    """Round each row to 128 evenly spaced levels from its minimum to its maximum; with an infinity or a NaN the row is NaN."""
    lowest, highest = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    span = highest - lowest
    is_nonzero = span > 1e-30
    q = ((x - lowest) * torch.where(is_nonzero, torch.tensor(127.0) / span, 0)).round().clamp(0, 127)
    return q * (torch.where(is_nonzero, span / 127, 0) + (x * 0).sum(-1, keepdim=True)) + lowest


def linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, activation: str, add: Tensor | None) -> Tensor:
    """activation(x · weight + bias) + add, with each group of columns of x quantized by itself."""
    columns = x.size(-1)
    # repeats the last value, so that padding does not widen the range of the last group
    padding = x[..., -1:].expand(*x.shape[:-1], -columns % GROUP_SIZE)
    rounded = fake_quantize(torch.cat([x, padding], -1).unflatten(-1, (-1, GROUP_SIZE))).flatten(-2)[..., :columns]
    y = ACTIVATIONS[activation](F.linear(rounded, weight.float()) * scale + bias)
    return y if add is None else y + add


def topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` highest scores of each row (B, V), their indices, and the log-softmax of the highest one, (B,)."""
    top = scores.topk(count)
    return (
        top.values,
        top.indices,
        scores.amax(-1) - scores.logsumexp(-1) if count else scores.new_zeros(len(scores)),
    )


def attend(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float, keep: Tensor | None) -> Tensor:
    """softmax(q · keys · scale) · values over the first `lengths` positions that `keep` allows."""
    (b, h, d), (g, limit) = q.shape, keys.shape[1:3]
    visible = torch.arange(limit) < lengths[:, None]  # (B, K)
    visible = (visible if keep is None else visible & keep)[:, None, :, None]  # (B, 1, K, 1)
    scores = torch.einsum("bged,bgkd->bgke", q.reshape(b, g, h // g, d), keys) * scale  # (B, G, K, H/G)
    top = scores.masked_fill(~visible, float("-inf")).amax(2, keepdim=True).clamp(min=torch.finfo(q.dtype).min)
    exponentials = torch.where(visible, (scores - top).exp(), 0)
    total = exponentials.sum(2, keepdim=True)
    weights = torch.where(total == 0, 0, exponentials / total)  # zeros for a query that may not attend to any key
    return torch.einsum("bgke,bgkd->bged", weights, torch.where(visible, values, 0)).reshape(b, h, d)


def write_last(cache: Tensor, new_kv: Tensor, lengths: Tensor) -> None:
    """Write the new token's key or value (B, G, D) to the last position of each row of the cache."""
    cache[torch.arange(len(lengths)), :, lengths - 1] = new_kv


def gather(cache: Tensor, indirection: Tensor) -> Tensor:
    """Positions of a cache (P, G, K, D), each from the row in the table `indirection` (B, K): (B, G, K, D)."""
    positions = torch.arange(indirection.size(1), device=cache.device)
    return cache.transpose(1, 2)[indirection.long(), positions].transpose(1, 2)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Layer normalization over the last axis."""
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis."""
    return F.rms_norm(x, weight.shape, weight, eps)
