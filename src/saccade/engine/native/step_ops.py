"""What a chain is made of: its steps and the rooms they look at, each also in the form that step_program.cpp reads."""

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
    """A step with addresses."""

    _fields_ = (
        *((name, INT) for name in INTEGER_FIELDS),
        *((name, POINTER) for name in ("first", "second", "third", "fourth")),
        ("value", ctypes.c_double),
    )


class BoundKVBuffer(ctypes.Structure):
    """A room with addresses."""

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
    """One operator of a chain; results are numbered in the order of their making, and 0 is the input."""

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
        """Whether it looks at a room and has keys and values of its own, which are first written to it."""
        return self.kind == ATTEND and self.rows > self.heads * self.columns

    def bind(self, offsets: dict[int | None, int]) -> BoundOp:
        """The step with addresses for names."""
        there = replace(self, x=offsets[self.x], result=offsets[self.result], add=offsets[self.add])
        given = [t.data_ptr() for t in (self.tensors if self.layer is None else self.layer.tensors)]
        return BoundOp(
            *(getattr(there, name) for name in INTEGER_FIELDS), *given, *[None] * (4 - len(given)), self.value
        )


class KVBufferRef:
    """The memory of one attention: keys and values (B, G, K, D), how much of each row counts, and what of it may be seen.

    They are float32, or float16, which takes half the space and half the time to be read; sums are float32.
    `lengths` (B,) may be filled with other numbers between calls. `rows_per_source` rows in turn, such as beams, look at
    one row. Where rows have changed places and the memory has not, `indirection` (B, K) says in which of its rows each
    place of a row lies.
    """

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
            raise ValueError(
                f"At least one row looks at each row of a memory; got rows_per_source = {rows_per_source}."
            )
        self.keys, self.values, self.lengths, self.keep = keys, values, lengths, keep
        self.rows_per_source, self.indirection = rows_per_source, indirection
        self.shape = keys.size(1), keys.size(3)
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
        strides = [0 if given is None else given.stride(0) for given in (keep, indirection)]
        pointers = [None if given is None else given.data_ptr() for given in (lengths, keep, indirection)]
        self.c_struct = BoundKVBuffer(*addresses, *strides, *pointers)
