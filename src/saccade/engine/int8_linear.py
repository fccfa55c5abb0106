"""An int8 linear layer: quantized weights in tiles for the compiled matrix product, with a PyTorch fallback."""

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
TILE_ROWS = 32  # rows of a weight that form one tile, as in int8_matmul.h


class Int8Tiles:
    """The int8 weights of a linear layer. Each row of the weight has one scale; inputs are quantized to 128 levels in groups of
    `GROUP_SIZE` columns.
    """

    rows: int
    columns: int
    tiles: Tensor
    group_sums: Tensor
    row_scales: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight = weight.detach().to("cpu", FLOAT)
        if weight.dim() != 2 or not weight.numel():
            raise ValueError(f"Int8Tiles takes a weight of shape (rows, columns); got {tuple(weight.shape)}.")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError(
                f"A weight of {len(weight)} rows needs a bias of shape ({len(weight)},); got {tuple(bias.shape)}."
            )
        self.rows, self.columns = weight.shape
        self.tiles, self.group_sums, self.row_scales = _tile_weight(weight)
        if not self.row_scales.isfinite().all():
            raise ValueError(
                "Int8Tiles takes finite weights; this weight has NaN or infinite values. Keep this layer in float32."
            )
        self.bias: Tensor = torch.zeros_like(self.row_scales)
        if bias is not None:
            self.bias[: self.rows] = bias.detach()
        self._bind()

    def _bind(self) -> None:
        compiled = library()
        self._linear_kernel, self._topk_kernel = (
            (compiled.saccade_int8_linear, compiled.saccade_topk) if compiled else (None, None)
        )
        self._fixed_args = (*(t.data_ptr() for t in self.tensors), self.rows, self.columns)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The stored tensors, in the order of the compiled operator's arguments."""
        return self.tiles, self.group_sums, self.row_scales, self.bias

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()  # a copy has other addresses

    def unpack(self) -> tuple[Tensor, Tensor]:
        """The int8 weight (rows, columns) and the scale of each row."""
        weight = self.tiles.transpose(1, 2).reshape(len(self.row_scales), -1)
        return weight[: self.rows, : self.columns], self.row_scales[: self.rows]

    def __call__(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        """activation(x (..., columns) · weight + bias) + add -> (..., rows)."""
        self._check_input(x, activation)
        *batch_shape, _ = x.shape
        shape = (*batch_shape, self.rows)
        x, add_address = to_native_input(x), None
        if add is not None:
            if add.shape != shape:
                raise ValueError(f"The output has shape {shape}; got a tensor to add of shape {tuple(add.shape)}.")
            add = to_native_input(add)
            add_address = add.data_ptr()
        if self._linear_kernel is None:
            return reference_ops.linear(x, *self.unpack(), self.bias[: self.rows], activation, add)
        out = torch.empty(shape)
        self._linear_kernel(
            *self._fixed_args,
            x.data_ptr(),
            add_address,
            out.data_ptr(),
            math.prod(batch_shape),
            ACTIVATION_CODES[activation],
        )
        return out

    def topk(self, x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Fused output layer and top-k: the `count` highest outputs for x (B, columns) in descending order, (B, count), their
        row indices, and the log-softmax of the highest one, (B,). The full output (B, rows) is never stored."""
        self._check_input(x, "none")
        if x.dim() != 2 or count < 0:
            raise ValueError(
                f"topk takes x of shape (B, {self.columns}) and count >= 0; got {tuple(x.shape)} and {count}."
            )
        x, count = to_native_input(x), min(count, self.rows)
        if self._topk_kernel is None or not x.numel() or not count:
            return reference_ops.topk(self(x), count)
        values, log_probs = torch.empty(len(x), count), torch.empty(len(x))
        indices = torch.empty(len(x), count, dtype=torch.int64)
        self._topk_kernel(
            *self._fixed_args, x.data_ptr(), len(x), count, *(t.data_ptr() for t in (values, indices, log_probs))
        )
        return values, indices, log_probs

    def _check_input(self, x: Tensor, activation: str) -> None:
        if x.shape[-1:] != (self.columns,) or activation not in ACTIVATION_CODES:
            raise ValueError(
                f"This layer takes x of shape (..., {self.columns}) and an activation of {', '.join(ACTIVATION_CODES)}; "
                f"got {tuple(x.shape)} and {activation!r}."
            )


def _tile_weight(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize a weight row by row: tiles (tile, block of four columns, row of the tile, column), the sum of each column group
    (tile, group, row of the tile), and the scale of each row.

    In this layout a matrix product reads memory sequentially.
    """
    rows, columns = weight.shape
    tiles = torch.zeros(-(-rows // TILE_ROWS), -(-columns // 4), TILE_ROWS, 4, dtype=torch.int8)
    sums = torch.zeros(len(tiles), -(-columns // reference_ops.GROUP_SIZE), TILE_ROWS, dtype=torch.int16)
    scale = torch.zeros(len(tiles) * TILE_ROWS)
    compiled = library()
    if compiled is not None:
        weight = make_contiguous(weight)
        outputs = (tiles.data_ptr(), sums.data_ptr(), scale.data_ptr())
        compiled.saccade_pack_int8(weight.data_ptr(), rows, columns, *outputs)
        return tiles, sums, scale
    codes, scale[:rows] = reference_ops.quantize(weight)
    codes = F.pad(codes, (0, -columns % 4, 0, -rows % TILE_ROWS))
    grouped = F.pad(codes, (0, sums.size(1) * reference_ops.GROUP_SIZE - codes.size(1))).view(
        -1, TILE_ROWS, sums.size(1), reference_ops.GROUP_SIZE
    )
    sums = grouped.sum(-1, dtype=torch.int16).transpose(1, 2).contiguous()
    return codes.view(-1, TILE_ROWS, tiles.size(1), 4).transpose(1, 2).contiguous(), sums, scale
