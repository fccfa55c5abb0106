"""`fast`: any model in the form that answers soonest, under the interface that it had.

    model = fast(load("gpt2"))
    model.choice                                  # int8: ...
    rows = generate(model, batch, stop=50256, limit=64)

It has its own copy of all that it needs, so drop the plain model to save its memory.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import Layout
from saccade.cores import cores
from saccade.data import Batch, Text
from saccade.decoding.offers import Best, ranked
from saccade.engine.choice import COMPILED, Choice, choice
from saccade.engine.exchange import Exchange
from saccade.engine.memory import Memory
from saccade.engine.quantise import Tiles
from saccade.errors import UsageError
from saccade.heap import give_back
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.model import Model
from saccade.parts.heads import WordHead
from saccade.parts.stack import Stack
from saccade.parts.state import State

LONG = 512  # tokens of all rows together: reading so many takes some megabytes for a moment


class Fast(Model):
    """A model that answers and no longer learns; `choice` says what it was made of, and why."""

    def __init__(self, plain: Model, body: nn.Module, head: nn.Module | None, choice: Choice):
        super().__init__(plain.family, plain.config, body, head, plain.kind, labels=plain.labels, many=plain.many)
        self.choice = choice
        self.tokenizer, self.pooling, self.report = plain.tokenizer, plain.pooling, plain.report
        self.eval()

    def start(self, batch: Batch) -> tuple[State, Text]:
        state, text = super().start(batch)
        if isinstance(batch.source, Text):
            _after(batch.source)
        return state if self.choice.precision == COMPILED else Memory.of(state), text

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        return super().forward(batch)

    @torch.no_grad()
    def step(self, text: Text, state: State) -> Tensor:
        body: Any = self.body
        if text.tokens.size(1) > 1 or not self.capabilities.generates_text:
            return body.step(text, state)
        if text.keep is None or not isinstance(body.head.score, Tiles):
            return body.step(text, state)
        live = text.keep[:, 0]  # rows that have ended are padding, and nobody asks for their scores
        x = body.think(text, state)
        return x.new_zeros(*x.shape[:2], body.head.score.out_features).index_put_((live,), body.head(x[live]))

    @torch.no_grad()
    def best(self, text: Text, state: State, count: int) -> Best:
        """One new token a row: the best few of what follows it, without the scores of all words where our operator makes them."""
        if not self.ranks:
            return ranked(self.step(text, state)[:, -1], count)
        head: Any = self.body.head
        x = head.between(self._thought(text, state))[:, -1]
        if text.keep is None:
            return head.score.weights.best(x, count)
        live = text.keep[:, 0]  # nobody asks for those of rows that have ended
        found = head.score.weights.best(x[live], count)
        values, tokens, chances = (some.new_zeros(len(x), *some.shape[1:]).index_put_((live,), some) for some in found)
        return values, tokens, chances

    @property
    def ranks(self) -> bool:
        """Whether our operator finds the best words without the scores of all; a painter's step masks words, so it needs them."""
        head = self.autoregressive.head if self.capabilities.generates_text else None
        return type(head) is WordHead and isinstance(head.score, Tiles)

    def _thought(self, text: Text, state: State) -> Tensor:
        """What the body thinks of new tokens, (B, T, W); a source whose keys all beams share is not repeated for each."""
        body: Any = self.body
        if not isinstance(state, Memory) or type(body).think is not EncoderDecoder.think:
            return body.think(text, state)
        shared = state.at("0.across").group("key") == state.group("memory")
        memory = state.few("memory") if shared and getattr(body.decoder, "hurries", False) else state.get("memory")
        words = (body.target_words or body.words)(text.tokens)
        return body.decoder(words, Layout(text.keep), state, memory=memory, memory_keep=state.get("memory_keep"))

    @torch.no_grad()
    def last(self, text: Text, state: State) -> Tensor:
        """The scores (B, V) after the last real token of each row: of a prompt, no other is needed."""
        scores = super().last(text, state)
        self._forget(state)
        _after(text)
        return scores

    def _forget(self, state: State) -> None:
        """Where all layers have made their keys of a source, nobody reads it again: of its vectors the shape alone is kept."""
        body: Any = self.body
        if not isinstance(state, Memory) or type(body).think is not EncoderDecoder.think:
            return
        if all(state.at(f"{number}.across").few("key") is not None for number in range(len(body.decoder.layers))):
            memory = state.few("memory")
            assert memory is not None, "its keys were made of it"
            nothing = memory.new_full((1,), torch.nan)  # whoever read it would see
            state.put("memory", nothing.expand(memory.shape), axis=1)

    def train(self, mode: bool = True) -> "Fast":
        if mode:
            raise UsageError(
                "A fast model no longer learns; train the model that it was made of, and make it fast again."
            )
        return super().train(False)

    def save(self, directory: str | Path) -> Path:
        raise UsageError(f"A fast model is not written down; save the model it was made of to {directory}.")


def fast(model: Model, precision: str = "auto") -> Fast:
    """The model in its fast form: the same interface, the same answers up to the rounding of `precision`.

    "auto" is what `choice` says; "int8", "float16" and "float32" force one. On another device than the CPU it is the plain
    model, compiled.
    """
    chosen = choice(model, precision)
    body, head = _copied(model)
    if chosen.precision == COMPILED:
        for part in body.modules():
            if isinstance(part, Stack):
                part.compile(dynamic=True)
        return Fast(model, body, head, chosen)
    torch.set_num_threads(min(torch.get_num_threads(), cores()))  # more would wait for each other
    parts = nn.ModuleDict({"body": body} if head is None else {"body": body, "head": head}).float()
    with torch.no_grad():
        made: Any = Exchange(chosen.precision).whole(parts)
        _own(made)
    return Fast(model, made["body"], None if head is None else made["head"], chosen)


def _copied(model: Model) -> tuple[nn.Module, nn.Module | None]:
    """Body and head as modules of their own, on the same numbers: exchanging parts then leaves the model as it was."""
    if isinstance(model, Fast):
        raise UsageError(f"This model is fast already ({model.choice}); make it of the plain one again.")
    numbers = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    numbers |= {id(buffer): buffer.detach() for buffer in model.buffers()}
    return deepcopy((model.body, model.head), numbers)


def _own(made: nn.Module) -> None:
    """Let go of the plain model: a norm that lies in its file would keep the whole file in memory."""
    for tensor in [*made.parameters(), *made.buffers()]:
        tensor.data = tensor.data.clone()
    give_back()


def _after(text: Text) -> None:
    """A long text has been read: what that took is not needed for one token at a time."""
    if text.tokens.is_cpu and text.tokens.numel() >= LONG:
        give_back()
