"""Packed weights of a linear layer for the encoder kernels, in int8, bfloat16 or float32."""

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.engine.int8_linear import ACTIVATION_CODES
from saccade.engine.kernels import library
from saccade.engine.native import reference_ops
from saccade.engine.native.check_args import FLOAT, make_contiguous, to_native_input
from saccade.errors import ResourceError
from saccade.system import cpu_count

PANEL_COLUMNS = 64  # outputs that are packed together, as in kernels.h
PER_BLOCK = {"int8": 4, "bfloat16": 2, "float32": 1}  # inputs in four bytes
FORMAT_CODES = {name: code for code, name in enumerate(PER_BLOCK)}
MAX_INPUTS = 2**16  # more could overflow the sums of 32 bits of an int8 product
INT, POINTER = ctypes.c_int64, ctypes.c_void_p


class MatrixStruct(ctypes.Structure):
    """`Matrix` of kernels.h."""

    _fields_ = (
        *((name, POINTER) for name in ("weights", "scales", "sums", "bias")),
        *((name, INT) for name in ("columns", "inputs", "format")),
    )


class PackedMatrix:
    """The weights of a linear layer, packed once in panels of 64 outputs: [panel][block of inputs][output][4 bytes].

    int8 weights have one scale for each output, and inputs are quantized row by row to 256 levels of a range that includes zero.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: str) -> None:
        weight = weight.detach().to("cpu", FLOAT)
        if weight.dim() != 2 or not weight.numel() or weight.size(1) > MAX_INPUTS:
            raise ValueError(
                f"A packed matrix takes a weight (outputs, inputs) with at most {MAX_INPUTS:,} inputs; got {tuple(weight.shape)}."
            )
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError(
                f"A weight of {len(weight)} outputs needs a bias of shape ({len(weight)},); got {tuple(bias.shape)}."
            )
        self.precision = precision
        self.outputs, self.inputs = weight.shape
        self.scales = self.sums = None
        values = weight
        if precision == "int8":
            values, scales = reference_ops.quantize(weight)
            if not scales.isfinite().all():
                raise ValueError(
                    "An int8 matrix takes finite weights; this weight has NaN or infinite values. Keep this layer in float32."
                )
            self.scales, self.sums = _pad_outputs(scales), _pad_outputs(values.sum(1, dtype=torch.int32))
        elif precision == "bfloat16":
            values = weight.bfloat16()
        self.panels = _make_panels(values, PER_BLOCK[precision])
        self.bias = None if bias is None else _pad_outputs(bias.detach().to("cpu", FLOAT))
        self._struct: MatrixStruct | None = None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The stored tensors, in the order of `MatrixStruct`."""
        return self.panels, self.scales, self.sums, self.bias

    @property
    def struct(self) -> MatrixStruct:
        """The C structure of this matrix, whose addresses hold while this object lives."""
        if self._struct is None:
            pointers = (None if t is None else t.data_ptr() for t in self.tensors)
            self._struct = MatrixStruct(*pointers, self.outputs, self.inputs, FORMAT_CODES[self.precision])
        return self._struct

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_struct": None}  # a copy has other addresses

    def unpack(self) -> Tensor:
        """The weight (outputs, inputs) as stored: int8 codes, bfloat16 or float32."""
        panels, blocks, columns, each = self.panels.shape
        return self.panels.transpose(1, 2).reshape(panels * columns, blocks * each)[: self.outputs, : self.inputs]

    def sum_parts(self, bounds: Sequence[int]) -> Tensor | None:
        """The sums of the int8 weights over inputs bounds[i] to bounds[i + 1] - 1, (parts, padded outputs)."""
        if self.precision != "int8":
            return None
        codes = self.unpack()
        parts = [codes[:, a:b].sum(1, dtype=torch.int32) for a, b in pairwise(bounds)]
        return torch.stack([_pad_outputs(part) for part in parts])

    def __call__(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        """activation(x (..., inputs) · weight + bias) + add -> (..., outputs)."""
        if x.shape[-1:] != (self.inputs,) or activation not in ACTIVATION_CODES:
            raise ValueError(
                f"This layer takes x of shape (..., {self.inputs}) and an activation of {', '.join(ACTIVATION_CODES)}; "
                f"got {tuple(x.shape)} and {activation!r}."
            )
        shape = (*x.shape[:-1], self.outputs)
        x = to_native_input(x)
        if add is not None:
            if add.shape != shape:
                raise ValueError(f"The output has shape {shape}; got a tensor to add of shape {tuple(add.shape)}.")
            add = to_native_input(add)
        out = torch.empty(shape)
        failed = library.library().saccade_linear(
            library.kernels(),
            ctypes.addressof(self.struct),
            x.data_ptr(),
            x.numel() // self.inputs,
            ACTIVATION_CODES[activation],
            None if add is None else add.data_ptr(),
            out.data_ptr(),
            thread_count(),
        )
        if failed:
            raise ResourceError(f"Not enough memory for a product of shape {shape}; use a smaller batch.")
        return out


def thread_count() -> int:
    """Threads of a kernel: as many as PyTorch uses, and no more than there are cores."""
    return min(torch.get_num_threads(), cpu_count())


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The levels (rows, width), scales and zero points of the compiled int8 quantization of x (rows, width)."""
    x = to_native_input(x)
    rows, width = x.shape
    stride = -(-width // 4) * 4
    levels = torch.empty(rows, stride, dtype=torch.uint8)
    scales, zeros = torch.empty(rows), torch.empty(rows, dtype=torch.int32)
    addresses = (levels.data_ptr(), stride, scales.data_ptr(), zeros.data_ptr())
    library.library().saccade_quantize(library.kernels(), FORMAT_CODES["int8"], x.data_ptr(), rows, width, *addresses)
    return levels[:, :width], scales, zeros


def _make_panels(values: Tensor, per_block: int) -> Tensor:
    outputs, inputs = values.shape
    padded = F.pad(values, (0, -inputs % per_block, 0, -outputs % PANEL_COLUMNS))
    return make_contiguous(padded.view(-1, PANEL_COLUMNS, padded.size(1) // per_block, per_block).transpose(1, 2))


def _pad_outputs(x: Tensor) -> Tensor:
    return F.pad(x, (0, -len(x) % PANEL_COLUMNS))
