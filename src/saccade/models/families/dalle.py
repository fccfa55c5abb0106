"""DALL-E: text-to-image generation with a decoder that continues a text with image codes (Ramesh et al. 2021, arXiv 2102.12092).

An autoencoder turns images into codes; a decoder then models text and codes as one sequence over one vocabulary: the text
tokens, a token that starts the image, and the codes. After that token only codes are possible.

    rows = generate(model.eval(), Batch(text), stop_ids=None, max_new_tokens=model.codes_per_image)
    pixels = model.decode_images(rows)                   # (B, channels, size, size)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, Layout
from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models.capabilities import Capabilities, Generates, Modality
from saccade.models.families import transformer
from saccade.models.family import Family
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.heads import LMHead
from saccade.parts.position import Learned, LearnedGrid
from saccade.parts.state import State
from saccade.suggest import suggest
from saccade.vision.vqvae import DiscreteAutoencoder, GumbelQuantizer, VectorQuantizer

QUANTIZERS = {"gumbel": GumbelQuantizer, "nearest": VectorQuantizer}


@dataclass(frozen=True)
class Config:
    vocab: int = 8000  # Vocabulary size: number of token ids.
    width: int = 256  # Model width (hidden size) of every layer.
    layers: int = 4  # Number of decoder layers (transformer blocks).
    heads: int = 4  # Number of attention heads per layer.
    ffn_width: int = 1024  # Width of the feed-forward hidden layer.
    max_positions: int = 64  # Maximum length of the text in tokens.
    image_size: int = 32  # Image size: rows and columns in pixels.
    cell_size: int = 4  # Patch size of an image code: rows and columns in pixels.
    channels: int = 3  # Number of color channels of an image.
    codebook_size: int = 512  # Codebook size: number of image codes.
    code_width: int = 64  # Width of a code vector in the codebook.
    quantizer: str = "gumbel"  # Vector quantizer of the image codes: gumbel or nearest.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.


class DallE(nn.Module):
    """A decoder from text to image codes; `autoencoder` is trained first and then frozen."""

    width: int
    grid_size: int

    def __init__(self, config: Config):
        super().__init__()
        if config.quantizer not in QUANTIZERS:
            raise ModelError(f"Unknown quantizer {config.quantizer!r}; {suggest(config.quantizer, list(QUANTIZERS))}")
        if config.image_size % config.cell_size:
            raise ModelError(
                f"cell_size {config.cell_size} does not divide image_size {config.image_size}; choose a divisor."
            )
        self.width, self.grid_size = config.width, config.image_size // config.cell_size
        self.image_start_id: int = config.vocab  # after the text tokens and before the codes
        quantizer = QUANTIZERS[config.quantizer](config.codebook_size, config.code_width)
        self.autoencoder: DiscreteAutoencoder = DiscreteAutoencoder(
            quantizer, channels=config.channels, cell_size=config.cell_size
        )
        joint_vocab = config.vocab + 1 + config.codebook_size
        self.words: TokenEmbedding = TokenEmbedding(joint_vocab, config.width)
        # row and column of a code, in addition to its position in the sequence
        self.place: LearnedGrid = LearnedGrid(self.grid_size, self.grid_size, config.width)
        sizes = transformer.Config(
            width=config.width,
            layers=config.layers,
            heads=config.heads,
            ffn_width=config.ffn_width,
            dropout=config.dropout,
        )
        self.stack = transformer.make_stack(
            sizes, CAUSAL, Learned(config.max_positions + 1 + self.codes_per_image, config.width)
        )
        self.head: LMHead = LMHead(config.width, joint_vocab, tied_embedding=self.words.vectors)

    @property
    def codes_per_image(self) -> int:
        """Number of codes per image."""
        return self.grid_size**2

    def start(self, batch: Batch) -> tuple[State, Text]:
        text = batch.source
        assert isinstance(text, Text), "DALL-E takes text"
        image_start = torch.full_like(text.tokens[:, :1], self.image_start_id)
        keep = (
            None if text.keep is None else torch.cat([text.keep, torch.ones_like(image_start, dtype=torch.bool)], dim=1)
        )
        return State(), Text(torch.cat([text.tokens, image_start], dim=1), keep)

    def hidden_states(self, text: Text, state: State) -> Tensor:
        return self.stack(self._embed(text, state), Layout(text.keep), state)

    def step(self, text: Text, state: State) -> Tensor:
        scores = self.head(self.hidden_states(text, state))
        in_image = (text.tokens >= self.image_start_id).unsqueeze(-1)  # after the start token only codes may follow
        is_code = torch.arange(scores.size(-1), device=scores.device) > self.image_start_id
        return scores.masked_fill(in_image & ~is_code, -torch.inf)

    def encode_image(self, pixels: Tensor) -> Text:
        """Turn images (B, channels, rows, columns) into their codes, as target sequences."""
        with torch.no_grad():
            return Text(self.autoencoder.encode(pixels).flatten(1) + self.image_start_id + 1)

    def decode_images(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Turn generated codes into pixels."""
        wrong_lengths = [len(row) for row in rows if len(row) != self.codes_per_image]
        if wrong_lengths:
            raise ModelError(
                f"An image has {self.codes_per_image} codes; got {wrong_lengths[0]}. "
                f"Generate with max_new_tokens={self.codes_per_image}."
            )
        codes = torch.tensor(rows, device=self.words.vectors.weight.device) - self.image_start_id - 1
        return self.autoencoder.decode(codes.view(-1, self.grid_size, self.grid_size))

    def _embed(self, text: Text, state: State) -> Tensor:
        """Embed tokens and codes; a code also gets the embedding of its row and column, counted from the codes before it."""
        vectors = self.words(text.tokens)
        is_code = text.tokens > self.image_start_id
        is_code = is_code if text.keep is None else is_code & text.keep
        previous = state.get_or_make("painted", lambda: is_code.new_zeros(len(is_code), dtype=torch.long), axis=None)
        count = previous[:, None] + is_code.long().cumsum(1)
        state.put("painted", count[:, -1])
        return torch.where(is_code.unsqueeze(-1), self.place.add_to_input(vectors, count - 1), vectors)


IMAGE_GENERATOR = Capabilities(Modality.TEXT, Generates.IMAGE_CODES)
FAMILY = Family(
    name="dalle",
    description="DALL-E: one decoder over text tokens and then image codes, in one vocabulary",
    config_class=Config,
    build=DallE,
    capabilities=lambda config: IMAGE_GENERATOR,
)
