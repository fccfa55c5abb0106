"""Operators of our own for inference on a CPU: int8 products, attention of one new token, norms.

The C++ beside this file is compiled on first use; without a compiler, or with `SACCADE_NATIVE=0`, PyTorch computes the same,
slower. `ready` says which of the two it is, `why` says why. There are no gradients here: call them under `torch.no_grad()`.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from saccade.engine import fallback
from saccade.engine.loading import library, ready, why
from saccade.engine.operands import FLOAT, apart, check_attend, check_lengths, flat, kept
from saccade.engine.packed import ACTS, TILE, Packed
from saccade.engine.steps import Room

__all__ = ["ACTS", "TILE", "Packed", "attend", "gather", "norm", "ready", "rms", "why"]


def attend(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    scale: float,
    keep: Tensor | None = None,
    fresh: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """One new token per row looks at its memory: q (B, H, D), keys and values (B, G, K, D), lengths (B,) -> (B, H, D).

    `keep` (B, K) is True where a place may be seen. `fresh` is the new token's own key and value, (B, G, D) each: they are
    first written to place `lengths - 1`.
    """
    room = Room(keys, values, lengths, keep)
    check_attend(q, keys, fresh)
    (b, h, d), (g, limit) = q.shape, keys.shape[1:3]
    found = library()
    if found is None:
        check_lengths(lengths, limit, fresh)
        for memory, new in zip((keys, values), fresh or (), strict=False):
            fallback.write(memory, kept(new, memory.dtype), lengths)
        return fallback.attend(q, keys.float(), values.float(), lengths, scale, keep)
    q = apart(q)
    new = (None, None, 0)
    if fresh is not None:
        key, value = apart(fresh[0]), apart(fresh[1])
        if key.stride(0) != value.stride(0):
            key, value = key.contiguous(), value.contiguous()
        new = (key.data_ptr(), value.data_ptr(), key.stride(0))
    out = q.new_empty((b, h, d))
    asked = (ctypes.byref(room.bound), q.data_ptr(), q.stride(0), *new, out.data_ptr(), b, h, g, d, scale)
    if found.saccade_attend(*asked) >= 0:
        check_lengths(lengths, limit, fresh)
    return out


def gather(memory: Tensor, origin: Tensor, length: int, spare: Tensor | None = None) -> Tensor:
    """The first `length` places of a memory (P, G, K, D), each from the row that `origin` (B, K) says, as (B, G, K, D).

    They go to the `spare` memory, if it is one of the right size; what lies behind them is anything.
    """
    shape = (len(origin), *memory.shape[1:])
    fits = spare is not None and spare.shape == shape and spare.dtype is memory.dtype and spare.is_contiguous()
    out = spare if spare is not None and fits else memory.new_empty(shape)
    used = origin[:, :length]
    if used.size(1) != length or (used.numel() and (int(used.min()) < 0 or int(used.max()) >= len(memory))):
        raise ValueError(
            f"This memory has {len(memory)} rows of {memory.size(2)} places; got {length} places from rows {used.tolist()}."
        )
    found = library()
    if found is None or not (memory.is_cpu and memory.is_contiguous() and used.numel()):
        out[:, :, :length] = fallback.gather(memory, used)
        return out
    used = used.to("cpu", torch.int32).contiguous()
    steps = (size * memory.element_size() for size in (memory.stride(0), memory.stride(1), memory.size(3)))
    sizes = (len(used), memory.size(1), *steps, length)
    found.saccade_gather(memory.data_ptr(), out.data_ptr(), used.data_ptr(), used.stride(0), *sizes)
    return out


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Layer norm over the last axis."""
    found = library()
    return fallback.norm(x, weight, bias, eps) if found is None else _norm(found, x, weight, bias, eps, 0)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis."""
    found = library()
    return fallback.rms(x, weight, eps) if found is None else _norm(found, x, weight, None, eps, 1)


def _norm(found: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, rms: int) -> Tensor:
    x, width = flat(x), x.size(-1)
    if weight.shape != (width,) or not (weight.is_contiguous() and weight.dtype is FLOAT):
        raise ValueError(f"This norm scales float32 rows of {tuple(weight.shape)}; it got {tuple(x.shape)}.")
    out = torch.empty_like(x)
    shift = None if bias is None else bias.data_ptr()
    found.saccade_norm(x.data_ptr(), weight.data_ptr(), shift, eps, out.data_ptr(), x.numel() // width, width, rms)
    return out
