"""ViT: a picture as a text of patches, read by a transformer (Dosovitskiy et al. 2021, arXiv 2010.11929)."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention import FULL, ScaledDot
from saccade.data import Batch, Image
from saccade.errors import ModelError
from saccade.models.bert import pooler
from saccade.models.capabilities import Capabilities, Modality
from saccade.models.family import Family, Head
from saccade.models.fresh import widened
from saccade.models.weights import Names, Row
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Patches
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import First, LabelHead
from saccade.parts.layer import layer
from saccade.parts.multihead import Attention
from saccade.parts.position import Grid
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    side: int = 224  # of the picture, in pixels; its rows where it is not square
    breadth: int | None = None  # its columns, where they are not as many
    patch: int = 16  # the side of a patch
    channels: int = 3
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    activation: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.0
    weight_dropout: float = 0.0  # as published; applies when `drop_weights` asks for it
    drop_weights: bool = False


class ViT(nn.Module):
    """A token for the whole picture, then its patches row by row; each has a learned position, and norm comes first."""

    def __init__(self, config: Config):
        super().__init__()
        width, norm = config.width, partial(nn.LayerNorm, eps=config.eps)
        drop = config.weight_dropout if config.drop_weights else 0.0
        rows, columns = cells(config)
        layers = [
            layer(
                Attention(width, config.heads, ScaledDot(dropout=drop)),
                FeedForward(width, config.inner, config.activation),
                width=width,
                norm=norm,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        ]
        self.width = width
        self.patches = Patches(config.patch, config.channels, width)
        self.whole = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        position = Grid(rows, columns, width, first=1)
        self.stack = Stack(layers, FULL, position, enter=Dropout(config.dropout), leave=norm(width))

    def forward(self, batch: Batch) -> Tensor:
        picture = batch.source
        assert isinstance(picture, Image), "ViT reads pictures"
        self._fits(picture)
        patches = self.patches(picture.pixels)  # (B, L - 1, W)
        return self.stack(torch.cat([self.whole.expand(patches.size(0), -1, -1), patches], dim=1))

    def resized(self, rows: int, columns: int) -> "ViT":
        """A copy for pictures of rows x columns pixels: positions are resampled, all else is the same."""
        new, size = deepcopy(self), self.patches.size
        new.stack.position = self.grid().resized(rows // size, columns // size)
        return new

    def grid(self) -> Grid:
        """The positions of its patches."""
        assert isinstance(self.stack.position, Grid)
        return self.stack.position

    def _fits(self, picture: Image) -> None:
        """The positions are those of one size of picture; a smaller one would be read with the wrong ones."""
        grid, size = self.grid(), self.patches.size
        rows, columns = picture.pixels.shape[-2:]
        if (rows, columns) != (grid.rows * size, grid.columns * size):
            raise ModelError(
                f"This model reads pictures of {grid.rows * size} x {grid.columns * size} pixels and this one has "
                f"{rows} x {columns}; resize the picture, or the model with `resized({rows}, {columns})`."
            )


class PixelHead(nn.Module):
    """The pixels of every patch, (B, patches, channels x rows x columns of one), and the vector that stands where one is hidden
    (SimMIM: Xie et al. 2022, arXiv 2111.09886)."""

    def __init__(self, width: int, patch: int, channels: int):
        super().__init__()
        self.mask = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.score = nn.Conv2d(width, channels * patch * patch, 1)  # a linear layer, as it was published

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return F.linear(x[:, 1:], self.score.weight.flatten(1), self.score.bias)  # the first token is the whole picture


NAMES: Names = {
    "embeddings.cls_token": "whole",
    "embeddings.patch_embeddings.projection": "patches.project",
    "embeddings.position_embeddings": Row("stack.position.vectors"),
    "encoder.layer.{}.layernorm_before": "stack.layers.{}.attention.norm",
    "encoder.layer.{}.attention.attention.query": "stack.layers.{}.attention.branch.query",
    "encoder.layer.{}.attention.attention.key": "stack.layers.{}.attention.branch.key",
    "encoder.layer.{}.attention.attention.value": "stack.layers.{}.attention.branch.value",
    "encoder.layer.{}.attention.output.dense": "stack.layers.{}.attention.branch.output",
    "encoder.layer.{}.layernorm_after": "stack.layers.{}.feedforward.norm",
    "encoder.layer.{}.intermediate.dense": "stack.layers.{}.feedforward.branch.up",
    "encoder.layer.{}.output.dense": "stack.layers.{}.feedforward.branch.down",
    "layernorm": "stack.leave",
}
NEWER: Names = {  # what `transformers` 5 calls them in memory; read, never written
    "layers.{}.layernorm_before": "stack.layers.{}.attention.norm",
    "layers.{}.attention.q_proj": "stack.layers.{}.attention.branch.query",
    "layers.{}.attention.k_proj": "stack.layers.{}.attention.branch.key",
    "layers.{}.attention.v_proj": "stack.layers.{}.attention.branch.value",
    "layers.{}.attention.o_proj": "stack.layers.{}.attention.branch.output",
    "layers.{}.layernorm_after": "stack.layers.{}.feedforward.norm",
    "layers.{}.mlp.fc1": "stack.layers.{}.feedforward.branch.up",
    "layers.{}.mlp.fc2": "stack.layers.{}.feedforward.branch.down",
}


def cells(config: Config) -> tuple[int, int]:
    """Rows and columns of patches."""
    sides = (config.side, config.side if config.breadth is None else config.breadth)
    for side in sides:
        if config.patch < 1 or side < 1 or side % config.patch:
            raise ModelError(f"Patches of {config.patch} pixels do not tile a side of {side}; choose a multiple.")
    return sides[0] // config.patch, sides[1] // config.patch


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """Sides may be published as a pair; a picture need not be square, patches are."""
    for key in ("image_size", "patch_size"):
        pair = raw.get(key)
        if not isinstance(pair, list | tuple):
            continue
        if len(pair) != 2 or any(type(side) is not int for side in pair):
            raise ModelError(f"vit: {key} is a number of pixels, or two of them; got {str(pair)[:80]}.")
        if pair[0] != pair[1]:
            if key == "patch_size":
                raise ModelError(f"vit: {key} = {list(pair)} is not square; only square patches are built here.")
            raw["image_size.columns"] = pair[1]
        raw[key] = pair[0]
    return raw


def also(config: Config) -> dict[str, Any]:
    """The size of a picture is one number where it is square, as it was first published."""
    return {} if config.breadth is None else {"image_size": [config.side, config.breadth]}


def current(config: Config, body: ViT) -> Config:
    """The config that a body has now, if it was `resized` after it was built."""
    grid, patch = body.grid(), config.patch
    rows, columns = grid.rows * patch, grid.columns * patch
    return replace(config, side=rows, breadth=None if rows == columns else columns)


def capabilities(config: Config) -> Capabilities:
    rows, columns = config.side, config.side if config.breadth is None else config.breadth
    embeddings = ("whole", "patches", "stack.position", "stack.enter")
    return Capabilities(Modality.IMAGE, image_shape=(config.channels, rows, columns), embeddings=embeddings)


FAMILY = Family(
    name="vit",
    said="encoder of pictures: patches, learned positions on a grid, norm before",
    config=Config,
    build=ViT,
    capabilities=capabilities,
    names=lambda config: {**NAMES, **NEWER},
    keys={
        "image_size": "side",
        "image_size.columns": "breadth",
        "patch_size": "patch",
        "num_channels": "channels",
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "intermediate_size": "inner",
        "hidden_act": "activation",
        "layer_norm_eps": "eps",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "weight_dropout",
    },
    fixed={"qkv_bias": True},
    adapt=adapt,
    also=also,
    current=current,
    heads={
        "label": Head(
            lambda config, body, labels: LabelHead(config.width, labels, pool=First()),
            {"classifier": "score"},
            "ViTForImageClassification",
        ),
        "pixels": Head(
            lambda config, body, labels: PixelHead(config.width, config.patch, config.channels),
            {"vit.embeddings.mask_token": "mask", "decoder.0": "score"},
            "ViTForMaskedImageModeling",
            also=lambda config: {"encoder_stride": config.patch},  # how many pixels a side comes back from a token
        ),
    },
    prefix="vit.",
    pooler=(r"pooler\..*",),
    architecture="ViTModel",
    spare=pooler,
    fresh=widened,
)
