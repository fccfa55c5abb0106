"""A linear layer in int8, laid out in tiles for the compiled product, which PyTorch computes where nothing is compiled."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.engine.native import reference_ops
from saccade.engine.native.check_args import FLOAT, make_contiguous, to_native_input
from saccade.engine.native.library import library

ACTIVATION_CODES = {
    name: code for code, name in enumerate(reference_ops.ACTIVATIONS)
}  # the order is that of `Act` in vector_math.h
TILE_ROWS = 32  # rows of a weight that lie together, as in int8_matmul.h


class Int8Tiles:
    """A linear layer in int8: one scale for each row of the weight, and 128 levels for each `GROUP_SIZE` columns of an
    input's row.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight = weight.detach().to("cpu", FLOAT)
        if weight.dim() != 2 or not weight.numel():
            raise ValueError(f"Packed takes a weight of shape (rows, columns); this one is {tuple(weight.shape)}.")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError(f"This weight has {len(weight)} rows; a bias of {tuple(bias.shape)} does not fit it.")
        self.rows, self.columns = weight.shape
        self.tiles, self.group_sums, self.row_scales = _tile_weight(weight)
        if not self.row_scales.isfinite().all():
            raise ValueError("Packed takes finite numbers; some of this weight are not. Keep this layer in float32.")
        self.bias = torch.zeros_like(self.row_scales)
        if bias is not None:
            self.bias[: self.rows] = bias.detach()
        self._bind()

    def _bind(self) -> None:
        found = library()
        self._linear_kernel, self._topk_kernel = (
            (found.saccade_int8_linear, found.saccade_topk) if found else (None, None)
        )
        self._fixed_args = (*(t.data_ptr() for t in self.tensors), self.rows, self.columns)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that it keeps, in the order in which the operator takes it."""
        return self.tiles, self.group_sums, self.row_scales, self.bias

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()  # a copy has addresses of its own

    def unpack(self) -> tuple[Tensor, Tensor]:
        """The int8 weight (rows, columns) and the scale of each row."""
        whole = self.tiles.transpose(1, 2).reshape(len(self.row_scales), -1)
        return whole[: self.rows, : self.columns], self.row_scales[: self.rows]

    def __call__(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        """act(x (..., columns) · weight + bias) + add -> (..., rows)."""
        self._check_input(x, activation)
        *most, _ = x.shape
        shape = (*most, self.rows)
        x, plus = to_native_input(x), None
        if add is not None:
            if add.shape != shape:
                raise ValueError(f"This product has the shape {shape}; {tuple(add.shape)} cannot be added to it.")
            add = to_native_input(add)
            plus = add.data_ptr()
        if self._linear_kernel is None:
            return reference_ops.linear(x, *self.unpack(), self.bias[: self.rows], activation, add)
        out = torch.empty(shape)
        self._linear_kernel(
            *self._fixed_args, x.data_ptr(), plus, out.data_ptr(), math.prod(most), ACTIVATION_CODES[activation]
        )
        return out

    def topk(self, x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The `count` highest of all rows' products with x (B, columns), (B, count), and which rows they are, the highest first;
        and the log-softmax of the highest, (B,). The products of all rows are never there together."""
        self._check_input(x, "none")
        if x.dim() != 2 or count < 0:
            raise ValueError(
                f"best takes (B, {self.columns}) and how many are wanted; it got {tuple(x.shape)} and {count}."
            )
        x, count = to_native_input(x), min(count, self.rows)
        if self._topk_kernel is None or not x.numel() or not count:
            return reference_ops.topk(self(x), count)
        values, chances = torch.empty(len(x), count), torch.empty(len(x))
        found = torch.empty(len(x), count, dtype=torch.int64)
        self._topk_kernel(
            *self._fixed_args, x.data_ptr(), len(x), count, *(t.data_ptr() for t in (values, found, chances))
        )
        return values, found, chances

    def _check_input(self, x: Tensor, activation: str) -> None:
        if x.shape[-1:] != (self.columns,) or activation not in ACTIVATION_CODES:
            raise ValueError(
                f"This layer takes (..., {self.columns}) and an activation of {', '.join(ACTIVATION_CODES)}; "
                f"it got {tuple(x.shape)} and {activation!r}."
            )


def _tile_weight(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A weight rounded row by row, as (tile, four columns, row of the tile, column), the sums of its groups as (tile, group,
    row of the tile), and the scales of its rows.

    So one pass of a product reads the memory straight through.
    """
    rows, columns = weight.shape
    tiles = torch.zeros(-(-rows // TILE_ROWS), -(-columns // 4), TILE_ROWS, 4, dtype=torch.int8)
    sums = torch.zeros(len(tiles), -(-columns // reference_ops.GROUP_SIZE), TILE_ROWS, dtype=torch.int16)
    scale = torch.zeros(len(tiles) * TILE_ROWS)
    found = library()
    if found is not None:
        weight = make_contiguous(weight)
        laid = (tiles.data_ptr(), sums.data_ptr(), scale.data_ptr())
        found.saccade_pack_int8(weight.data_ptr(), rows, columns, *laid)
        return tiles, sums, scale
    whole, scale[:rows] = reference_ops.quantize(weight)
    whole = F.pad(whole, (0, -columns % 4, 0, -rows % TILE_ROWS))
    grouped = F.pad(whole, (0, sums.size(1) * reference_ops.GROUP_SIZE - whole.size(1))).view(
        -1, TILE_ROWS, sums.size(1), reference_ops.GROUP_SIZE
    )
    sums = grouped.sum(-1, dtype=torch.int16).transpose(1, 2).contiguous()
    return whole.view(-1, TILE_ROWS, tiles.size(1), 4).transpose(1, 2).contiguous(), sums, scale
