"""The native operators in plain PyTorch: what they are defined to compute, and what runs where nothing can be compiled."""

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
    """Each row rounded to [-127, 127], and its scale; a row with an infinity or a NaN gets the scale NaN."""
    most, poison = x.abs().amax(-1), (x * 0).sum(-1)
    alive = most > 1e-30
    # a number over a tensor would be its reciprocal times the number, which rounds twice, and once in a while to another level
    factor = torch.where(alive, torch.tensor(127.0) / most, 0)
    q = torch.nan_to_num(x * factor[..., None]).round().clamp(-127, 127).to(torch.int8)
    return q, torch.where(alive, most / 127, 0) + poison


def fake_quantize(x: Tensor) -> Tensor:
    """Each row rounded to 128 evenly spaced numbers from its least to its most; with an infinity or a NaN it is all NaN."""
    least, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    span = most - least
    alive = span > 1e-30
    q = ((x - least) * torch.where(alive, torch.tensor(127.0) / span, 0)).round().clamp(0, 127)
    return q * (torch.where(alive, span / 127, 0) + (x * 0).sum(-1, keepdim=True)) + least


def linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, activation: str, add: Tensor | None) -> Tensor:
    """act(x · weight + bias) + add, with each group of columns of x rounded by itself."""
    columns = x.size(-1)
    missing = x[..., -1:].expand(
        *x.shape[:-1], -columns % GROUP_SIZE
    )  # repeats what is there, so that no group gets wider
    rounded = fake_quantize(torch.cat([x, missing], -1).unflatten(-1, (-1, GROUP_SIZE))).flatten(-2)[..., :columns]
    y = ACTIVATIONS[activation](F.linear(rounded, weight.float()) * scale + bias)
    return y if add is None else y + add


def topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` highest scores of each row (B, V) and where they are, and the log-softmax of the highest, (B,)."""
    found = scores.topk(count)
    return (
        found.values,
        found.indices,
        scores.amax(-1) - scores.logsumexp(-1) if count else scores.new_zeros(len(scores)),
    )


def attend(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float, keep: Tensor | None) -> Tensor:
    """softmax(q · keys · scale) · values over the first `lengths` places that `keep` allows."""
    (b, h, d), (g, limit) = q.shape, keys.shape[1:3]
    seen = torch.arange(limit) < lengths[:, None]  # (B, K)
    seen = (seen if keep is None else seen & keep)[:, None, :, None]  # (B, 1, K, 1)
    scores = torch.einsum("bged,bgkd->bgke", q.reshape(b, g, h // g, d), keys) * scale  # (B, G, K, H/G)
    top = scores.masked_fill(~seen, float("-inf")).amax(2, keepdim=True).clamp(min=torch.finfo(q.dtype).min)
    raised = torch.where(seen, (scores - top).exp(), 0)
    total = raised.sum(2, keepdim=True)
    weights = torch.where(total == 0, 0, raised / total)  # a query that may see nothing gets zeros
    return torch.einsum("bgke,bgkd->bged", weights, torch.where(seen, values, 0)).reshape(b, h, d)


def write_last(cache: Tensor, new_kv: Tensor, lengths: Tensor) -> None:
    """Put the new token's key or value (B, G, D) in the last place of each row's memory."""
    cache[torch.arange(len(lengths)), :, lengths - 1] = new_kv


def gather(cache: Tensor, indirection: Tensor) -> Tensor:
    """The first places of a memory (P, G, K, D), each from the row that `indirection` (B, K) says: (B, G, K, D)."""
    places = torch.arange(indirection.size(1), device=cache.device)
    return cache.transpose(1, 2)[indirection.long(), places].transpose(1, 2)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Layer norm over the last axis."""
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis."""
    return F.rms_norm(x, weight.shape, weight, eps)
