"""What compiled operators may be given: they get raw addresses, so shape, kind, device and layout are looked at before."""

import torch
from torch import Tensor

FLOAT, HALF = torch.float32, torch.float16
NO_GRADIENT_MESSAGE = "The native operators have no gradient; call them under torch.no_grad()."


def make_contiguous(x: Tensor) -> Tensor:
    """The same numbers in one piece, at an address that is a multiple of their size, as the compiler takes for granted."""
    return x if x.is_contiguous() and is_aligned(x) else x.clone(memory_format=torch.contiguous_format)


def is_aligned(*tensors: Tensor) -> bool:
    """Whether each begins at a multiple of the size of its numbers; a tensor over somebody's bytes need not."""
    return not any(x.data_ptr() % x.element_size() for x in tensors)


def to_native_input(x: Tensor) -> Tensor:
    """The same numbers in one piece, after the checks that a raw address cannot make."""
    if x.dtype is not FLOAT or not x.is_cpu:
        raise ValueError(f"The native operators take float32 on the CPU; this is {x.dtype} on {x.device}.")
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(NO_GRADIENT_MESSAGE)
    return make_contiguous(x)


def make_rows_contiguous(x: Tensor) -> Tensor:
    """The same (B, H, D) with each batch row in one piece; the rows may lie apart, as in a slice of a wider tensor."""
    return x if x.stride(2) == 1 and x.stride(1) == x.size(2) and is_aligned(x) else make_contiguous(x)


def check_norm(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """One factor, and one shift or none, for each column."""
    given = (weight,) if bias is None else (weight, bias)
    if x.dim() < 1 or any(t.shape != x.shape[-1:] or t.dtype is not FLOAT or not t.is_cpu for t in given):
        found = " and ".join(f"{t.dtype} {tuple(t.shape)} on {t.device}" for t in given)
        raise ValueError(
            f"A norm of {tuple(x.shape)} needs a weight, and a bias or none, of one float32 on the CPU for each column of the "
            f"last axis; got {found}."
        )


def check_attend(q: Tensor, keys: Tensor, values: Tensor, new_kv: tuple[Tensor, Tensor] | None) -> None:
    """Shapes and kinds that belong together."""
    b, g, _, d = keys.shape
    fits = q.dim() == 3 and q.size(0) == b and g > 0 and q.size(1) % g == 0 and q.size(2) == d
    fits = fits and (new_kv is None or new_kv[0].shape == new_kv[1].shape == (b, g, d))
    kinds = [t.dtype is FLOAT and t.is_cpu for t in (q, *(new_kv or ()))]
    if not (fits and all(kinds)):
        raise ValueError(
            f"attend got q {tuple(q.shape)} for keys {tuple(keys.shape)}; q must be (B, H, D) with H a multiple of {g}, and "
            "fresh keys and values (B, G, D), all float32 on the CPU."
        )
    if any(t.requires_grad for t in (q, *(new_kv or ()))) and torch.is_grad_enabled():
        raise RuntimeError(NO_GRADIENT_MESSAGE)
    if new_kv is not None:
        check_writable(keys, values)


def check_kv(keys: Tensor, values: Tensor, lengths: Tensor, keep: Tensor | None, rows: int) -> None:
    """Shape, kind and layout, which a raw address cannot check; memory is written in place, so a copy would not do.

    So many `rows` look at it, which is all that it has unless an origin says where they lie.
    """
    strides, shape = keys.stride(), keys.shape
    fits = len(shape) == 4 and shape == values.shape and lengths.shape == (rows,) and lengths.is_contiguous()
    fits = fits and rows <= shape[0]
    laid = strides == values.stride() and strides[-1:] == (1,) and is_aligned(keys, values, lengths)
    kinds = keys.dtype is values.dtype and keys.dtype in (FLOAT, HALF) and lengths.dtype is torch.int64
    here = keys.is_cpu and values.is_cpu and lengths.is_cpu
    if keep is not None:
        fits = fits and keep.shape == (rows, shape[2]) and keep.dtype is torch.bool and keep.stride(1) == 1
        here = here and keep.is_cpu
    if not (fits and laid and kinds and here):
        raise ValueError(
            f"This memory has keys {tuple(shape)}, values {tuple(values.shape)} and lengths {tuple(lengths.shape)}; it needs "
            "float32 or float16 (B, G, K, D) twice on the CPU, each key in one piece, int64 lengths (B,) and a bool keep (B, K) "
            "or none."
        )


def check_writable(keys: Tensor, values: Tensor) -> None:
    """Each place of a memory that is written must be a place of its own, which one that was expanded has not."""
    for memory in (keys, values):
        if any(step == 0 and size > 1 for step, size in zip(memory.stride(), memory.shape, strict=True)):
            raise ValueError(
                f"This memory {tuple(memory.shape)} was expanded, so several rows are one; clone it before it is written to."
            )


def check_indirection(indirection: Tensor, keys: Tensor, rows_per_source: int) -> None:
    """Where the places of rows lie that have changed places; what it says is checked whenever it is used."""
    rows, _, places = keys.shape[:3]
    fits = (
        indirection.dim() == 2
        and indirection.size(1) == places
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
            f"This memory has {rows} rows of {places} places; where they lie must be said in int32 (B, {places}) for at most "
            f"{rows} rows that share nothing; got {indirection.dtype} {tuple(indirection.shape)}, and "
            f"{rows_per_source} rows that share."
        )


def check_gather(cache: Tensor, indirection: Tensor, length: int) -> None:
    """Every place that is read must be one of the memory."""
    fits = (
        cache.dim() == 4
        and indirection.dim() == 2
        and not indirection.is_floating_point()
        and indirection.dtype is not torch.bool
    )
    fits = fits and 0 <= length <= min(indirection.size(1), cache.size(2))
    if not fits:
        raise ValueError(
            f"A memory is (P, G, K, D), and where its first places lie is said in whole numbers (B, K); this memory has "
            f"the shape {tuple(cache.shape)}; got {length} places of {indirection.dtype} {tuple(indirection.shape)}."
        )
    used = indirection[:, :length]
    if used.numel() and not 0 <= int(used.min()) <= int(used.max()) < len(cache):
        raise ValueError(
            f"This memory has {len(cache)} rows of {cache.size(2)} places; got rows {int(used.min())} to {int(used.max())}."
        )


def check_lengths(lengths: Tensor, capacity: int, min_length: int) -> None:
    """Every row's length must fit its memory, and leave a place for what is fresh, whose `min_length` is 1."""
    for row, length in enumerate(lengths.tolist()):
        if not min_length <= length <= capacity:
            raise ValueError(
                f"Row {row} has length {length}; this memory holds {min_length} to {capacity} tokens. Make it larger."
            )


def check_indirection_values(indirection: Tensor, lengths: Tensor, rows: int, *, writes: bool) -> None:
    """Every place of a row must lie in some row of the memory, and one that is written in the row itself."""
    for row, (places, length) in enumerate(zip(indirection.tolist(), lengths.tolist(), strict=True)):
        for place, there in enumerate(places[:length]):
            own = writes and place == length - 1
            if not 0 <= there < rows or (own and there != row):
                need = f"what is written lies in row {row} itself" if own else f"this memory has {rows} rows"
                raise ValueError(f"Place {place} of row {row} is said to lie in row {there}; {need}.")


def to_cache_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers as they are remembered; what float16 has no number for becomes its largest, as in float16.h."""
    most = torch.finfo(HALF).max
    return x.clamp(-most, most).to(dtype) if dtype is HALF else x
