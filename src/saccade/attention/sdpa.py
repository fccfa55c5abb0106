"""PyTorch's fused attention kernel (scaled_dot_product_attention, SDPA), and when it can be used.

The kernel computes scaled dot products, softmax and one mask. On a CPU it supports neither attention dropout nor a mask that
requires a gradient, and it needs keys and values of equal width; `sdpa` pads the widths, `can_use_sdpa` checks the rest. On
a CPU with AVX512-BF16, where it was measured, bfloat16 is slower than float32, four times as slow in the backward pass; so
under autocast (mixed precision) it runs in float32.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention.sight import Sight


def can_use_sdpa(sight: Sight) -> bool:
    """Whether the kernel supports this call: no dropout or sampling, and no bias that requires a gradient."""
    if sight.noise is not None:
        return False
    bias_needs_grad = any(p.requires_grad for p in getattr(sight.bias, "parameters", tuple)())
    return not (bias_needs_grad and torch.is_grad_enabled())


def is_cpu_autocast(q: Tensor) -> bool:
    """Whether autocast (mixed precision) is enabled on a CPU, where attention is faster in float32."""
    return q.device.type == "cpu" and torch.is_autocast_enabled("cpu")


def upcast_bfloat16(x: Tensor) -> Tensor:
    """bfloat16 to float32; other dtypes unchanged."""
    return x.float() if x.dtype == torch.bfloat16 else x


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, *, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """softmax(q·k · scale + mask + bias) @ v in one fused kernel; the default scale is 1/√d."""
    if is_cpu_autocast(q):
        with torch.autocast("cpu", enabled=False):
            return sdpa(upcast_bfloat16(q), upcast_bfloat16(k), upcast_bfloat16(v), sight, scale=scale, bias=bias).to(
                q.dtype
            )
    causal = sight.sdpa_is_causal(q, k)
    if bias is not None:
        causal, mask = False, sight.mask(q, k) + bias
    else:
        mask = sight.mask(q, k) if causal is None else None
    width, value_width = q.size(-1), v.size(-1)
    scale = 1 / math.sqrt(width) if scale is None else scale
    if width != value_width:
        # zeros change neither a dot product nor the values beside them, and keep the kernel on its fast path
        wide = max(width, value_width)
        q, k, v = (F.pad(x, (0, wide - x.size(-1))) for x in (q, k, v))
    grouped = q.size(1) != k.size(1)
    out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=bool(causal), scale=scale, enable_gqa=grouped)
    return out if width == value_width else out[..., :value_width]
