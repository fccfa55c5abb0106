"""Native CPU operators for inference: int8 matrix products, attention of one new token over its KV cache, norms.

The C++ sources in this folder are compiled on first use. Without a compiler, or with `SACCADE_NATIVE=0`, PyTorch computes the
same, more slowly: `is_available` tells which is in use, and `unavailable_reason` why. The operators have no gradients: call
them under `torch.no_grad()`.
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
    """Attention of one new token per row over its KV cache: q (B, H, D), keys and values (B, G, K, D), lengths (B,) -> (B, H, D).

    `keep` (B, K) is True for positions that may be attended to. `new_kv` is the key and value of the new token, (B, G, D) each,
    which are first written to position `lengths - 1`.
    """
    buffer = KVBufferRef(keys, values, lengths, keep)
    check_attend(q, keys, values, new_kv)
    (b, h, d), (g, limit) = q.shape, keys.shape[1:3]
    min_length, compiled = 0 if new_kv is None else 1, library()
    if compiled is None or not q.numel():
        check_lengths(lengths, limit, min_length)
        for cache, new in zip((keys, values), new_kv or (), strict=False):
            reference_ops.write_last(cache, to_cache_dtype(new, cache.dtype), lengths)
        return reference_ops.attend(q, keys.float(), values.float(), lengths, scale, keep)
    q = make_rows_contiguous(q)
    new = (None, None, 0)
    if new_kv is not None:
        key, value = make_rows_contiguous(new_kv[0]), make_rows_contiguous(new_kv[1])
        if key.stride(0) != value.stride(0):
            key, value = make_contiguous(key), make_contiguous(value)
        new = (key.data_ptr(), value.data_ptr(), key.stride(0))
    out = q.new_empty((b, h, d))
    arguments = (ctypes.byref(buffer.c_struct), q.data_ptr(), q.stride(0), *new, out.data_ptr(), b, h, g, d, scale)
    if compiled.saccade_attend(*arguments) >= 0:
        check_lengths(lengths, limit, min_length)
    return out


def gather(cache: Tensor, indirection: Tensor, length: int, buffer: Tensor | None = None) -> Tensor:
    """Gather the first `length` positions of a cache (P, G, K, D), each from the row in the table `indirection` (B, K).

    The result (B, G, K, D) is written to `buffer` if its shape fits; positions from `length` on are undefined.
    """
    check_gather(cache, indirection, length)
    out = (
        buffer
        if buffer is not None and _fits_buffer(buffer, cache, len(indirection))
        else _empty_like(cache, len(indirection))
    )
    used, compiled = indirection[:, :length], library()
    if compiled is None or not (cache.is_cpu and cache.is_contiguous() and used.numel() and cache.numel()):
        out[:, :, :length] = reference_ops.gather(cache, used)
        return out
    used = make_contiguous(used.to("cpu", torch.int32))
    # strides are computed from the shape, since a contiguous tensor may report any stride for an axis of size one
    _, heads, positions, width = cache.shape
    vector_bytes = width * cache.element_size()
    head_bytes = positions * vector_bytes
    sizes = (len(used), heads, heads * head_bytes, head_bytes, vector_bytes, length)
    compiled.saccade_gather(cache.data_ptr(), out.data_ptr(), used.data_ptr(), length, *sizes)
    return out


def _fits_buffer(buffer: Tensor, cache: Tensor, rows: int) -> bool:
    """Whether `rows` rows of a cache can be written to `buffer`, which must not share the cache's storage."""
    has_shape = buffer.shape == (rows, *cache.shape[1:])
    is_alike = has_shape and buffer.dtype is cache.dtype and buffer.device == cache.device
    shares_storage = buffer.untyped_storage().data_ptr() == cache.untyped_storage().data_ptr()
    return is_alike and buffer.is_contiguous() and not shares_storage


def _empty_like(cache: Tensor, rows: int) -> Tensor:
    return cache.new_empty((rows, *cache.shape[1:]))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Layer normalization over the last axis."""
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
    bias_address = None if bias is None else bias.data_ptr()
    library().saccade_norm(
        x.data_ptr(), weight.data_ptr(), bias_address, eps, out.data_ptr(), x.numel() // width, width, is_rms
    )
    return out
