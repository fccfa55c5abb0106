"""Operators of our own for inference on a CPU: int8 products, attention of one new token, norms.

`native.cpp` is compiled on first use; without a compiler, or with `SACCADE_NATIVE=0`, PyTorch computes the same, slower.
`ready` says which of the two it is, `why` says why. There are no gradients here: call them under `torch.no_grad()`.
"""

import ctypes
import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.engine import fallback
from saccade.engine.building import CannotBuild, build

ACTS = {name: code for code, name in enumerate(fallback.ACTS)}  # the order is that of `Act` in native.cpp
FLOAT = torch.float32
TILE = 32  # rows of a weight that lie together, as in native.cpp
NO_GRADIENT = "The native operators have no gradient; call them under torch.no_grad()."
SOURCES = tuple(Path(__file__).with_name(name) for name in ("native.cpp", "chain.cpp", "pool.h"))
P, N, R = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
SIGNATURES = {
    "saccade_pool": ([P, P], None),
    "saccade_pack": ([P, N, N, P, P, P], None),
    "saccade_linear": ([P, P, P, P, N, N, P, P, P, N, N], None),
    "saccade_attend": ([P, N, P, P, N, N, N, N, P, P, N, P, N, P, P, N, P, N, N, N, N, R], N),
    "saccade_gather": ([P, P, P, N, N, N, N, N, N, N], None),
    "saccade_norm": ([P, P, P, R, P, N, N, N], None),
    "saccade_chain": ([P, N, P, P, P, P, P, N], N),
}


def ready() -> bool:
    """Whether the compiled operators are in use; the first call compiles them, in a few seconds, once per machine."""
    return library() is not None


def why() -> str:
    """Why the compiled operators are not in use; empty when they are."""
    return _library()[1]


def library() -> Any:
    """The compiled functions, or None."""
    return _library()[0]


@cache
def _library() -> tuple[Any, str]:
    if os.environ.get("SACCADE_NATIVE") == "0":
        return None, "SACCADE_NATIVE=0 switches the compiled operators off"
    reason = ""
    for flags in (("-march=native",), ()):  # some compilers know no native
        try:
            return open_library(build(SOURCES, *flags)), ""
        except (CannotBuild, OSError) as error:
            reason = reason or str(error)
    return None, reason


def open_library(path: Path) -> Any:
    """The compiled functions with their signatures, on torch's own pool of threads."""
    opened = ctypes.CDLL(str(path))
    for name, (arguments, result) in SIGNATURES.items():
        getattr(opened, name).argtypes = arguments
        getattr(opened, name).restype = result
    # looked up through torch, the names lead to the very OpenMP that torch uses, whatever else is loaded
    torch_itself = ctypes.CDLL(torch._C.__file__)
    if hasattr(torch_itself, "GOMP_parallel") and hasattr(torch_itself, "omp_get_max_threads"):
        run, size = torch_itself.GOMP_parallel, torch_itself.omp_get_max_threads
        opened.saccade_pool(ctypes.cast(run, P), ctypes.cast(size, P))
    return opened


class Packed:
    """A linear layer in int8: one scale for each row of the weight, and 128 levels for each `GROUP` columns of an input's row."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight = weight.detach().to("cpu", FLOAT)
        if weight.dim() != 2:
            raise ValueError(f"Packed takes a weight of shape (rows, columns); this one is {tuple(weight.shape)}.")
        self.rows, self.columns = weight.shape
        self.tiles, self.sums, self.scale = _tiled(weight)
        if not self.scale.isfinite().all():
            raise ValueError("Packed takes finite numbers; some of this weight are not. Keep this layer in float32.")
        self.bias = torch.zeros_like(self.scale)
        if bias is not None:
            self.bias[: self.rows] = bias.detach()
        self._bind()

    def _bind(self) -> None:
        found = library()
        self._run = found and found.saccade_linear
        self._fixed = (*(t.data_ptr() for t in self.parts), self.rows, self.columns)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All that it keeps, in the order in which the operator takes it."""
        return self.tiles, self.sums, self.scale, self.bias

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()  # a copy has addresses of its own

    def unpack(self) -> tuple[Tensor, Tensor]:
        """The int8 weight (rows, columns) and the scale of each row."""
        whole = self.tiles.transpose(1, 2).reshape(len(self.scale), -1)
        return whole[: self.rows, : self.columns], self.scale[: self.rows]

    def __call__(self, x: Tensor, act: str = "none", add: Tensor | None = None) -> Tensor:
        """act(x (..., columns) · weight + bias) + add -> (..., rows)."""
        *most, columns = x.shape
        if columns != self.columns or act not in ACTS:
            raise ValueError(
                f"This layer takes (..., {self.columns}) and an activation of {', '.join(ACTS)}; "
                f"it got {tuple(x.shape)} and {act!r}."
            )
        shape = (*most, self.rows)
        x, plus = flat(x), None
        if add is not None:
            if add.shape != shape:
                raise ValueError(f"This product has the shape {shape}; {tuple(add.shape)} cannot be added to it.")
            add = flat(add)
            plus = add.data_ptr()
        if self._run is None:
            return fallback.linear(x, *self.unpack(), self.bias[: self.rows], act, add)
        out = torch.empty(shape)
        self._run(*self._fixed, x.data_ptr(), plus, out.data_ptr(), math.prod(most), ACTS[act])
        return out


def _tiled(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A weight rounded row by row, as (tile, four columns, row of the tile, column), the sums of its groups as (tile, group,
    row of the tile), and the scales of its rows.

    So one pass of a product reads the memory straight through.
    """
    rows, columns = weight.shape
    tiles = torch.zeros(-(-rows // TILE), -(-columns // 4), TILE, 4, dtype=torch.int8)
    sums = torch.zeros(len(tiles), -(-columns // fallback.GROUP), TILE, dtype=torch.int16)
    scale = torch.zeros(len(tiles) * TILE)
    found = library()
    if found is not None:
        weight = weight.contiguous()
        laid = (tiles.data_ptr(), sums.data_ptr(), scale.data_ptr())
        found.saccade_pack(weight.data_ptr(), rows, columns, *laid)
        return tiles, sums, scale
    whole, scale[:rows] = fallback.quantise(weight)
    whole = F.pad(whole, (0, -columns % 4, 0, -rows % TILE))
    grouped = F.pad(whole, (0, sums.size(1) * fallback.GROUP - whole.size(1))).view(
        -1, TILE, sums.size(1), fallback.GROUP
    )
    sums = grouped.sum(-1, dtype=torch.int16).transpose(1, 2).contiguous()
    return whole.view(-1, TILE, tiles.size(1), 4).transpose(1, 2).contiguous(), sums, scale


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
    check_memory(keys, values, lengths, keep)
    _check_attend(q, keys, fresh)
    (b, h, d), (g, limit) = q.shape, keys.shape[1:3]
    found = library()
    if found is None:
        check_lengths(lengths, limit, fresh)
        for memory, new in zip((keys, values), fresh or (), strict=False):
            fallback.write(memory, new, lengths)
        return fallback.attend(q, keys, values, lengths, scale, keep)
    q = _rows(q)
    seen = (
        (None, 0, None, 0) if keep is None else (keep.data_ptr(), keep.stride(0), None, 0)
    )  # no origin: rows are whole
    new = (None, None, 0)
    if fresh is not None:
        key, value = _rows(fresh[0]), _rows(fresh[1])
        if key.stride(0) != value.stride(0):
            key, value = key.contiguous(), value.contiguous()
        new = (key.data_ptr(), value.data_ptr(), key.stride(0))
    out = q.new_empty((b, h, d))
    place = (keys.data_ptr(), values.data_ptr(), keys.stride(0), keys.stride(1), limit, 1, lengths.data_ptr())
    if found.saccade_attend(q.data_ptr(), q.stride(0), *place, *seen, *new, out.data_ptr(), b, h, g, d, scale) >= 0:
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
    if found is None or memory.dtype is not FLOAT or not (memory.is_cpu and memory.is_contiguous() and used.numel()):
        out[:, :, :length] = fallback.gather(memory, used)
        return out
    used = used.to("cpu", torch.int32).contiguous()
    sizes = (len(used), memory.size(1), memory.stride(0), memory.stride(1), memory.size(3), length)
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


def flat(x: Tensor) -> Tensor:
    """The same numbers in one piece, after the checks that a raw address cannot make."""
    if x.dtype is not FLOAT or not x.is_cpu:
        raise ValueError(f"The native operators take float32 on the CPU; this is {x.dtype} on {x.device}.")
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(NO_GRADIENT)
    return x if x.is_contiguous() else x.contiguous()


def _rows(x: Tensor) -> Tensor:
    """The same (B, H, D) with each batch row in one piece; the rows may lie apart, as in a slice of a wider tensor."""
    return x if x.stride(2) == 1 and x.stride(1) == x.size(2) else x.contiguous()


def _check_attend(q: Tensor, keys: Tensor, fresh: Any) -> None:
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
    laid = strides == values.stride() and strides[2:] == (shape[-1], 1)
    kinds = keys.dtype is FLOAT and values.dtype is FLOAT and lengths.dtype is torch.int64 and keys.is_cpu
    if keep is not None:
        fits = fits and keep.shape == (shape[0], shape[2]) and keep.dtype is torch.bool and keep.stride(1) == 1
    if not (fits and laid and kinds):
        raise ValueError(
            f"This memory has keys {tuple(shape)}, values {tuple(values.shape)} and lengths {tuple(lengths.shape)}; it needs "
            "float32 (B, G, K, D) twice on the CPU, each head in one piece, int64 lengths (B,) and a bool keep (B, K) or none."
        )


def check_lengths(lengths: Tensor, limit: int, fresh: object) -> None:
    """Every row's length must fit its memory, and leave a place for what is fresh."""
    least = 0 if fresh is None else 1
    for row, length in enumerate(lengths.tolist()):
        if not least <= length <= limit:
            raise ValueError(
                f"Row {row} has length {length}; this memory holds {least} to {limit} tokens. Make it larger."
            )
