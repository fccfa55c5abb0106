"""The operators of a `StepProgram` and references to KV buffers, each also as the C structure that step_program.cpp reads."""

import ctypes
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.engine.int8_linear import Int8Tiles
from saccade.engine.native.check_args import check_indirection, check_kv

LINEAR, ATTEND, LAYER_NORM, RMS_NORM, ROTATE, GATE = range(6)
INPUT, OUTPUT, NO_RESULT = -1, -2, -3
INT, POINTER = ctypes.c_int64, ctypes.c_void_p
INTEGER_FIELDS = ("kind", "x", "result", "add", "rows", "columns", "activation", "heads", "kv_heads", "buffer")


class BoundOp(ctypes.Structure):
    """An operator with its addresses, as a C structure."""

    _fields_ = (
        *((name, INT) for name in INTEGER_FIELDS),
        *((name, POINTER) for name in ("first", "second", "third", "fourth")),
        ("value", ctypes.c_double),
    )


class BoundKVBuffer(ctypes.Structure):
    """A KV buffer with its addresses, as a C structure."""

    _fields_ = (
        ("keys", POINTER),
        ("values", POINTER),
        *(
            (name, INT)
            for name in (
                "half",
                "row",
                "head",
                "step",
                "rows",
                "limit",
                "rows_per_source",
                "keep_row",
                "indirection_row",
            )
        ),
        *((name, POINTER) for name in ("lengths", "keep", "indirection")),
    )


@dataclass(frozen=True)
class Op:
    """One operator of a program. Results are numbered in the order in which they are computed; 0 is the input."""

    kind: int
    x: int
    result: int
    rows: int
    columns: int = 0
    add: int | None = None
    activation: int = 0
    heads: int = 0
    kv_heads: int = 0
    buffer: int = 0
    value: float = 0.0
    layer: Int8Tiles | None = None
    tensors: tuple[Tensor, ...] = ()

    @property
    def writes_kv(self) -> bool:
        """Whether it is a self-attention, which first writes the new token's key and value to the KV buffer."""
        return self.kind == ATTEND and self.rows > self.heads * self.columns

    def bind(self, offsets: dict[int | None, int]) -> BoundOp:
        """The C structure of the operator, with memory offsets in place of result numbers."""
        located = replace(self, x=offsets[self.x], result=offsets[self.result], add=offsets[self.add])
        pointers = [t.data_ptr() for t in (self.tensors if self.layer is None else self.layer.tensors)]
        pointers += [None] * (4 - len(pointers))
        return BoundOp(*(getattr(located, name) for name in INTEGER_FIELDS), *pointers, self.value)


class KVBufferRef:
    """The KV cache of one attention: keys and values (B, G, K, D), the length of each row, and a mask `keep` (B, K).

    Keys and values are float32, or float16, which takes half the memory and half the time to read; sums are float32. The
    values of `lengths` (B,) may be changed between calls. `rows_per_source` consecutive rows, such as beams, read one row of the
    cache. `indirection` (B, K) gives, for rows that were reordered without copying, the row of the cache that holds each
    position.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor
    keep: Tensor | None
    rows_per_source: int
    indirection: Tensor | None

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        lengths: Tensor,
        keep: Tensor | None = None,
        rows_per_source: int = 1,
        indirection: Tensor | None = None,
    ):
        if indirection is not None:
            check_indirection(indirection, keys, rows_per_source)
        check_kv(keys, values, lengths, keep, rows=len(keys if indirection is None else indirection))
        if rows_per_source < 1:
            raise ValueError(f"rows_per_source must be at least 1; got {rows_per_source}.")
        self.keys, self.values, self.lengths, self.keep = keys, values, lengths, keep
        self.rows_per_source, self.indirection = rows_per_source, indirection
        self.shape: tuple[int, int] = keys.size(1), keys.size(3)
        half = keys.dtype is torch.float16
        addresses = (
            keys.data_ptr(),
            values.data_ptr(),
            half,
            *keys.stride()[:3],
            len(keys),
            keys.size(2),
            rows_per_source,
        )
        strides = [0 if t is None else t.stride(0) for t in (keep, indirection)]
        pointers = [None if t is None else t.data_ptr() for t in (lengths, keep, indirection)]
        self.c_struct: BoundKVBuffer = BoundKVBuffer(*addresses, *strides, *pointers)
