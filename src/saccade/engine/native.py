"""Operators of our own for inference on a CPU: int8 products, attention of one new token, norms.

The C++ beside this file is compiled on first use; without a compiler, or with `SACCADE_NATIVE=0`, PyTorch computes the same,
slower. `ready` says which of the two it is, `why` says why. There are no gradients here: call them under `torch.no_grad()`.
"""

import ctypes

import torch
from torch import Tensor

from saccade.engine import fallback
from saccade.engine.loading import library, ready, why
from saccade.engine.operands import (
    apart,
    check_attend,
    check_gather,
    check_lengths,
    check_norm,
    flat,
    kept,
    solid,
)
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
    check_attend(q, keys, values, fresh)
    (b, h, d), (g, limit) = q.shape, keys.shape[1:3]
    least, found = 0 if fresh is None else 1, library()
    if found is None or not q.numel():
        check_lengths(lengths, limit, least)
        for memory, new in zip((keys, values), fresh or (), strict=False):
            fallback.write(memory, kept(new, memory.dtype), lengths)
        return fallback.attend(q, keys.float(), values.float(), lengths, scale, keep)
    q = apart(q)
    new = (None, None, 0)
    if fresh is not None:
        key, value = apart(fresh[0]), apart(fresh[1])
        if key.stride(0) != value.stride(0):
            key, value = solid(key), solid(value)
        new = (key.data_ptr(), value.data_ptr(), key.stride(0))
    out = q.new_empty((b, h, d))
    asked = (ctypes.byref(room.bound), q.data_ptr(), q.stride(0), *new, out.data_ptr(), b, h, g, d, scale)
    if found.saccade_attend(*asked) >= 0:
        check_lengths(lengths, limit, least)
    return out


def gather(memory: Tensor, origin: Tensor, length: int, spare: Tensor | None = None) -> Tensor:
    """The first `length` places of a memory (P, G, K, D), each from the row that `origin` (B, K) says, as (B, G, K, D).

    They go to the `spare` memory, if it is one of the right size; what lies behind them is anything.
    """
    check_gather(memory, origin, length)
    out = spare if spare is not None and _takes(spare, memory, len(origin)) else _like(memory, len(origin))
    used, found = origin[:, :length], library()
    if found is None or not (memory.is_cpu and memory.is_contiguous() and used.numel() and memory.numel()):
        out[:, :, :length] = fallback.gather(memory, used)
        return out
    used = solid(used.to("cpu", torch.int32))
    # strides follow from the shape: of an axis with one place only a tensor in one piece may say any
    _, heads, places, width = memory.shape
    place = width * memory.element_size()
    sizes = (len(used), heads, heads * places * place, places * place, place, length)
    found.saccade_gather(memory.data_ptr(), out.data_ptr(), used.data_ptr(), length, *sizes)
    return out


def _takes(spare: Tensor, memory: Tensor, rows: int) -> bool:
    """Whether so many rows of a memory can be copied to a spare one, which must not be the same space."""
    alike = spare.shape == (rows, *memory.shape[1:]) and spare.dtype is memory.dtype and spare.device == memory.device
    return alike and spare.is_contiguous() and spare.untyped_storage().data_ptr() != memory.untyped_storage().data_ptr()


def _like(memory: Tensor, rows: int) -> Tensor:
    return memory.new_empty((rows, *memory.shape[1:]))


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Layer norm over the last axis."""
    check_norm(x, weight, bias)
    x = flat(x)
    if not ready() or not x.numel():
        return fallback.norm(x, weight, bias, eps)
    return _norm(x, weight, bias, eps, 0)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis."""
    check_norm(x, weight, None)
    x = flat(x)
    return _norm(x, weight, None, eps, 1) if ready() and x.numel() else fallback.rms(x, weight, eps)


def _norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, rms: int) -> Tensor:
    weight, bias = solid(weight), None if bias is None else solid(bias)
    out, width = torch.empty(x.shape), x.size(-1)
    shift = None if bias is None else bias.data_ptr()
    library().saccade_norm(x.data_ptr(), weight.data_ptr(), shift, eps, out.data_ptr(), x.numel() // width, width, rms)
    return out
