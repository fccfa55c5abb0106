"""Decoder-only language model: token embedding, one causal stack, and a language model head."""

from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.heads import LMHead
from saccade.parts.stack import Stack
from saccade.parts.state import State


class DecoderOnly(nn.Module):
    """A causal language model: token ids in, logits of the next token out."""

    width: int
    words: TokenEmbedding
    stack: Stack

    def __init__(self, words: TokenEmbedding, stack: Stack, *, tie_embeddings: bool):
        super().__init__()
        vocab, self.width = words.vectors.weight.shape
        self.words, self.stack = words, stack
        self.head: LMHead = LMHead(self.width, vocab, tied_embedding=words.vectors if tie_embeddings else None)

    def start(self, batch: Batch) -> tuple[State, Text]:
        assert isinstance(batch.source, Text), "a decoder continues a text"
        return State(), batch.source

    def hidden_states(self, text: Text, state: State) -> Tensor:
        return self.stack(self.words(text.tokens), text.layout, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.hidden_states(text, state))
