"""Argument checks of the compiled operators: they receive raw addresses, so shape, dtype, device and layout are checked first."""

import torch
from torch import Tensor

FLOAT, HALF = torch.float32, torch.float16
NO_GRADIENT_MESSAGE = "The native operators have no gradient; call them under torch.no_grad()."


def make_contiguous(x: Tensor) -> Tensor:
    """The tensor, copied if it is not contiguous or not aligned to the size of its elements, as compiled code requires."""
    return x if x.is_contiguous() and is_aligned(x) else x.clone(memory_format=torch.contiguous_format)


def is_aligned(*tensors: Tensor) -> bool:
    """Whether every tensor is aligned to the size of its elements; a tensor made with `torch.frombuffer` may not be."""
    return not any(x.data_ptr() % x.element_size() for x in tensors)


def to_native_input(x: Tensor) -> Tensor:
    """Check that a tensor is float32 on the CPU and needs no gradient, and make it contiguous."""
    if x.dtype is not FLOAT or not x.is_cpu:
        raise ValueError(f"The native operators take float32 on the CPU; got {x.dtype} on {x.device}.")
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(NO_GRADIENT_MESSAGE)
    return make_contiguous(x)


def make_rows_contiguous(x: Tensor) -> Tensor:
    """The tensor (B, H, D) with each row contiguous; rows may lie apart, as in a slice of a wider tensor."""
    return x if x.stride(2) == 1 and x.stride(1) == x.size(2) and is_aligned(x) else make_contiguous(x)


def check_norm(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Check weight and bias of a norm: one float32 for each column of the last axis."""
    tensors = (weight,) if bias is None else (weight, bias)
    if x.dim() < 1 or any(t.shape != x.shape[-1:] or t.dtype is not FLOAT or not t.is_cpu for t in tensors):
        actual = " and ".join(f"{t.dtype} {tuple(t.shape)} on {t.device}" for t in tensors)
        raise ValueError(
            f"A norm of {tuple(x.shape)} needs a weight, and a bias or none, with one float32 on the CPU for each column of the "
            f"last axis; got {actual}."
        )


def check_attend(q: Tensor, keys: Tensor, values: Tensor, new_kv: tuple[Tensor, Tensor] | None) -> None:
    """Check that queries, keys, values and the new token fit together."""
    b, g, _, d = keys.shape
    fits = q.dim() == 3 and q.size(0) == b and g > 0 and q.size(1) % g == 0 and q.size(2) == d
    fits = fits and (new_kv is None or new_kv[0].shape == new_kv[1].shape == (b, g, d))
    has_right_dtype = all(t.dtype is FLOAT and t.is_cpu for t in (q, *(new_kv or ())))
    if not (fits and has_right_dtype):
        raise ValueError(
            f"attend got q {tuple(q.shape)} for keys {tuple(keys.shape)}; q must be (B, H, D) with H a multiple of {g}, and "
            "new keys and values (B, G, D), all float32 on the CPU."
        )
    if any(t.requires_grad for t in (q, *(new_kv or ()))) and torch.is_grad_enabled():
        raise RuntimeError(NO_GRADIENT_MESSAGE)
    if new_kv is not None:
        check_writable(keys, values)


def check_kv(keys: Tensor, values: Tensor, lengths: Tensor, keep: Tensor | None, rows: int) -> None:
    """Check shape, dtype and layout of a KV cache; it is written in place, so it cannot be copied into another layout.

    `rows` is the number of rows that read it: all of its rows, unless an indirection table maps them.
    """
    strides, shape = keys.stride(), keys.shape
    fits = len(shape) == 4 and shape == values.shape and lengths.shape == (rows,) and lengths.is_contiguous()
    fits = fits and rows <= shape[0]
    has_layout = strides == values.stride() and strides[-1:] == (1,) and is_aligned(keys, values, lengths)
    has_dtypes = keys.dtype is values.dtype and keys.dtype in (FLOAT, HALF) and lengths.dtype is torch.int64
    on_cpu = keys.is_cpu and values.is_cpu and lengths.is_cpu
    if keep is not None:
        fits = fits and keep.shape == (rows, shape[2]) and keep.dtype is torch.bool and keep.stride(1) == 1
        on_cpu = on_cpu and keep.is_cpu
    if not (fits and has_layout and has_dtypes and on_cpu):
        raise ValueError(
            f"This KV cache has keys {tuple(shape)}, values {tuple(values.shape)} and lengths {tuple(lengths.shape)}; it needs "
            "keys and values (B, G, K, D) of float32 or float16 on the CPU, with contiguous vectors, int64 lengths (B,) and a "
            "bool keep (B, K) or none."
        )


def check_writable(keys: Tensor, values: Tensor) -> None:
    """Check that a KV cache can be written: in an expanded tensor several rows share the same memory."""
    for cache in (keys, values):
        if any(step == 0 and size > 1 for step, size in zip(cache.stride(), cache.shape, strict=True)):
            raise ValueError(
                f"This KV cache {tuple(cache.shape)} is an expanded tensor, whose rows share memory; clone it before writing."
            )


def check_indirection(indirection: Tensor, keys: Tensor, rows_per_source: int) -> None:
    """Check shape and dtype of an indirection table; its values are checked whenever it is used."""
    rows, _, capacity = keys.shape[:3]
    fits = (
        indirection.dim() == 2
        and indirection.size(1) == capacity
        and len(indirection) <= rows
        and indirection.stride(1) == 1
    )
    if (
        not fits
        or indirection.dtype is not torch.int32
        or not indirection.is_cpu
        or not is_aligned(indirection)
        or rows_per_source > 1
    ):
        raise ValueError(
            f"This KV cache has {rows} rows of {capacity} positions; its indirection table must be int32 (B, {capacity}) with at "
            f"most {rows} rows, and rows_per_source must be 1; got {indirection.dtype} {tuple(indirection.shape)} and "
            f"rows_per_source={rows_per_source}."
        )


def check_gather(cache: Tensor, indirection: Tensor, length: int) -> None:
    """Check that every position that is read lies in the cache."""
    fits = (
        cache.dim() == 4
        and indirection.dim() == 2
        and not indirection.is_floating_point()
        and indirection.dtype is not torch.bool
    )
    fits = fits and 0 <= length <= min(indirection.size(1), cache.size(2))
    if not fits:
        raise ValueError(
            "gather needs a cache (P, G, K, D), an integer indirection table (B, K) and a length within both; this cache has "
            f"the shape {tuple(cache.shape)}; got length {length} and a table {indirection.dtype} {tuple(indirection.shape)}."
        )
    used = indirection[:, :length]
    if used.numel() and not 0 <= int(used.min()) <= int(used.max()) < len(cache):
        raise ValueError(
            f"This KV cache has {len(cache)} rows of {cache.size(2)} positions; got rows {int(used.min())} to {int(used.max())}."
        )


def check_lengths(lengths: Tensor, capacity: int, min_length: int) -> None:
    """Check the length of every row: at least `min_length`, which is 1 if a new token is written, and at most the capacity."""
    for row, length in enumerate(lengths.tolist()):
        if not min_length <= length <= capacity:
            raise ValueError(
                f"Row {row} has length {length}; this KV cache holds {min_length} to {capacity} tokens. Make it larger."
            )


def check_indirection_values(indirection: Tensor, lengths: Tensor, rows: int, *, writes: bool) -> None:
    """Check that every position maps to a row of the cache, and a position that is written to its own row."""
    for row, (origins, length) in enumerate(zip(indirection.tolist(), lengths.tolist(), strict=True)):
        for position, origin in enumerate(origins[:length]):
            is_written = writes and position == length - 1
            if not 0 <= origin < rows or (is_written and origin != row):
                need = (
                    f"a position that is written lies in row {row} itself"
                    if is_written
                    else f"the cache has {rows} rows"
                )
                raise ValueError(f"Position {position} of row {row} is mapped to row {origin}; {need}.")


def to_cache_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert to the dtype of the KV cache; values beyond the range of float16 are clamped, as in float16.h."""
    limit = torch.finfo(HALF).max
    return x.clamp(-limit, limit).to(dtype) if dtype is HALF else x
