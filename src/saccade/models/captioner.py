"""Captioners: words out of a picture, in three ways that differ in what sees and in what writes.

- `rnn`: convolutions make a grid of features, and a recurrent decoder looks at the grid before each word (Show, Attend and
  Tell, Xu et al. 2015, arXiv 1502.03044). The look is soft, or `hard`: one cell, drawn by chance, learnt from reward.
- `transformer`: the same convolutions, then a transformer's encoder and decoder.
- `patches`: a transformer alone, on squares of pixels.

Hard attention learns with `draws` and `reinforce`; the reward is what the caption gained in probability:

    with draws(model) as log:
        scores = follow(model, batch)
    likely = -cross_entropy(scores, ...)                         # (B,), of each caption
    loss = -likely.mean() + reinforce(log, likely.detach(), baseline=running_mean)
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from saccade.attention import FULL, Additive, Hard, Spatial
from saccade.data import Batch, Image, Text
from saccade.errors import ModelError
from saccade.models import rnn, senet, transformer
from saccade.models.capabilities import ENCODER_DECODER, Capabilities, Modality
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import Family
from saccade.parts.embed import Patches, Words
from saccade.parts.heads import WordHead
from saccade.parts.position import Grid
from saccade.parts.state import State


@dataclass(frozen=True)
class Config:
    vocab: int = 8000
    width: int = 256
    layers: int = 2  # of the transformers; the recurrent decoder has one
    heads: int = 4
    inner: int = 1024
    length: int = 64  # of a caption
    size: int = 64  # rows and columns of a picture, in pixels
    cell: int = 8  # rows and columns of one cell of the grid, in pixels
    channels: int = 3
    block: str = "residual"  # of the convolutions: plain, residual or inception
    hard: bool = False  # the recurrent one: look at one cell at a time
    dropout: float = 0.1
    begin: int = 1

    @property
    def side(self) -> int:
        """Rows and columns of the grid."""
        if self.size % self.cell:
            raise ModelError(f"Cells of {self.cell} pixels do not tile a picture of {self.size}; choose a divisor.")
        return self.size // self.cell


class Convolutions(nn.Module):
    """A grid of features: each stage halves the picture, until a cell is one vector, (B, rows, columns, W)."""

    def __init__(self, config: Config):
        super().__init__()
        stages = config.cell.bit_length() - 1
        if 2**stages != config.cell:
            raise ModelError(f"Each stage halves the picture, so a cell is a power of two; got {config.cell}.")
        sizes = senet.Config(block=config.block, channels=config.channels, width=config.width, stages=stages, blocks=1)
        self.body = senet.SENet(sizes)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.body.grid(pixels).movedim(1, -1)


class SpatialCaptioner(nn.Module):
    """A recurrent decoder that starts from the mean of the grid and looks at its cells before each word."""

    def __init__(self, config: Config):
        super().__init__()
        self.width, self.side = config.width, config.side
        sizes = rnn.Config(config.vocab, config.width, dropout=config.dropout, begin=config.begin)
        self.eye = Convolutions(config)
        self.bridge = rnn.Bridge(sizes, config.width)
        look = Spatial(Additive(config.width, normaliser=Hard() if config.hard else None))
        self.decoder = rnn.Decoder(sizes, look)

    def start(self, batch: Batch) -> tuple[State, Text]:
        grid = self.eye(_pixels(batch))
        return self.decoder.begin(grid, None, self.bridge(grid.mean((1, 2))))

    @property
    def head(self) -> WordHead:
        return self.decoder.head

    def think(self, text: Text, state: State) -> Tensor:
        return self.decoder.think(text, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.decoder.step(text, state)


class Captioner(EncoderDecoder):
    """A transformer's encoder on vectors of a picture, which `eye` makes, and its decoder on words."""

    def __init__(self, config: Config, eye: nn.Module):
        sizes = transformer.Config(
            vocab=config.vocab,
            width=config.width,
            layers=config.layers,
            heads=config.heads,
            inner=config.inner,
            length=config.length,
            dropout=config.dropout,
        )
        words = Words(config.vocab, config.width, scaled=True)
        encoder = transformer.stack(sizes, FULL, Grid(config.side, config.side, config.width))
        super().__init__(words, encoder, *transformer.writing(sizes, words, config.width), begin=config.begin)
        self.eye, self.size = eye, config.size

    def start(self, batch: Batch) -> tuple[State, Text]:
        pixels = _pixels(batch)
        rows, columns = pixels.shape[-2:]
        if rows != self.size or columns != self.size:  # its grid of positions has one size
            raise ModelError(
                f"This captioner reads {self.size} x {self.size} pixels; got {rows} x {columns}. Resize them."
            )
        state = State()
        memory = state.put("memory", self.encoder(self.eye(pixels)), axis=1)
        state.put("memory_keep", memory.new_ones(memory.shape[:2], dtype=torch.bool), axis=1)
        return state, Text(torch.full((len(pixels), 1), self.begin, device=pixels.device))


class Line(nn.Module):
    """A grid as a sequence, row by row."""

    def forward(self, grid: Tensor) -> Tensor:
        return grid.flatten(1, 2)


def with_transformer(config: Config) -> Captioner:
    """Convolutions, then a transformer."""
    return Captioner(config, nn.Sequential(Convolutions(config), Line()))


def with_patches(config: Config) -> Captioner:
    """A transformer alone."""
    return Captioner(config, Patches(config.cell, config.channels, config.width))


def _pixels(batch: Batch) -> Tensor:
    assert isinstance(batch.source, Image), "a captioner looks at pictures"
    return batch.source.pixels


def capabilities(config: Config) -> Capabilities:
    return replace(
        ENCODER_DECODER,
        input=Modality.IMAGE,
        image_shape=(config.channels, config.size, config.size),
        sides={**ENCODER_DECODER.sides, "eye": "image encoder"},
        layers=("eye.0.body.stages", *ENCODER_DECODER.layers),
        embeddings=(*ENCODER_DECODER.embeddings, "eye"),
    )


def recurrent_capabilities(config: Config) -> Capabilities:
    return replace(
        capabilities(config),
        sides={"eye": "image encoder", "decoder": "decoder"},
        layers=("eye.body.stages", "decoder.body.layers.layers"),
        embeddings=("eye", "decoder.words"),
    )


FAMILY = Family(
    name="captioner_rnn",
    said="captioner: convolutions, recurrent decoder, soft or hard attention over the grid",
    config=Config,
    build=SpatialCaptioner,
    capabilities=recurrent_capabilities,
    short_names=("rnn",),
)
TRANSFORMER = Family(
    name="captioner_transformer",
    said="captioner: convolutions, then a transformer",
    config=Config,
    build=with_transformer,
    capabilities=capabilities,
    short_names=("transformer",),
)
PATCHES = Family(
    name="captioner_patches",
    said="captioner: a transformer alone, on patches",
    config=Config,
    build=with_patches,
    capabilities=capabilities,
    short_names=("patches",),
)
