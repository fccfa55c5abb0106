"""ViT: a transformer encoder on image patches (Dosovitskiy et al. 2021, arXiv 2010.11929)."""

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
from saccade.models.capabilities import Capabilities, Modality
from saccade.models.families.bert import unused_pooler
from saccade.models.family import Family, HeadSpec
from saccade.models.init import init_normal_by_width
from saccade.models.weight_map import AddedAxis, WeightMap
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import PatchEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import ClassificationHead, FirstTokenPool
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import LearnedGrid
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    image_height: int = 224  # Image height in pixels; also the width if `image_width` is not set.
    image_width: int | None = None  # Image width in pixels; default: as the height.
    patch_size: int = 16  # Patch size: rows and columns of a patch in pixels.
    channels: int = 3  # Number of color channels of an image.
    width: int = 768  # Model width (hidden size) of every layer.
    layers: int = 12  # Number of encoder layers (transformer blocks).
    heads: int = 12  # Number of attention heads per layer.
    ffn_width: int = 3072  # Width of the feed-forward hidden layer.
    activation: str = "gelu"  # Activation function of the feed-forward layers.
    eps: float = 1e-12  # Epsilon of layer normalization.
    dropout: float = 0.0  # Dropout rate in training; 0 disables it.
    attention_dropout: float = 0.0  # Dropout rate of attention weights; needs `use_attention_dropout`.
    use_attention_dropout: bool = False  # Apply attention dropout in training; off: attention weights get no dropout.


class ViT(nn.Module):
    """A [CLS] token and the patches row by row, with learned positions, then a pre-norm stack."""

    def __init__(self, config: Config):
        super().__init__()
        width, norm = config.width, partial(nn.LayerNorm, eps=config.eps)
        drop = config.attention_dropout if config.use_attention_dropout else 0.0
        rows, columns = patch_grid(config)
        layers = [
            make_layer(
                Attention(width, config.heads, ScaledDot(dropout=drop)),
                FeedForward(width, config.ffn_width, config.activation),
                width=width,
                norm=norm,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        ]
        self.width = width
        self.patches: PatchEmbedding = PatchEmbedding(config.patch_size, config.channels, width)
        self.whole: nn.Parameter = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        position = LearnedGrid(rows, columns, width, prefix_positions=1)
        self.stack: Stack = Stack(layers, FULL, position, enter=Dropout(config.dropout), leave=norm(width))

    def forward(self, batch: Batch) -> Tensor:
        image = batch.source
        assert isinstance(image, Image), "ViT takes images"
        self._check_image_size(image)
        patches = self.patches(image.pixels)  # (B, L - 1, W)
        return self.stack(torch.cat([self.whole.expand(patches.size(0), -1, -1), patches], dim=1))

    def resize_positions(self, rows: int, columns: int) -> "ViT":
        """A copy for images of rows x columns pixels, with resampled position embeddings."""
        new, size = deepcopy(self), self.patches.patch_size
        new.stack.position = self.position_grid().resize(rows // size, columns // size)
        return new

    def position_grid(self) -> LearnedGrid:
        """The position embeddings of the patches."""
        assert isinstance(self.stack.position, LearnedGrid)
        return self.stack.position

    def _check_image_size(self, image: Image) -> None:
        """Raise ModelError for another image size, which would get wrong positions."""
        grid, size = self.position_grid(), self.patches.patch_size
        rows, columns = image.pixels.shape[-2:]
        if (rows, columns) != (grid.rows * size, grid.columns * size):
            raise ModelError(
                f"This model takes images of {grid.rows * size} x {grid.columns * size} pixels; got {rows} x {columns}. "
                f"Resize the image, or the model with `resize_positions({rows}, {columns})`."
            )


class PixelHead(nn.Module):
    """Predicts the pixels of every patch, (B, patches, channels x rows x columns), and holds the vector of masked patches
    (SimMIM: Xie et al. 2022, arXiv 2111.09886)."""

    def __init__(self, width: int, patch_size: int, channels: int):
        super().__init__()
        self.mask: nn.Parameter = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.score: nn.Conv2d = nn.Conv2d(
            width, channels * patch_size * patch_size, 1
        )  # a linear layer, in its published form

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return F.linear(x[:, 1:], self.score.weight.flatten(1), self.score.bias)  # without [CLS]


WEIGHT_MAP: WeightMap = {
    "embeddings.cls_token": "whole",
    "embeddings.patch_embeddings.projection": "patches.project",
    "embeddings.position_embeddings": AddedAxis("stack.position.vectors"),
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
TRANSFORMERS_5_WEIGHT_MAP: WeightMap = {  # names of transformers 5 in memory; read, never written
    "layers.{}.layernorm_before": "stack.layers.{}.attention.norm",
    "layers.{}.attention.q_proj": "stack.layers.{}.attention.branch.query",
    "layers.{}.attention.k_proj": "stack.layers.{}.attention.branch.key",
    "layers.{}.attention.v_proj": "stack.layers.{}.attention.branch.value",
    "layers.{}.attention.o_proj": "stack.layers.{}.attention.branch.output",
    "layers.{}.layernorm_after": "stack.layers.{}.feedforward.norm",
    "layers.{}.mlp.fc1": "stack.layers.{}.feedforward.branch.up",
    "layers.{}.mlp.fc2": "stack.layers.{}.feedforward.branch.down",
}


def patch_grid(config: Config) -> tuple[int, int]:
    """Rows and columns of patches."""
    sides = (config.image_height, config.image_height if config.image_width is None else config.image_width)
    for side in sides:
        if config.patch_size < 1 or side < 1 or side % config.patch_size:
            raise ModelError(
                f"image size {side} is not a multiple of patch_size {config.patch_size}; choose a multiple."
            )
    return sides[0] // config.patch_size, sides[1] // config.patch_size


def normalize_config(raw: dict[str, Any]) -> dict[str, Any]:
    """Split sizes that are published as a pair; patches must be square, images need not be."""
    for key in ("image_size", "patch_size"):
        pair = raw.get(key)
        if not isinstance(pair, list | tuple):
            continue
        if len(pair) != 2 or any(type(side) is not int for side in pair):
            raise ModelError(f"vit: {key} must be a number of pixels, or two numbers; got {str(pair)[:80]}.")
        if pair[0] != pair[1]:
            if key == "patch_size":
                raise ModelError(f"vit: {key} = {list(pair)} is not square; only square patches are supported.")
            raw["image_size.columns"] = pair[1]
        raw[key] = pair[0]
    return raw


def derived_keys(config: Config) -> dict[str, Any]:
    """The published image size: one number if it is square, otherwise a pair."""
    return {} if config.image_width is None else {"image_size": [config.image_height, config.image_width]}


def config_of_body(config: Config, body: ViT) -> Config:
    """The config of a body that may have been resized since it was built."""
    grid, patch = body.position_grid(), config.patch_size
    rows, columns = grid.rows * patch, grid.columns * patch
    return replace(config, image_height=rows, image_width=None if rows == columns else columns)


def capabilities(config: Config) -> Capabilities:
    rows, columns = config.image_height, config.image_height if config.image_width is None else config.image_width
    embeddings = ("whole", "patches", "stack.position", "stack.enter")
    return Capabilities(Modality.IMAGE, image_shape=(config.channels, rows, columns), embeddings=embeddings)


FAMILY = Family(
    name="vit",
    description="image encoder: patches, learned positions on a grid, pre-norm",
    config_class=Config,
    build=ViT,
    capabilities=capabilities,
    weight_map=lambda config: {**WEIGHT_MAP, **TRANSFORMERS_5_WEIGHT_MAP},
    config_keys={
        "image_size": "image_height",
        "image_size.columns": "image_width",
        "patch_size": "patch_size",
        "num_channels": "channels",
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "intermediate_size": "ffn_width",
        "hidden_act": "activation",
        "layer_norm_eps": "eps",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    required_values={"qkv_bias": True},
    normalize_config=normalize_config,
    derived_keys=derived_keys,
    config_of_body=config_of_body,
    heads={
        "label": HeadSpec(
            lambda config, body, labels: ClassificationHead(config.width, labels, pool=FirstTokenPool()),
            {"classifier": "score"},
            "ViTForImageClassification",
        ),
        "pixels": HeadSpec(
            lambda config, body, labels: PixelHead(config.width, config.patch_size, config.channels),
            {"vit.embeddings.mask_token": "mask", "decoder.0": "score"},
            "ViTForMaskedImageModeling",
            derived_keys=lambda config: {"encoder_stride": config.patch_size},  # pixels per side of a predicted patch
        ),
    },
    prefix="vit.",
    pooler_tensors=(r"pooler\..*",),
    architecture="ViTModel",
    extra_tensors=unused_pooler,
    init_weights=init_normal_by_width,
)
