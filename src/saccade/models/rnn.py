"""Recurrent networks: a language model, a reader, and three encoder-decoders that differ in how they remember the source.

Sutskever et al. 2014 (arXiv 1409.3215) hand over one vector. Bahdanau et al. 2014 (arXiv 1409.0473) look at all states of
the source before each step, with the state of the step before as the query. Luong et al. 2015 (arXiv 1508.04025) look after
the step, with its own state, and may feed what came of it into the next (`feeding`).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.attention import FULL, MECHANISMS, Additive, Mechanism, Sight, Spatial, mechanism
from saccade.attention.table import nearest
from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models import reading
from saccade.models.capabilities import Capabilities, Generates, Modality
from saccade.models.family import Family
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.heads import First, WordHead
from saccade.parts.recurrent import Recurrent
from saccade.parts.state import State


@dataclass(frozen=True)
class Config:
    vocab: int = 8000
    width: int = 256  # of words and of states; two directions have half of it each
    layers: int = 1
    cell: str = "lstm"  # or gru
    both: bool = True  # whoever reads, reads in both directions
    decoder: str = "bahdanau"  # or luong, sutskever
    mechanism: str = "additive"  # any of MECHANISMS that looks across, such as bilinear, dot, scaled_dot
    feeding: bool = False  # luong: what was seen at one step goes into the next
    tied: bool = False  # one table of words for source, target and output
    dropout: float = 0.1
    begin: int = 1  # the token that a translation begins with


SEQUENCE_TO_SEQUENCE = Capabilities(
    Modality.TEXT,
    Generates.TARGET,
    sides={"encoder": "encoder", "decoder": "decoder"},
    layers=("encoder.layers.layers", "decoder.body.layers.layers"),
    embeddings=("encoder.words", "decoder.words"),
)
LANGUAGE_MODEL = Capabilities(Modality.TEXT, Generates.CONTINUATION, layers=("layers.layers",), embeddings=("words",))
RECURRENT_ENCODER = Capabilities(Modality.TEXT, layers=("layers.layers",), embeddings=("words",))


class Deep(nn.Module):
    """Recurrent layers on top of each other."""

    def __init__(self, config: Config, enter: int, *, both: bool = False):
        super().__init__()
        if both and config.width % 2:
            raise ModelError(f"Two directions share the width, so it is even; got {config.width}.")
        widths = [enter] + [config.width] * (config.layers - 1)
        units = config.width // 2 if both else config.width
        self.layers = nn.ModuleList(Recurrent(width, units, config.cell, both=both) for width in widths)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, keep: Tensor | None = None, state: State | None = None) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(self.dropout(x), keep, None if state is None else state.at(f"{number}"))
        return x

    def hidden(self, state: State) -> Tensor:
        """All that the layers remember, (B, layers, parts, W)."""
        slots = [[state.at(f"{n}").get(name) for name in "hc"] for n in range(len(self.layers))]
        return torch.stack([torch.stack([x for x in row if x is not None], dim=1) for row in slots], dim=1)

    def resume(self, hidden: Tensor, state: State) -> None:
        """Let the layers go on from there."""
        for number, row in enumerate(hidden.unbind(1)):
            for name, part in zip("hc", row.unbind(1), strict=False):
                state.at(f"{number}").put(name, part)


class Reader(nn.Module):
    """A vector for each word, from what stands before it and, in both directions, after it."""

    def __init__(self, config: Config):
        super().__init__()
        self.width = config.width
        self.words = Words(config.vocab, config.width, scaled=True)
        self.layers = Deep(config, config.width, both=config.both)

    def forward(self, batch: Batch) -> Tensor:
        assert isinstance(batch.source, Text), "a recurrent reader reads text"
        return self.layers(self.words(batch.source.tokens), batch.source.keep)


class Language(nn.Module):
    """One vector for the whole of the text so far, and from it the next word."""

    def __init__(self, config: Config):
        super().__init__()
        self.width = config.width
        self.words = Words(config.vocab, config.width, scaled=True)
        self.layers = Deep(config, config.width)
        tied = self.words.vectors if config.tied else None
        self.head = WordHead(config.width, config.vocab, tied=tied, bias=True)

    def start(self, batch: Batch) -> tuple[State, Text]:
        assert isinstance(batch.source, Text), "a recurrent language model continues a text"
        return State(), batch.source

    def think(self, text: Text, state: State) -> Tensor:
        state.advance((text.tokens.size(0), text.tokens.size(1)), text.keep)
        return self.layers(self.words(text.tokens), text.keep, state.at("layers"))

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.think(text, state))


class Across(nn.Module):
    """One look at the memory that a state holds, (B, K, W) or a grid of it (B, rows, columns, W)."""

    def __init__(self, how: Mechanism):
        super().__init__()
        self.mechanism = how
        # the additive score has a matrix for its keys: outside of it they are moved once per text, not once per step
        inside = how.mechanism if isinstance(how, Spatial) else how
        self.key: nn.Module = nn.Identity()
        if isinstance(inside, Additive):
            self.key, inside.key = inside.key, nn.Identity()

    def forward(self, q: Tensor, keep: Tensor | None, state: State) -> Tensor:
        """q (B, T, W) to what it sees, (B, T, W); `keep` says which of the queries are real."""
        memory = state.get("memory")
        assert memory is not None, "`begin` puts the memory there"
        sight = Sight(FULL, keep=state.get("memory_keep"), real=keep, cross=True)
        keys = state.once("keys", lambda: self.key(memory), axis=1)
        return self.mechanism(q[:, None], keys[:, None], memory[:, None], sight)[:, 0]


class Sutskever(nn.Module):
    """The state is all there is: words in, states out."""

    def __init__(self, config: Config, across: Across):
        super().__init__()
        self.layers = Deep(config, config.width)

    def forward(self, x: Tensor, keep: Tensor | None, state: State) -> Tensor:
        return self.layers(x, keep, state.at("layers"))


class Bahdanau(nn.Module):
    """Look with the state before, step with the word and what was seen; both are there when the next word is scored."""

    def __init__(self, config: Config, across: Across):
        super().__init__()
        self.across = across
        self.layers = Deep(config, 2 * config.width)
        self.join = nn.Linear(3 * config.width, config.width)

    def forward(self, x: Tensor, keep: Tensor | None, state: State) -> Tensor:
        out = []
        for t, word in enumerate(x.split(1, dim=1)):
            before = self.layers.hidden(state.at("layers"))[:, -1, :1]  # (B, 1, W): h of the top layer
            real = None if keep is None else keep[:, t : t + 1]
            seen = self.across(before, real, state)
            now = self.layers(torch.cat([word, seen], dim=-1), real, state.at("layers"))
            out.append(torch.cat([now, seen, word], dim=-1))
        return self.join(torch.cat(out, dim=1)).tanh()


class Luong(nn.Module):
    """Step, look with the new state, join the two; with `feeding` the joined vector is part of the next input."""

    def __init__(self, config: Config, across: Across):
        super().__init__()
        self.across, self.feeding = across, config.feeding
        self.layers = Deep(config, 2 * config.width if config.feeding else config.width)
        self.join = nn.Linear(2 * config.width, config.width, bias=False)

    def forward(self, x: Tensor, keep: Tensor | None, state: State) -> Tensor:
        if not self.feeding:
            return self._see(x, keep, state)
        fed = state.once("fed", lambda: torch.zeros_like(x[:, :1]), axis=None)
        out = []
        for t, word in enumerate(x.split(1, dim=1)):
            real = None if keep is None else keep[:, t : t + 1]
            now = self._see(torch.cat([word, fed], dim=-1), real, state)
            fed = now if real is None else torch.where(real[..., None], now, fed)
            out.append(now)
        state.put("fed", fed)
        return torch.cat(out, dim=1)

    def _see(self, x: Tensor, keep: Tensor | None, state: State) -> Tensor:
        now = self.layers(x, keep, state.at("layers"))
        return self.join(torch.cat([now, self.across(now, keep, state)], dim=-1)).tanh()


DECODERS = {"sutskever": Sutskever, "bahdanau": Bahdanau, "luong": Luong}


class Decoder(nn.Module):
    """Words out of a memory: one of DECODERS between a table of words and a head."""

    def __init__(self, config: Config, how: Mechanism, words: Words | None = None):
        super().__init__()
        if config.decoder not in DECODERS:
            raise ModelError(f"Unknown decoder {config.decoder!r}; {nearest(config.decoder, list(DECODERS))}")
        self.words = words or Words(config.vocab, config.width, scaled=True)
        self.body = DECODERS[config.decoder](config, Across(how))
        tied = self.words.vectors if config.tied else None
        self.head = WordHead(config.width, config.vocab, tied=tied, bias=True)
        self.dropout, self.first = Dropout(config.dropout), config.begin

    def begin(self, memory: Tensor, keep: Tensor | None, hidden: Tensor) -> tuple[State, Text]:
        """From a memory (B, ..., W) and the first hidden state (B, layers, parts, W)."""
        state = State()
        state.put("memory", memory, axis=1)
        real = memory.new_ones(memory.shape[:-1], dtype=torch.bool) if keep is None else keep
        state.put("memory_keep", real, axis=1)  # always there, so that states can be joined
        self.body.layers.resume(hidden, state.at("layers"))
        return state, Text(torch.full((memory.size(0), 1), self.first, device=memory.device))

    def think(self, text: Text, state: State) -> Tensor:
        state.advance((text.tokens.size(0), text.tokens.size(1)), text.keep)
        return self.dropout(self.body(self.words(text.tokens), text.keep, state))

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.think(text, state))


class Bridge(nn.Module):
    """The first hidden state of a decoder from one vector, tanh(Ws), for each layer and each part of its cell."""

    def __init__(self, config: Config, enter: int):
        super().__init__()
        self.shape = (config.layers, 2 if config.cell == "lstm" else 1, config.width)
        self.start = nn.Linear(enter, math.prod(self.shape))

    def forward(self, summary: Tensor) -> Tensor:
        return self.start(summary).tanh().unflatten(-1, self.shape)  # (B, layers, parts, W)


class Translator(nn.Module):
    """Read the source, hand its states over, write the target."""

    def __init__(self, config: Config):
        super().__init__()
        self.width = config.width
        self.encoder = Reader(config)
        self.bridge = Bridge(config, config.width // 2) if config.both else None
        words = self.encoder.words if config.tied else None
        self.decoder = Decoder(config, looking(config.mechanism, config.width), words)

    def start(self, batch: Batch) -> tuple[State, Text]:
        text, layers = batch.source, self.encoder.layers
        assert isinstance(text, Text), "a translator reads text"
        if self.bridge is None:
            reading = State()
            memory = layers(self.encoder.words(text.tokens), text.keep, reading)
            hidden = layers.hidden(reading)
        else:
            memory = self.encoder(batch)
            # the way back ends at the first word, and has then read the whole source
            hidden = self.bridge(First()(memory[..., self.width // 2 :], text.keep))
        return self.decoder.begin(memory, text.keep, hidden)

    @property
    def head(self) -> WordHead:
        return self.decoder.head

    def think(self, text: Text, state: State) -> Tensor:
        return self.decoder.think(text, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.decoder.step(text, state)


def looking(name: str, width: int) -> Mechanism:
    """The mechanism of that name, if it can look from one sequence to another without asking for places."""
    entry = mechanism(name)
    if not {"cross", "permutation"} <= entry.honours:
        able = [other.name for other in MECHANISMS if {"cross", "permutation"} <= other.honours]
        raise ModelError(f"{name} cannot look across from a decoder to its source; choose one of {', '.join(able)}.")
    return entry.make(width, 1, 512)


FAMILY = Family(
    name="rnn",
    said="recurrent encoder-decoder: one vector (Sutskever), or attention before (Bahdanau) or after the step (Luong)",
    config=Config,
    build=Translator,
    capabilities=lambda config: SEQUENCE_TO_SEQUENCE,
)
LANGUAGE = Family(
    name="rnn_language",
    said="recurrent language model: LSTM or GRU, left to right",
    config=Config,
    build=Language,
    capabilities=lambda config: LANGUAGE_MODEL,
    short_names=("rnn",),
)
READER = Family(
    name="rnn_reader",
    said="recurrent reader: LSTM or GRU, in both directions",
    config=Config,
    build=Reader,
    capabilities=lambda config: RECURRENT_ENCODER,
    short_names=("rnn",),
    heads=reading.HEADS,
)
