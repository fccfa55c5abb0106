"""What compiled operators may be given: they get raw addresses, so shape, kind and layout are looked at before."""

import torch
from torch import Tensor

FLOAT, HALF = torch.float32, torch.float16
NO_GRADIENT = "The native operators have no gradient; call them under torch.no_grad()."


def flat(x: Tensor) -> Tensor:
    """The same numbers in one piece, after the checks that a raw address cannot make."""
    if x.dtype is not FLOAT or not x.is_cpu:
        raise ValueError(f"The native operators take float32 on the CPU; this is {x.dtype} on {x.device}.")
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(NO_GRADIENT)
    return x if x.is_contiguous() else x.contiguous()


def apart(x: Tensor) -> Tensor:
    """The same (B, H, D) with each batch row in one piece; the rows may lie apart, as in a slice of a wider tensor."""
    return x if x.stride(2) == 1 and x.stride(1) == x.size(2) else x.contiguous()


def check_attend(q: Tensor, keys: Tensor, fresh: tuple[Tensor, Tensor] | None) -> None:
    """Shapes and kinds that belong together."""
    b, g, _, d = keys.shape
    fits = q.dim() == 3 and q.size(0) == b and q.size(1) % g == 0 and q.size(2) == d
    fits = fits and (fresh is None or fresh[0].shape == fresh[1].shape == (b, g, d))
    kinds = [t.dtype is FLOAT and t.is_cpu for t in (q, *(fresh or ()))]
    if not (fits and all(kinds)):
        raise ValueError(
            f"attend got q {tuple(q.shape)} for keys {tuple(keys.shape)}; q must be (B, H, D) with H a multiple of {g}, and "
            "fresh keys and values (B, G, D), all float32 on the CPU."
        )
    if q.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(NO_GRADIENT)


def check_memory(keys: Tensor, values: Tensor, lengths: Tensor, keep: Tensor | None) -> None:
    """Shape, kind and layout, which a raw address cannot check; memory is written in place, so a copy would not do."""
    strides, shape = keys.stride(), keys.shape
    fits = len(shape) == 4 and shape == values.shape and lengths.shape == shape[:1] and lengths.is_contiguous()
    laid = strides == values.stride() and strides[-1] == 1
    kinds = keys.dtype is values.dtype and keys.dtype in (FLOAT, HALF) and lengths.dtype is torch.int64 and keys.is_cpu
    if keep is not None:
        fits = fits and keep.shape == (shape[0], shape[2]) and keep.dtype is torch.bool and keep.stride(1) == 1
    if not (fits and laid and kinds):
        raise ValueError(
            f"This memory has keys {tuple(shape)}, values {tuple(values.shape)} and lengths {tuple(lengths.shape)}; it needs "
            "float32 or float16 (B, G, K, D) twice on the CPU, each key in one piece, int64 lengths (B,) and a bool keep (B, K) "
            "or none."
        )


def check_lengths(lengths: Tensor, limit: int, fresh: object) -> None:
    """Every row's length must fit its memory, and leave a place for what is fresh."""
    least = 0 if fresh is None else 1
    for row, length in enumerate(lengths.tolist()):
        if not least <= length <= limit:
            raise ValueError(
                f"Row {row} has length {length}; this memory holds {least} to {limit} tokens. Make it larger."
            )


def kept(x: Tensor, kind: torch.dtype) -> Tensor:
    """Numbers as they are remembered; what float16 has no number for becomes its largest, as in half.h."""
    most = torch.finfo(HALF).max
    return x.clamp(-most, most).to(kind) if kind is HALF else x
