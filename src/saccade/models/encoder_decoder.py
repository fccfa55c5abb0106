"""Encoder-decoder model: the encoder reads the source once, the decoder generates the target with cross-attention to it."""

import torch
from torch import Tensor, nn

from saccade.attention import Layout
from saccade.data import Batch, Text
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.heads import LMHead
from saccade.parts.stack import Stack
from saccade.parts.state import State


class EncoderDecoder(nn.Module):
    """An encoder-decoder whose decoding state holds the encoded source, so rows can be added, dropped and reordered.

    Source and target share one token embedding, unless `target_words` is given.
    """

    width: int
    decoder_start_id: int
    encoder: Stack
    decoder: Stack
    head: LMHead

    def __init__(
        self,
        words: TokenEmbedding,
        encoder: Stack,
        decoder: Stack,
        head: LMHead,
        *,
        decoder_start_id: int,
        target_words: TokenEmbedding | None = None,
    ):
        super().__init__()
        self.width, self.decoder_start_id = words.vectors.embedding_dim, decoder_start_id
        self.words = words
        self.target_words = target_words
        self.encoder, self.decoder, self.head = encoder, decoder, head

    def start(self, batch: Batch) -> tuple[State, Text]:
        """Encode the source; returns the state and the decoder start token, the input of the first step."""
        source = batch.source
        assert isinstance(source, Text), f"{type(self).__name__} takes text"
        state = State()
        state.put("memory", self.encoder(self.words(source.tokens), Layout(source.keep)), axis=1)
        # stored even without padding, since sources of other lengths may join the batch later
        state.put("memory_keep", source.keep_mask, axis=1)
        return state, Text(torch.full_like(source.tokens[:, :1], self.decoder_start_id))

    def hidden_states(self, text: Text, state: State) -> Tensor:
        words = self.target_words or self.words
        memory, keep = state.get("memory"), state.get("memory_keep")
        return self.decoder(words(text.tokens), Layout(text.keep), state, memory=memory, memory_keep=keep)

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.hidden_states(text, state))


class BiasedLMHead(LMHead):
    """A language model head tied to the token embedding, plus a stored bias per token (`shift`) that is never trained."""

    shift: Tensor

    def __init__(self, width: int, vocab: int, *, tied_embedding: nn.Embedding):
        super().__init__(width, vocab, tied_embedding=tied_embedding)
        self.register_buffer("shift", torch.zeros(vocab))

    @property
    def output_bias(self) -> Tensor:
        return self.shift if self.score.bias is None else self.shift + self.score.bias

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return super().forward(x, keep) + self.shift
