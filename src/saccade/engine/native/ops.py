"""Operators of our own for inference on a CPU: int8 products, attention of one new token, norms.

The C++ beside this file is compiled on first use; without a compiler, or with `SACCADE_NATIVE=0`, PyTorch computes the same,
slower. `is_available` says which of the two it is, `unavailable_reason` says why. There are no gradients here: call them
under `torch.no_grad()`.
"""

import ctypes

import torch
from torch import Tensor

from saccade.engine.int8_linear import ACTIVATION_CODES, TILE_ROWS, Int8Tiles
from saccade.engine.native import reference_ops
from saccade.engine.native.check_args import (
    check_attend,
    check_gather,
    check_lengths,
    check_norm,
    make_contiguous,
    make_rows_contiguous,
    to_cache_dtype,
    to_native_input,
)
from saccade.engine.native.library import is_available, library, unavailable_reason
from saccade.engine.native.step_ops import KVBufferRef

__all__ = [
    "ACTIVATION_CODES",
    "TILE_ROWS",
    "Int8Tiles",
    "attend",
    "gather",
    "is_available",
    "layer_norm",
    "rms_norm",
    "unavailable_reason",
]


def attend(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    scale: float,
    keep: Tensor | None = None,
    new_kv: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """One new token per row looks at its memory: q (B, H, D), keys and values (B, G, K, D), lengths (B,) -> (B, H, D).

    `keep` (B, K) is True where a place may be seen. `new_kv` is the new token's own key and value, (B, G, D) each: they are
    first written to place `lengths - 1`.
    """
    room = KVBufferRef(keys, values, lengths, keep)
    check_attend(q, keys, values, new_kv)
    (b, h, d), (g, limit) = q.shape, keys.shape[1:3]
    least, found = 0 if new_kv is None else 1, library()
    if found is None or not q.numel():
        check_lengths(lengths, limit, least)
        for memory, new in zip((keys, values), new_kv or (), strict=False):
            reference_ops.write_last(memory, to_cache_dtype(new, memory.dtype), lengths)
        return reference_ops.attend(q, keys.float(), values.float(), lengths, scale, keep)
    q = make_rows_contiguous(q)
    new = (None, None, 0)
    if new_kv is not None:
        key, value = make_rows_contiguous(new_kv[0]), make_rows_contiguous(new_kv[1])
        if key.stride(0) != value.stride(0):
            key, value = make_contiguous(key), make_contiguous(value)
        new = (key.data_ptr(), value.data_ptr(), key.stride(0))
    out = q.new_empty((b, h, d))
    asked = (ctypes.byref(room.c_struct), q.data_ptr(), q.stride(0), *new, out.data_ptr(), b, h, g, d, scale)
    if found.saccade_attend(*asked) >= 0:
        check_lengths(lengths, limit, least)
    return out


def gather(cache: Tensor, indirection: Tensor, length: int, buffer: Tensor | None = None) -> Tensor:
    """The first `length` places of a memory (P, G, K, D), each from the row that `indirection` (B, K) says, as (B, G, K, D).

    They go to the `buffer` memory, if it is one of the right size; what lies behind them is anything.
    """
    check_gather(cache, indirection, length)
    out = (
        buffer
        if buffer is not None and _fits_buffer(buffer, cache, len(indirection))
        else _empty_like(cache, len(indirection))
    )
    used, found = indirection[:, :length], library()
    if found is None or not (cache.is_cpu and cache.is_contiguous() and used.numel() and cache.numel()):
        out[:, :, :length] = reference_ops.gather(cache, used)
        return out
    used = make_contiguous(used.to("cpu", torch.int32))
    # strides follow from the shape: of an axis with one place only a tensor in one piece may say any
    _, heads, places, width = cache.shape
    place = width * cache.element_size()
    sizes = (len(used), heads, heads * places * place, places * place, place, length)
    found.saccade_gather(cache.data_ptr(), out.data_ptr(), used.data_ptr(), length, *sizes)
    return out


def _fits_buffer(buffer: Tensor, cache: Tensor, rows: int) -> bool:
    """Whether so many rows of a memory can be copied to a buffer one, which must not be the same space."""
    alike = buffer.shape == (rows, *cache.shape[1:]) and buffer.dtype is cache.dtype and buffer.device == cache.device
    return (
        alike and buffer.is_contiguous() and buffer.untyped_storage().data_ptr() != cache.untyped_storage().data_ptr()
    )


def _empty_like(cache: Tensor, rows: int) -> Tensor:
    return cache.new_empty((rows, *cache.shape[1:]))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Layer norm over the last axis."""
    check_norm(x, weight, bias)
    x = to_native_input(x)
    if not is_available() or not x.numel():
        return reference_ops.layer_norm(x, weight, bias, eps)
    return _run_norm(x, weight, bias, eps, 0)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis."""
    check_norm(x, weight, None)
    x = to_native_input(x)
    return (
        _run_norm(x, weight, None, eps, 1) if is_available() and x.numel() else reference_ops.rms_norm(x, weight, eps)
    )


def _run_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, is_rms: int) -> Tensor:
    weight, bias = make_contiguous(weight), None if bias is None else make_contiguous(bias)
    out, width = torch.empty(x.shape), x.size(-1)
    shift = None if bias is None else bias.data_ptr()
    library().saccade_norm(
        x.data_ptr(), weight.data_ptr(), shift, eps, out.data_ptr(), x.numel() // width, width, is_rms
    )
    return out
