"""A linear layer in int8, laid out in tiles for the compiled product, which PyTorch computes where nothing is compiled."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.engine import fallback
from saccade.engine.loading import library
from saccade.engine.operands import FLOAT, flat, solid

ACTS = {name: code for code, name in enumerate(fallback.ACTS)}  # the order is that of `Act` in maths.h
TILE = 32  # rows of a weight that lie together, as in product.h


class Packed:
    """A linear layer in int8: one scale for each row of the weight, and 128 levels for each `GROUP` columns of an input's row."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight = weight.detach().to("cpu", FLOAT)
        if weight.dim() != 2 or not weight.numel():
            raise ValueError(f"Packed takes a weight of shape (rows, columns); this one is {tuple(weight.shape)}.")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError(f"This weight has {len(weight)} rows; a bias of {tuple(bias.shape)} does not fit it.")
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
        self._run, self._rank = (found.saccade_linear, found.saccade_best) if found else (None, None)
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
        self._check(x, act)
        *most, _ = x.shape
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

    def best(self, x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The `count` highest of all rows' products with x (B, columns), (B, count), and which rows they are, the highest first;
        and the log-softmax of the highest, (B,). The products of all rows are never there together."""
        self._check(x, "none")
        if x.dim() != 2 or count < 0:
            raise ValueError(
                f"best takes (B, {self.columns}) and how many are wanted; it got {tuple(x.shape)} and {count}."
            )
        x, count = flat(x), min(count, self.rows)
        if self._rank is None or not x.numel() or not count:
            return fallback.best(self(x), count)
        values, chances = torch.empty(len(x), count), torch.empty(len(x))
        found = torch.empty(len(x), count, dtype=torch.int64)
        self._rank(*self._fixed, x.data_ptr(), len(x), count, *(t.data_ptr() for t in (values, found, chances)))
        return values, found, chances

    def _check(self, x: Tensor, act: str) -> None:
        if x.shape[-1:] != (self.columns,) or act not in ACTS:
            raise ValueError(
                f"This layer takes (..., {self.columns}) and an activation of {', '.join(ACTS)}; "
                f"it got {tuple(x.shape)} and {act!r}."
            )


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
        weight = solid(weight)
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
