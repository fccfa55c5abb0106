"""A model of two stacks: one reads the source once, the other writes the target and looks across at what was read."""

import torch
from torch import Tensor, nn

from saccade.attention import Layout
from saccade.data import Batch, Text
from saccade.parts.embed import Words
from saccade.parts.heads import WordHead
from saccade.parts.stack import Stack
from saccade.parts.state import State


class EncoderDecoder(nn.Module):
    """A writer whose state holds the encoded source, so requests join, leave and are reordered with all they need.

    One table of words serves both sides, unless the target has `target_words` of its own.
    """

    def __init__(
        self,
        words: Words,
        encoder: Stack,
        decoder: Stack,
        head: WordHead,
        *,
        begin: int,
        target_words: Words | None = None,
    ):
        super().__init__()
        self.width, self.begin = words.vectors.embedding_dim, begin
        self.words = words
        self.target_words = target_words
        self.encoder, self.decoder, self.head = encoder, decoder, head

    def start(self, batch: Batch) -> tuple[State, Text]:
        """Read the source; the first step takes the token that begins every target."""
        source = batch.source
        assert isinstance(source, Text), f"{type(self).__name__} reads text"
        state = State()
        state.put("memory", self.encoder(self.words(source.tokens), Layout(source.keep)), axis=1)
        # even where all is real: requests of other lengths may join later
        state.put("memory_keep", source.real, axis=1)
        return state, Text(torch.full_like(source.tokens[:, :1], self.begin))

    def think(self, text: Text, state: State) -> Tensor:
        words = self.target_words or self.words
        memory, keep = state.get("memory"), state.get("memory_keep")
        return self.decoder(words(text.tokens), Layout(text.keep), state, memory=memory, memory_keep=keep)

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.think(text, state))


class ShiftedWordHead(WordHead):
    """Scores by the words' own vectors, and a shift for each word that is stored with a model but never learned."""

    shift: Tensor

    def __init__(self, width: int, vocab: int, *, tied: nn.Embedding):
        super().__init__(width, vocab, tied=tied)
        self.register_buffer("shift", torch.zeros(vocab))

    @property
    def added(self) -> Tensor:
        return self.shift if self.score.bias is None else self.shift + self.score.bias

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return super().forward(x, keep) + self.shift
