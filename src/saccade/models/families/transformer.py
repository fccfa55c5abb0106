"""The original transformer, to be trained from scratch (Vaswani et al. 2017, arXiv 1706.03762).

Attention mechanism and position scheme are chosen by name. The encoder alone is a `TransformerEncoder`, the decoder alone a
`TransformerLanguageModel`. The default sizes can be trained on two CPU cores.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Mechanism, Pattern, get_mechanism
from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models import encoder_heads
from saccade.models.capabilities import DECODER, ENCODER, ENCODER_DECODER
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import Family
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import LMHead
from saccade.parts.layer import Layer, make_layer
from saccade.parts.multihead_attention import Attention, Projections
from saccade.parts.position import Position, get_position
from saccade.parts.stack import Stack
from saccade.parts.state import State


@dataclass(frozen=True)
class Config:
    vocab: int = 8000  # Vocabulary size: number of token ids.
    width: int = 256  # Model width (hidden size) of every layer.
    layers: int = 3  # Number of layers in the encoder and in the decoder.
    heads: int = 4  # Number of attention heads per layer.
    ffn_width: int = 1024  # Width of the feed-forward hidden layer.
    max_positions: int = 512  # Maximum sequence length in tokens, where mechanism or positions have a limit.
    mechanism: str = "scaled_dot"  # Attention mechanism, such as scaled_dot; `saccade mechanisms` lists them.
    position: str = "sinusoidal"  # Position scheme, such as sinusoidal, learned, rotary, alibi, t5_bias or none.
    norm_first: bool = True  # Pre-norm; off: post-norm, as first published, which needs warmup.
    tie_embeddings: bool = True  # Tie source, target and output embeddings.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    decoder_start_id: int = 1  # Id of the token that starts the decoder.


class TransformerEncoder(nn.Module):
    """A text encoder: one vector per token, with full attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.words: TokenEmbedding = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
        self.stack: Stack = make_stack(config, FULL)
        self.width: int = config.width + self.stack.position.extra_width

    def forward(self, batch: Batch) -> Tensor:
        assert isinstance(batch.source, Text), "this encoder takes text"
        return self.stack(self.words(batch.source.tokens), batch.source.layout)


class TransformerLanguageModel(nn.Module):
    """A decoder without cross-attention: a language model."""

    def __init__(self, config: Config):
        super().__init__()
        self.words: TokenEmbedding = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
        self.stack: Stack = make_stack(config, CAUSAL)
        self.width: int = config.width + self.stack.position.extra_width
        self.head: LMHead = LMHead(
            self.width, config.vocab, tied_embedding=self.words.vectors if config.tie_embeddings else None
        )

    def start(self, batch: Batch) -> tuple[State, Text]:
        assert isinstance(batch.source, Text), "this decoder continues a text"
        return State(), batch.source

    def hidden_states(self, text: Text, state: State) -> Tensor:
        return self.stack(self.words(text.tokens), text.layout, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.hidden_states(text, state))


def build_encoder_decoder(config: Config) -> EncoderDecoder:
    """An encoder-decoder: every layer of the decoder has cross-attention to the output of the encoder."""
    words = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
    encoder = make_stack(config, FULL)
    decoder, head = decoder_and_head(config, words, config.width + encoder.position.extra_width)
    target_words = None if config.tie_embeddings else TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
    return EncoderDecoder(
        words, encoder, decoder, head, decoder_start_id=config.decoder_start_id, target_words=target_words
    )


def decoder_and_head(config: Config, words: TokenEmbedding, memory_width: int) -> tuple[Stack, LMHead]:
    """A decoder with cross-attention, and its head."""
    decoder = make_stack(config, CAUSAL, memory_width=memory_width)
    width = config.width + decoder.position.extra_width
    return decoder, LMHead(width, config.vocab, tied_embedding=words.vectors if config.tie_embeddings else None)


def make_stack(
    config: Config, pattern: Pattern, scheme: Position | None = None, *, memory_width: int | None = None
) -> Stack:
    """A stack with the sizes of a config and an attention pattern; with a `memory_width`, also with cross-attention."""
    scheme = scheme or get_position(config.position).make(config.width, config.heads, config.max_positions)
    width = config.width + scheme.extra_width  # concatenated positions widen the stack

    def make_one_layer() -> Layer:
        mechanism = self_mechanism(config, width // config.heads, pattern)
        cross = None
        if memory_width is not None:
            projections = Projections(memory_width=memory_width)
            across = cross_mechanism(config, width // config.heads)
            cross = Attention(width, config.heads, across, projections=projections)
        return make_layer(
            Attention(width, config.heads, mechanism),
            FeedForward(width, config.ffn_width, "relu"),
            cross,
            width=width,
            norm_first=config.norm_first,
            dropout=config.dropout,
        )

    leave = nn.LayerNorm(width) if config.norm_first else None
    layers = [make_one_layer() for _ in range(config.layers)]
    return Stack(layers, pattern, scheme, enter=Dropout(config.dropout), leave=leave)


def self_mechanism(config: Config, head_width: int, pattern: Pattern) -> Mechanism:
    """The mechanism for self-attention; raises ModelError if the pattern is causal and the mechanism cannot be."""
    entry = get_mechanism(config.mechanism)
    if pattern != FULL and not {"causal", "incremental"} <= entry.supports:
        raise ModelError(f"{entry.name} does not support causal attention; use it in an encoder.")
    return entry.make(head_width, config.heads, config.max_positions)


def cross_mechanism(config: Config, head_width: int) -> Mechanism:
    """The mechanism for cross-attention: the same, or scaled_dot if that one depends on positions."""
    entry = get_mechanism(config.mechanism)
    if not {"cross_attention", "permutation"} <= entry.supports:
        entry = get_mechanism("scaled_dot")
    return entry.make(head_width, config.heads, config.max_positions)


FAMILY = Family(
    name="transformer",
    description="encoder-decoder: any attention mechanism, any positions, pre-norm or post-norm",
    config_class=Config,
    build=build_encoder_decoder,
    capabilities=lambda config: ENCODER_DECODER,
)
LM_FAMILY = Family(
    name="transformer_lm",
    description="decoder-only transformer: a language model",
    config_class=Config,
    build=TransformerLanguageModel,
    capabilities=lambda config: DECODER,
    short_names=("transformer",),
)
ENCODER_FAMILY = Family(
    name="transformer_encoder",
    description="encoder-only transformer: a text encoder",
    config_class=Config,
    build=TransformerEncoder,
    capabilities=lambda config: ENCODER,
    short_names=("transformer",),
    heads=encoder_heads.HEADS,
)
