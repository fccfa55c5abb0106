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


def fusible(sight: Sight) -> bool:
    """Whether the kernel can serve this call: nothing random, and no tilt that must learn."""
    if sight.noise is not None:
        return False
    learned = any(p.requires_grad for p in getattr(sight.bias, "parameters", tuple)())
    return not (learned and torch.is_grad_enabled())


def short_only_in_products(q: Tensor) -> bool:
    """Whether a processor is told to shorten numbers for the sake of products, of which attention has few."""
    return q.device.type == "cpu" and torch.is_autocast_enabled("cpu")


def long(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x


def fused(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, *, scale: float | None = None, tilt: Tensor | None = None
) -> Tensor:
    """softmax(q·k · scale + mask + tilt) @ v in one kernel; the scale is 1/√d unless it is given."""
    if short_only_in_products(q):
        with torch.autocast("cpu", enabled=False):
            return fused(long(q), long(k), long(v), sight, scale=scale, tilt=tilt).to(q.dtype)
    causal = sight.plain(q, k)
    if tilt is not None:
        causal, mask = False, sight.mask(q, k) + tilt
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
