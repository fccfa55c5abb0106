"""PyTorch's fused attention kernel, and when it may be used.

The kernel knows scaled dot products, softmax and one mask. It takes no dropout on the weights and no mask that needs a
gradient on a CPU, and it wants keys and values equally wide; `fused` sees to the widths, `fusible` answers the rest. On a CPU
with AVX512-BF16, where it was measured, it is slower with bfloat16 than with float32, backwards four times as slow; so where
only products are to be short (autocast) it computes in float32.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention.sight import Sight


def can_use_sdpa(sight: Sight) -> bool:
    """Whether the kernel can serve this call: nothing random, and no tilt that must learn."""
    if sight.noise is not None:
        return False
    learned = any(p.requires_grad for p in getattr(sight.bias, "parameters", tuple)())
    return not (learned and torch.is_grad_enabled())


def is_cpu_autocast(q: Tensor) -> bool:
    """Whether a processor is told to shorten numbers for the sake of products, of which attention has few."""
    return q.device.type == "cpu" and torch.is_autocast_enabled("cpu")


def upcast_bfloat16(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, *, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """softmax(q·k · scale + mask + tilt) @ v in one kernel; the scale is 1/√d unless it is given."""
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
