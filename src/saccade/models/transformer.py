"""The transformer: encoder and decoder of attention alone, to be trained from scratch (Vaswani 2017, arXiv 1706.03762).

Mechanism and positions are chosen by name from their tables. The encoder alone is a `Reader`, the decoder alone a writer of
`Language`. The sizes below train on two cores.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Mechanism, Pattern, mechanism
from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models import reading
from saccade.models.capabilities import DECODER, ENCODER, ENCODER_DECODER
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import Family
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import WordHead
from saccade.parts.layer import Layer, layer
from saccade.parts.multihead import Attention, Projections
from saccade.parts.position import Position, position
from saccade.parts.stack import Stack
from saccade.parts.state import State


@dataclass(frozen=True)
class Config:
    vocab: int = 8000
    width: int = 256
    layers: int = 3  # in the encoder and in the decoder
    heads: int = 4
    inner: int = 1024
    length: int = 512  # the longest text, for those mechanisms and positions that have a limit
    mechanism: str = "scaled_dot"  # any of MECHANISMS
    position: str = "sinusoidal"  # any of POSITIONS
    norm_first: bool = True  # False: norm after each branch, as first published; that needs a warm-up
    tied: bool = True  # one table of words for source, target and output
    dropout: float = 0.1
    begin: int = 1  # the token that a translation begins with


class Reader(nn.Module):
    """The encoder: a vector for each word, from all the others."""

    def __init__(self, config: Config):
        super().__init__()
        self.words = Words(config.vocab, config.width, scaled=True)
        self.stack = stack(config, FULL)
        self.width = config.width + self.stack.position.extra

    def forward(self, batch: Batch) -> Tensor:
        assert isinstance(batch.source, Text), "this encoder reads text"
        return self.stack(self.words(batch.source.tokens), batch.source.layout)


class Language(nn.Module):
    """The decoder without a memory: a language model."""

    def __init__(self, config: Config):
        super().__init__()
        self.words = Words(config.vocab, config.width, scaled=True)
        self.stack = stack(config, CAUSAL)
        self.width = config.width + self.stack.position.extra
        self.head = WordHead(self.width, config.vocab, tied=self.words.vectors if config.tied else None)

    def start(self, batch: Batch) -> tuple[State, Text]:
        assert isinstance(batch.source, Text), "this decoder continues a text"
        return State(), batch.source

    def think(self, text: Text, state: State) -> Tensor:
        return self.stack(self.words(text.tokens), text.layout, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.think(text, state))


def transformer(config: Config) -> EncoderDecoder:
    """Both together: the encoder reads the source once, and every layer of the decoder looks across at it."""
    words = Words(config.vocab, config.width, scaled=True)
    encoder = stack(config, FULL)
    decoder, head = writing(config, words, config.width + encoder.position.extra)
    mine = None if config.tied else Words(config.vocab, config.width, scaled=True)
    return EncoderDecoder(words, encoder, decoder, head, begin=config.begin, target_words=mine)


def writing(config: Config, words: Words, memory_width: int) -> tuple[Stack, WordHead]:
    """A decoder that looks across at a memory, and its head."""
    decoder = stack(config, CAUSAL, memory_width=memory_width)
    width = config.width + decoder.position.extra
    return decoder, WordHead(width, config.vocab, tied=words.vectors if config.tied else None)


def stack(
    config: Config, pattern: Pattern, scheme: Position | None = None, *, memory_width: int | None = None
) -> Stack:
    """Layers of the size that a config says, under a pattern; with a `memory_width` they also look across."""
    scheme = scheme or position(config.position).make(config.width, config.heads, config.length)
    width = config.width + scheme.extra  # concatenated positions widen the stack

    def one() -> Layer:
        look = looking(config, width // config.heads, pattern)
        across = None
        if memory_width is not None:
            there = Projections(memory_width=memory_width)
            across = Attention(width, config.heads, crossing(config, width // config.heads), projections=there)
        return layer(
            Attention(width, config.heads, look),
            FeedForward(width, config.inner, "relu"),
            across,
            width=width,
            norm_first=config.norm_first,
            dropout=config.dropout,
        )

    leave = nn.LayerNorm(width) if config.norm_first else None
    return Stack([one() for _ in range(config.layers)], pattern, scheme, enter=Dropout(config.dropout), leave=leave)


def looking(config: Config, head_width: int, pattern: Pattern) -> Mechanism:
    """How tokens look at each other: the mechanism of the config, if it can hide the future where it must."""
    entry = mechanism(config.mechanism)
    if pattern != FULL and not {"causal", "step"} <= entry.honours:
        raise ModelError(f"{entry.name} cannot hide the future, so it reads but does not write; use it in a reader.")
    return entry.make(head_width, config.heads, config.length)


def crossing(config: Config, head_width: int) -> Mechanism:
    """How a decoder looks at its memory: the same mechanism, or scaled dot products where that one goes by places."""
    entry = mechanism(config.mechanism)
    if not {"cross", "permutation"} <= entry.honours:
        entry = mechanism("scaled_dot")
    return entry.make(head_width, config.heads, config.length)


FAMILY = Family(
    name="transformer",
    said="encoder-decoder from scratch: any mechanism, any positions, norm before or after",
    config=Config,
    build=transformer,
    capabilities=lambda config: ENCODER_DECODER,
)
LANGUAGE = Family(
    name="transformer_language",
    said="the transformer's decoder alone: a language model",
    config=Config,
    build=Language,
    capabilities=lambda config: DECODER,
    short_names=("transformer",),
)
READER = Family(
    name="transformer_reader",
    said="the transformer's encoder alone",
    config=Config,
    build=Reader,
    capabilities=lambda config: ENCODER,
    short_names=("transformer",),
    heads=reading.HEADS,
)
