"""Recurrent networks (LSTM, GRU): a language model, an encoder, and encoder-decoders with three types of decoders.

Sutskever et al. 2014 (arXiv 1409.3215): the last state of the encoder, without attention. Bahdanau et al. 2014 (arXiv
1409.0473): attention before each step, with the previous state as the query. Luong et al. 2015 (arXiv 1508.04025): attention
after the step, with the new state as the query; its output may be part of the next input (`input_feeding`).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.attention import FULL, MECHANISMS, Additive, Mechanism, Sight, Spatial, get_mechanism
from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models import encoder_heads as reading
from saccade.models.capabilities import Capabilities, Generates, Modality
from saccade.models.family import Family
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.heads import FirstTokenPool, LMHead
from saccade.parts.recurrent import Recurrent
from saccade.parts.state import State
from saccade.suggest import suggest


@dataclass(frozen=True)
class Config:
    vocab: int = 8000  # Vocabulary size: number of token ids.
    width: int = 256  # Width of embeddings and hidden states; each of two directions has half.
    layers: int = 1  # Number of recurrent layers in encoder and decoder.
    cell: str = "lstm"  # Recurrent cell: lstm or gru.
    bidirectional: bool = True  # Bidirectional encoder: one direction forward, one backward.
    decoder: str = "bahdanau"  # Decoder type: bahdanau, luong, or sutskever (no attention).
    mechanism: str = "additive"  # Attention mechanism, such as additive, bilinear, dot or scaled_dot.
    input_feeding: bool = False  # Input feeding (Luong): the attention output of a step is input of the next.
    tie_embeddings: bool = False  # Tie source, target and output embeddings.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    decoder_start_id: int = 1  # Id of the token that starts the decoder.


SEQUENCE_TO_SEQUENCE = Capabilities(
    Modality.TEXT,
    Generates.TARGET,
    sides={"encoder": "encoder", "decoder": "decoder"},
    layers=("encoder.layers.layers", "decoder.body.layers.layers"),
    embeddings=("encoder.words", "decoder.words"),
)
LANGUAGE_MODEL = Capabilities(Modality.TEXT, Generates.CONTINUATION, layers=("layers.layers",), embeddings=("words",))
RECURRENT_ENCODER = Capabilities(Modality.TEXT, layers=("layers.layers",), embeddings=("words",))


class RecurrentStack(nn.Module):
    """Stacked recurrent layers."""

    def __init__(self, config: Config, input_width: int, *, bidirectional: bool = False):
        super().__init__()
        if bidirectional and config.width % 2:
            raise ModelError(f"width must be even for a bidirectional encoder; got {config.width}.")
        widths = [input_width] + [config.width] * (config.layers - 1)
        units = config.width // 2 if bidirectional else config.width
        self.layers: nn.ModuleList = nn.ModuleList(
            Recurrent(width, units, config.cell, bidirectional=bidirectional) for width in widths
        )
        self.dropout: nn.Dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, keep: Tensor | None = None, state: State | None = None) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(self.dropout(x), keep, None if state is None else state.at(f"{index}"))
        return x

    def get_hidden_state(self, state: State) -> Tensor:
        """The hidden states of all layers, (B, layers, parts, W); an LSTM has the parts h and c."""
        slots = [[state.at(f"{index}").get(name) for name in "hc"] for index in range(len(self.layers))]
        return torch.stack([torch.stack([x for x in row if x is not None], dim=1) for row in slots], dim=1)

    def set_hidden_state(self, hidden: Tensor, state: State) -> None:
        """Set the hidden states of all layers."""
        for index, row in enumerate(hidden.unbind(1)):
            for name, part in zip("hc", row.unbind(1), strict=False):
                state.at(f"{index}").put(name, part)


class RNNEncoder(nn.Module):
    """A recurrent text encoder: one vector per token, from left context, or from both sides if bidirectional."""

    def __init__(self, config: Config):
        super().__init__()
        self.width: int = config.width
        self.words: TokenEmbedding = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
        self.layers: RecurrentStack = RecurrentStack(config, config.width, bidirectional=config.bidirectional)

    def forward(self, batch: Batch) -> Tensor:
        assert isinstance(batch.source, Text), "a recurrent encoder takes text"
        return self.layers(self.words(batch.source.tokens), batch.source.keep)


class RNNLanguageModel(nn.Module):
    """A recurrent language model, left to right."""

    def __init__(self, config: Config):
        super().__init__()
        self.width: int = config.width
        self.words: TokenEmbedding = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
        self.layers: RecurrentStack = RecurrentStack(config, config.width)
        tied = self.words.vectors if config.tie_embeddings else None
        self.head: LMHead = LMHead(config.width, config.vocab, tied_embedding=tied, bias=True)

    def start(self, batch: Batch) -> tuple[State, Text]:
        assert isinstance(batch.source, Text), "a recurrent language model continues a text"
        return State(), batch.source

    def hidden_states(self, text: Text, state: State) -> Tensor:
        state.advance((text.tokens.size(0), text.tokens.size(1)), text.keep)
        return self.layers(self.words(text.tokens), text.keep, state.at("layers"))

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.hidden_states(text, state))


class CrossAttention(nn.Module):
    """Cross-attention to the memory in the state, (B, K, W) or a grid (B, rows, columns, W)."""

    def __init__(self, mechanism: Mechanism):
        super().__init__()
        self.mechanism = mechanism
        # the key projection of additive attention moves here, so that keys are projected once per text, not once per step
        inner = mechanism.mechanism if isinstance(mechanism, Spatial) else mechanism
        self.key: nn.Module = nn.Identity()
        if isinstance(inner, Additive):
            self.key, inner.key = inner.key, nn.Identity()

    def forward(self, q: Tensor, keep: Tensor | None, state: State) -> Tensor:
        """Attend from queries (B, T, W) to the memory, (B, T, W); `keep` is the padding mask of the queries."""
        memory = state.get("memory")
        assert memory is not None, "`start_from_memory` puts the memory there"
        sight = Sight(FULL, keep=state.get("memory_keep"), query_keep=keep, cross=True)
        keys = state.get_or_make("keys", lambda: self.key(memory), axis=1)
        return self.mechanism(q[:, None], keys[:, None], memory[:, None], sight)[:, 0]


class Sutskever(nn.Module):
    """A decoder without attention: the hidden states of its layers."""

    def __init__(self, config: Config, across: CrossAttention):
        super().__init__()
        self.layers: RecurrentStack = RecurrentStack(config, config.width)

    def forward(self, x: Tensor, keep: Tensor | None, state: State) -> Tensor:
        return self.layers(x, keep, state.at("layers"))


class Bahdanau(nn.Module):
    """Attention before the step: its output is part of the input of the step and of the output layer."""

    def __init__(self, config: Config, across: CrossAttention):
        super().__init__()
        self.across = across
        self.layers: RecurrentStack = RecurrentStack(config, 2 * config.width)
        self.join: nn.Linear = nn.Linear(3 * config.width, config.width)

    def forward(self, x: Tensor, keep: Tensor | None, state: State) -> Tensor:
        out = []
        for t, token in enumerate(x.split(1, dim=1)):
            query = self.layers.get_hidden_state(state.at("layers"))[:, -1, :1]  # (B, 1, W): h of the top layer
            step_keep = None if keep is None else keep[:, t : t + 1]
            context = self.across(query, step_keep, state)
            hidden = self.layers(torch.cat([token, context], dim=-1), step_keep, state.at("layers"))
            out.append(torch.cat([hidden, context, token], dim=-1))
        return self.join(torch.cat(out, dim=1)).tanh()


class Luong(nn.Module):
    """Attention after the step, joined with the new state; with `input_feeding` the result is part of the next input."""

    across: CrossAttention
    input_feeding: bool

    def __init__(self, config: Config, across: CrossAttention):
        super().__init__()
        self.across, self.input_feeding = across, config.input_feeding
        self.layers: RecurrentStack = RecurrentStack(config, 2 * config.width if config.input_feeding else config.width)
        self.join: nn.Linear = nn.Linear(2 * config.width, config.width, bias=False)

    def forward(self, x: Tensor, keep: Tensor | None, state: State) -> Tensor:
        if not self.input_feeding:
            return self._attend(x, keep, state)
        fed = state.get_or_make("fed", lambda: torch.zeros_like(x[:, :1]), axis=None)
        out = []
        for t, token in enumerate(x.split(1, dim=1)):
            step_keep = None if keep is None else keep[:, t : t + 1]
            hidden = self._attend(torch.cat([token, fed], dim=-1), step_keep, state)
            fed = hidden if step_keep is None else torch.where(step_keep[..., None], hidden, fed)
            out.append(hidden)
        state.put("fed", fed)
        return torch.cat(out, dim=1)

    def _attend(self, x: Tensor, keep: Tensor | None, state: State) -> Tensor:
        hidden = self.layers(x, keep, state.at("layers"))
        return self.join(torch.cat([hidden, self.across(hidden, keep, state)], dim=-1)).tanh()


DECODERS = {"sutskever": Sutskever, "bahdanau": Bahdanau, "luong": Luong}


class RNNDecoder(nn.Module):
    """A recurrent decoder over a memory: token embedding, one of DECODERS, and the output head."""

    dropout: nn.Dropout
    decoder_start_id: int

    def __init__(self, config: Config, mechanism: Mechanism, words: TokenEmbedding | None = None):
        super().__init__()
        if config.decoder not in DECODERS:
            raise ModelError(f"Unknown decoder {config.decoder!r}; {suggest(config.decoder, list(DECODERS))}")
        self.words: TokenEmbedding = words or TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
        self.body = DECODERS[config.decoder](config, CrossAttention(mechanism))
        tied = self.words.vectors if config.tie_embeddings else None
        self.head: LMHead = LMHead(config.width, config.vocab, tied_embedding=tied, bias=True)
        self.dropout, self.decoder_start_id = Dropout(config.dropout), config.decoder_start_id

    def start_from_memory(self, memory: Tensor, keep: Tensor | None, hidden: Tensor) -> tuple[State, Text]:
        """Start decoding from a memory (B, ..., W) and the initial hidden state (B, layers, parts, W)."""
        state = State()
        state.put("memory", memory, axis=1)
        memory_keep = memory.new_ones(memory.shape[:-1], dtype=torch.bool) if keep is None else keep
        state.put("memory_keep", memory_keep, axis=1)  # always set, so that states can be concatenated
        self.body.layers.set_hidden_state(hidden, state.at("layers"))
        return state, Text(torch.full((memory.size(0), 1), self.decoder_start_id, device=memory.device))

    def hidden_states(self, text: Text, state: State) -> Tensor:
        state.advance((text.tokens.size(0), text.tokens.size(1)), text.keep)
        return self.dropout(self.body(self.words(text.tokens), text.keep, state))

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.hidden_states(text, state))


class Bridge(nn.Module):
    """The initial hidden state of a decoder, tanh(Ws), for each layer and each part of its cell."""

    def __init__(self, config: Config, input_width: int):
        super().__init__()
        self.shape = (config.layers, 2 if config.cell == "lstm" else 1, config.width)
        self.start: nn.Linear = nn.Linear(input_width, math.prod(self.shape))

    def forward(self, summary: Tensor) -> Tensor:
        return self.start(summary).tanh().unflatten(-1, self.shape)  # (B, layers, parts, W)


class RNNGenerator(nn.Module):
    """A model that generates with an `RNNDecoder`: a subclass encodes its input in `start`."""

    decoder: RNNDecoder

    @property
    def head(self) -> LMHead:
        return self.decoder.head

    def hidden_states(self, text: Text, state: State) -> Tensor:
        return self.decoder.hidden_states(text, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.decoder.step(text, state)


class RNNTranslator(RNNGenerator):
    """A recurrent encoder-decoder."""

    def __init__(self, config: Config):
        super().__init__()
        self.width: int = config.width
        self.encoder: RNNEncoder = RNNEncoder(config)
        self.bridge: Bridge | None = Bridge(config, config.width // 2) if config.bidirectional else None
        words = self.encoder.words if config.tie_embeddings else None
        self.decoder: RNNDecoder = RNNDecoder(config, cross_mechanism(config.mechanism, config.width), words)

    def start(self, batch: Batch) -> tuple[State, Text]:
        text, layers = batch.source, self.encoder.layers
        assert isinstance(text, Text), "a translation model takes text"
        if self.bridge is None:
            encoder_state = State()
            memory = layers(self.encoder.words(text.tokens), text.keep, encoder_state)
            hidden = layers.get_hidden_state(encoder_state)
        else:
            memory = self.encoder(batch)
            # at the first token, the backward direction has processed the whole source
            hidden = self.bridge(FirstTokenPool()(memory[..., self.width // 2 :], text.keep))
        return self.decoder.start_from_memory(memory, text.keep, hidden)


def cross_mechanism(name: str, width: int) -> Mechanism:
    """The mechanism with this name; raises ModelError unless it supports cross-attention without positions."""
    entry = get_mechanism(name)
    if not {"cross_attention", "permutation"} <= entry.supports:
        names = [other.name for other in MECHANISMS if {"cross_attention", "permutation"} <= other.supports]
        raise ModelError(f"{name} does not support cross-attention; choose one of {', '.join(names)}.")
    return entry.make(width, 1, 512)


FAMILY = Family(
    name="rnn",
    description="recurrent encoder-decoder: fixed vector (Sutskever), or attention before (Bahdanau) or after the step (Luong)",
    config_class=Config,
    build=RNNTranslator,
    capabilities=lambda config: SEQUENCE_TO_SEQUENCE,
)
LM_FAMILY = Family(
    name="rnn_lm",
    description="recurrent language model: LSTM or GRU, left to right",
    config_class=Config,
    build=RNNLanguageModel,
    capabilities=lambda config: LANGUAGE_MODEL,
    short_names=("rnn",),
)
ENCODER_FAMILY = Family(
    name="rnn_encoder",
    description="recurrent encoder: LSTM or GRU, bidirectional",
    config_class=Config,
    build=RNNEncoder,
    capabilities=lambda config: RECURRENT_ENCODER,
    short_names=("rnn",),
    heads=reading.HEADS,
)
