"""DALL-E: a picture as the continuation of a text, one code after the other (Ramesh et al. 2021, arXiv 2102.12092).

An autoencoder turns pictures into codes; a decoder then learns text and codes as one sequence over one vocabulary: the words,
a token that begins the picture, and the codes. After that token only codes are possible.

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
    """Text in, codes out; `autoencoder` is trained first and then left as it is."""

    def __init__(self, config: Config):
        super().__init__()
        if config.quantizer not in QUANTIZERS:
            raise ModelError(f"Unknown quantizer {config.quantizer!r}; {suggest(config.quantizer, list(QUANTIZERS))}")
        if config.image_size % config.cell_size:
            raise ModelError(
                f"Squares of {config.cell_size} do not tile a picture of {config.image_size}; choose a divisor."
            )
        self.width, self.grid_size = config.width, config.image_size // config.cell_size
        self.image_start_id = config.vocab  # words come first, then this, then the codes
        choice = QUANTIZERS[config.quantizer](config.codebook_size, config.code_width)
        self.autoencoder = DiscreteAutoencoder(choice, channels=config.channels, cell_size=config.cell_size)
        every = config.vocab + 1 + config.codebook_size
        self.words = TokenEmbedding(every, config.width)
        self.place = LearnedGrid(
            self.grid_size, self.grid_size, config.width
        )  # besides its number in the text, a code has a row and column
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
        self.head = LMHead(config.width, every, tied_embedding=self.words.vectors)

    @property
    def codes_per_image(self) -> int:
        """How many codes make a picture."""
        return self.grid_size**2

    def start(self, batch: Batch) -> tuple[State, Text]:
        text = batch.source
        assert isinstance(text, Text), "a painter reads text"
        begin = torch.full_like(text.tokens[:, :1], self.image_start_id)
        keep = None if text.keep is None else torch.cat([text.keep, torch.ones_like(begin, dtype=torch.bool)], dim=1)
        return State(), Text(torch.cat([text.tokens, begin], dim=1), keep)

    def hidden_states(self, text: Text, state: State) -> Tensor:
        return self.stack(self._embed(text, state), Layout(text.keep), state)

    def step(self, text: Text, state: State) -> Tensor:
        scores = self.head(self.hidden_states(text, state))
        painting = (text.tokens >= self.image_start_id).unsqueeze(-1)  # once it has begun, only codes follow
        codes = torch.arange(scores.size(-1), device=scores.device) > self.image_start_id
        return scores.masked_fill(painting & ~codes, -torch.inf)

    def encode_image(self, pixels: Tensor) -> Text:
        """A picture as what the painter should write."""
        with torch.no_grad():
            return Text(self.autoencoder.encode(pixels).flatten(1) + self.image_start_id + 1)

    def decode_images(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """What was written, as pixels."""
        short = [len(row) for row in rows if len(row) != self.codes_per_image]
        if short:
            raise ModelError(
                f"A picture has {self.codes_per_image} codes; got {short[0]}. "
                f"Generate with max_new_tokens={self.codes_per_image}."
            )
        codes = torch.tensor(rows, device=self.words.vectors.weight.device) - self.image_start_id - 1
        return self.autoencoder.decode(codes.view(-1, self.grid_size, self.grid_size))

    def _embed(self, text: Text, state: State) -> Tensor:
        """Words and codes as vectors; a code is told its row and column, counted from what was painted before."""
        vectors = self.words(text.tokens)
        code = text.tokens > self.image_start_id
        code = code if text.keep is None else code & text.keep
        before = state.get_or_make("painted", lambda: code.new_zeros(len(code), dtype=torch.long), axis=None)
        painted = before[:, None] + code.long().cumsum(1)
        state.put("painted", painted[:, -1])
        return torch.where(code.unsqueeze(-1), self.place.add_to_input(vectors, painted - 1), vectors)


IMAGE_GENERATOR = Capabilities(Modality.TEXT, Generates.IMAGE_CODES)
FAMILY = Family(
    name="dalle",
    description="DALL-E: one decoder over text tokens and then image codes, in one vocabulary",
    config_class=Config,
    build=DallE,
    capabilities=lambda config: IMAGE_GENERATOR,
)
