"""Image captioning models: three encoder-decoders.

- `captioner_rnn`: a CNN makes a grid of features, and a recurrent decoder attends to the grid before each token (Show,
  Attend and Tell, Xu et al. 2015, arXiv 1502.03044). Attention is soft, or hard (`hard_attention`): one sampled cell, trained
  by reinforcement learning.
- `captioner_transformer`: the same CNN, then a transformer encoder and decoder.
- `captioner_vit`: a transformer on image patches, without a CNN.

Hard attention is trained with `record_draws` and `reinforce_loss`; the reward is the log-probability of the caption:

    with record_draws(model) as log:
        scores = teacher_forced_logits(model, batch)
    log_probs = -cross_entropy(scores, ...)                      # (B,), of each caption
    loss = -log_probs.mean() + reinforce_loss(log, log_probs.detach(), baseline=running_mean)
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from saccade.attention import FULL, Additive, Hard, Spatial
from saccade.data import Batch, Image, Text
from saccade.errors import ModelError
from saccade.models.capabilities import ENCODER_DECODER, Capabilities, Modality
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.families import rnn, senet, transformer
from saccade.models.family import Family
from saccade.parts.embeddings import PatchEmbedding, TokenEmbedding
from saccade.parts.position import LearnedGrid
from saccade.parts.state import State


@dataclass(frozen=True)
class Config:
    vocab: int = 8000  # Vocabulary size: number of token ids.
    width: int = 256  # Model width (hidden size) of every layer.
    layers: int = 2  # Number of transformer layers in encoder and decoder; the recurrent decoder has one.
    heads: int = 4  # Number of attention heads per layer.
    ffn_width: int = 1024  # Width of the feed-forward hidden layer.
    max_positions: int = 64  # Maximum length of a caption in tokens.
    image_size: int = 64  # Image size: rows and columns in pixels.
    cell_size: int = 8  # Cell size of the feature grid: rows and columns in pixels.
    channels: int = 3  # Number of color channels of an image.
    block_type: str = "residual"  # Type of the convolutional blocks: plain, residual or inception.
    hard_attention: bool = False  # Hard attention of the recurrent decoder: attend to one cell at a time.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    decoder_start_id: int = 1  # Id of the token that starts the decoder.

    @property
    def grid_size(self) -> int:
        """Number of rows and columns of the feature grid."""
        if self.image_size % self.cell_size:
            raise ModelError(
                f"cell_size {self.cell_size} does not divide image_size {self.image_size}; choose a divisor."
            )
        return self.image_size // self.cell_size


class ConvEncoder(nn.Module):
    """A CNN that makes a grid of features (B, rows, columns, W); each stage halves the resolution."""

    def __init__(self, config: Config):
        super().__init__()
        stages = config.cell_size.bit_length() - 1
        if 2**stages != config.cell_size:
            raise ModelError(
                f"cell_size must be a power of two, since each stage halves the image; got {config.cell_size}."
            )
        sizes = senet.Config(
            block_type=config.block_type,
            channels=config.channels,
            width=config.width,
            stages=stages,
            blocks_per_stage=1,
        )
        self.body = senet.SENet(sizes)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.body.feature_map(pixels).movedim(1, -1)


class RNNCaptioner(rnn.RNNGenerator):
    """A recurrent decoder whose first state is the mean of the grid, and which attends to its cells before each token."""

    width: int
    grid_size: int

    def __init__(self, config: Config):
        super().__init__()
        self.width, self.grid_size = config.width, config.grid_size
        sizes = rnn.Config(config.vocab, config.width, dropout=config.dropout, decoder_start_id=config.decoder_start_id)
        self.eye: ConvEncoder = ConvEncoder(config)
        self.bridge = rnn.Bridge(sizes, config.width)
        attention = Spatial(Additive(config.width, normalizer=Hard() if config.hard_attention else None))
        self.decoder = rnn.RNNDecoder(sizes, attention)

    def start(self, batch: Batch) -> tuple[State, Text]:
        grid = self.eye(_pixels(batch))
        return self.decoder.start_from_memory(grid, None, self.bridge(grid.mean((1, 2))))


class TransformerCaptioner(EncoderDecoder):
    """A transformer encoder on the image features from `eye`, and a transformer decoder."""

    eye: nn.Module
    image_size: int

    def __init__(self, config: Config, eye: nn.Module):
        sizes = transformer.Config(
            vocab=config.vocab,
            width=config.width,
            layers=config.layers,
            heads=config.heads,
            ffn_width=config.ffn_width,
            max_positions=config.max_positions,
            dropout=config.dropout,
        )
        words = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
        encoder = transformer.make_stack(sizes, FULL, LearnedGrid(config.grid_size, config.grid_size, config.width))
        super().__init__(
            words,
            encoder,
            *transformer.decoder_and_head(sizes, words, config.width),
            decoder_start_id=config.decoder_start_id,
        )
        self.eye, self.image_size = eye, config.image_size

    def start(self, batch: Batch) -> tuple[State, Text]:
        pixels = _pixels(batch)
        rows, columns = pixels.shape[-2:]
        if rows != self.image_size or columns != self.image_size:  # the grid of learned positions has a fixed size
            raise ModelError(
                f"This model takes images of {self.image_size} x {self.image_size} pixels; got {rows} x {columns}. Resize them."
            )
        state = State()
        memory = state.put("memory", self.encoder(self.eye(pixels)), axis=1)
        state.put("memory_keep", memory.new_ones(memory.shape[:2], dtype=torch.bool), axis=1)
        return state, Text(torch.full((len(pixels), 1), self.decoder_start_id, device=pixels.device))


class FlattenGrid(nn.Module):
    """Flattens a grid into a sequence, row by row."""

    def forward(self, grid: Tensor) -> Tensor:
        return grid.flatten(1, 2)


def build_conv_captioner(config: Config) -> TransformerCaptioner:
    """Build `captioner_transformer`."""
    return TransformerCaptioner(config, nn.Sequential(ConvEncoder(config), FlattenGrid()))


def build_vit_captioner(config: Config) -> TransformerCaptioner:
    """Build `captioner_vit`."""
    return TransformerCaptioner(config, PatchEmbedding(config.cell_size, config.channels, config.width))


def _pixels(batch: Batch) -> Tensor:
    assert isinstance(batch.source, Image), "a captioner takes images"
    return batch.source.pixels


def capabilities(config: Config) -> Capabilities:
    return replace(
        ENCODER_DECODER,
        input=Modality.IMAGE,
        image_shape=(config.channels, config.image_size, config.image_size),
        sides={**ENCODER_DECODER.sides, "eye": "image encoder"},
        layers=("eye.0.body.stages", *ENCODER_DECODER.layers),
        embeddings=(*ENCODER_DECODER.embeddings, "eye"),
    )


def rnn_capabilities(config: Config) -> Capabilities:
    return replace(
        capabilities(config),
        sides={"eye": "image encoder", "decoder": "decoder"},
        layers=("eye.body.stages", "decoder.body.layers.layers"),
        embeddings=("eye", "decoder.words"),
    )


def vit_capabilities(config: Config) -> Capabilities:
    return replace(capabilities(config), layers=ENCODER_DECODER.layers)  # one embedding of patches, no convolutions


FAMILY = Family(
    name="captioner_rnn",
    description="image captioner: CNN encoder, recurrent decoder, soft or hard attention over the grid",
    config_class=Config,
    build=RNNCaptioner,
    capabilities=rnn_capabilities,
    short_names=("rnn",),
)
TRANSFORMER_FAMILY = Family(
    name="captioner_transformer",
    description="image captioner: CNN, then a transformer",
    config_class=Config,
    build=build_conv_captioner,
    capabilities=capabilities,
    short_names=("transformer",),
)
VIT_FAMILY = Family(
    name="captioner_vit",
    description="image captioner: transformer on patches",
    config_class=Config,
    build=build_vit_captioner,
    capabilities=vit_capabilities,
    short_names=("vit",),
)
