"""A decoder-only language model: words, one stack that sees the past, and a score for each word that may come next."""

from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.parts.embed import Words
from saccade.parts.heads import WordHead
from saccade.parts.stack import Stack
from saccade.parts.state import State


class DecoderOnly(nn.Module):
    """Words in, scores of the next word out."""

    def __init__(self, words: Words, stack: Stack, *, tied: bool):
        super().__init__()
        vocab, self.width = words.vectors.weight.shape
        self.words, self.stack = words, stack
        self.head = WordHead(self.width, vocab, tied=words.vectors if tied else None)

    def start(self, batch: Batch) -> tuple[State, Text]:
        assert isinstance(batch.source, Text), "a decoder continues a text"
        return State(), batch.source

    def think(self, text: Text, state: State) -> Tensor:
        return self.stack(self.words(text.tokens), text.layout, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.think(text, state))
