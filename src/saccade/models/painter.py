"""DALL-E: a picture as the continuation of a text, one code after the other (Ramesh et al. 2021, arXiv 2102.12092).

An autoencoder turns pictures into codes; a decoder then learns text and codes as one sequence over one vocabulary: the words,
a token that begins the picture, and the codes. After that token only codes are possible.

    rows = generate(painter.eval(), Batch(text), stop=None, limit=painter.cells)
    pixels = painter.picture(rows)                       # (B, channels, size, size)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, Layout
from saccade.attention.table import nearest
from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models import transformer
from saccade.models.capabilities import Capabilities, Generates, Modality
from saccade.models.family import Family
from saccade.parts.embed import Words
from saccade.parts.heads import WordHead
from saccade.parts.position import Grid, Learned
from saccade.parts.state import State
from saccade.vision.codes import Autoencoder, Gumbel, Nearest

CHOICES = {"gumbel": Gumbel, "nearest": Nearest}


@dataclass(frozen=True)
class Config:
    vocab: int = 8000
    width: int = 256
    layers: int = 4
    heads: int = 4
    inner: int = 1024
    length: int = 64  # of the text
    size: int = 32  # rows and columns of a picture, in pixels
    cell: int = 4  # rows and columns of the square that a code stands for
    channels: int = 3
    codes: int = 512
    code_width: int = 64
    choice: str = "gumbel"  # how a code is chosen: a line of CHOICES
    dropout: float = 0.1


class Painter(nn.Module):
    """Text in, codes out; `autoencoder` is trained first and then left as it is."""

    def __init__(self, config: Config):
        super().__init__()
        if config.choice not in CHOICES:
            raise ModelError(f"Unknown choice {config.choice!r}; {nearest(config.choice, list(CHOICES))}")
        if config.size % config.cell:
            raise ModelError(f"Squares of {config.cell} do not tile a picture of {config.size}; choose a divisor.")
        self.width, self.side = config.width, config.size // config.cell
        self.begin = config.vocab  # words come first, then this, then the codes
        choice = CHOICES[config.choice](config.codes, config.code_width)
        self.autoencoder = Autoencoder(choice, channels=config.channels, cell=config.cell)
        every = config.vocab + 1 + config.codes
        self.words = Words(every, config.width)
        self.place = Grid(
            self.side, self.side, config.width
        )  # besides its number in the text, a code has a row and column
        sizes = transformer.Config(
            width=config.width, layers=config.layers, heads=config.heads, inner=config.inner, dropout=config.dropout
        )
        self.stack = transformer.stack(sizes, CAUSAL, Learned(config.length + 1 + self.cells, config.width))
        self.head = WordHead(config.width, every, tied=self.words.vectors)

    @property
    def cells(self) -> int:
        """How many codes make a picture."""
        return self.side**2

    def start(self, batch: Batch) -> tuple[State, Text]:
        text = batch.source
        assert isinstance(text, Text), "a painter reads text"
        begin = torch.full_like(text.tokens[:, :1], self.begin)
        keep = None if text.keep is None else torch.cat([text.keep, torch.ones_like(begin, dtype=torch.bool)], dim=1)
        return State(), Text(torch.cat([text.tokens, begin], dim=1), keep)

    def think(self, text: Text, state: State) -> Tensor:
        return self.stack(self._vectors(text, state), Layout(text.keep), state)

    def step(self, text: Text, state: State) -> Tensor:
        scores = self.head(self.think(text, state))
        painting = (text.tokens >= self.begin).unsqueeze(-1)  # once it has begun, only codes follow
        codes = torch.arange(scores.size(-1), device=scores.device) > self.begin
        return scores.masked_fill(painting & ~codes, -torch.inf)

    def target(self, pixels: Tensor) -> Text:
        """A picture as what the painter should write."""
        with torch.no_grad():
            return Text(self.autoencoder.encode(pixels).flatten(1) + self.begin + 1)

    def picture(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """What was written, as pixels."""
        short = [len(row) for row in rows if len(row) != self.cells]
        if short:
            raise ModelError(f"A picture has {self.cells} codes; got {short[0]}. Generate with limit={self.cells}.")
        codes = torch.tensor(rows, device=self.words.vectors.weight.device) - self.begin - 1
        return self.autoencoder.decode(codes.view(-1, self.side, self.side))

    def _vectors(self, text: Text, state: State) -> Tensor:
        """Words and codes as vectors; a code is told its row and column, counted from what was painted before."""
        vectors = self.words(text.tokens)
        code = text.tokens > self.begin
        code = code if text.keep is None else code & text.keep
        before = state.once("painted", lambda: code.new_zeros(len(code), dtype=torch.long), axis=None)
        painted = before[:, None] + code.long().cumsum(1)
        state.put("painted", painted[:, -1])
        return torch.where(code.unsqueeze(-1), self.place.place(vectors, painted - 1), vectors)


IMAGE_WRITER = Capabilities(Modality.TEXT, Generates.IMAGE_CODES)
FAMILY = Family(
    name="painter",
    said="DALL-E: text, then a picture's codes, in one decoder over one vocabulary",
    config=Config,
    build=Painter,
    capabilities=lambda config: IMAGE_WRITER,
)
