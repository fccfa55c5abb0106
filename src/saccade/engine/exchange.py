"""From plain parts to fast ones: each part of a model that has a fast form is exchanged for it, and nothing else is."""

from dataclasses import dataclass, field

import torch
from torch import nn

from saccade.attention import Mechanism
from saccade.engine import native
from saccade.engine.layers import FastLayer, FastParallelLayer
from saccade.engine.quantise import Pack, Packed, Shared, Table, Tiles, form
from saccade.engine.stack import FastStack
from saccade.engine.sublayers import NORMS, fast_norm, fast_sublayer, has_fast_form
from saccade.models.encoder_decoder import ShiftedWordHead
from saccade.parts.dropout import Dropout
from saccade.parts.heads import WordHead
from saccade.parts.layer import Layer, ParallelLayer, Sublayer
from saccade.parts.stack import Stack

LEAST = 8  # outputs; a smaller layer, such as a head of two labels, gains nothing and would lose precision


@dataclass
class Exchange:
    """The forms of one precision, and what was already exchanged: a part that two share stays one."""

    precision: str
    pack: Pack = field(init=False)
    tied: set[int] = field(default_factory=set)  # tables that also serve as weights, by identity
    tables: dict[int, native.Packed] = field(default_factory=dict)  # those of them that were packed
    done: dict[int, nn.Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pack = form(self.precision)

    def whole(self, model: nn.Module) -> nn.Module:
        """The model with its parts exchanged."""
        self.tied = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
        model = self.part(model)
        for part in list(model.modules()):
            for name, child in part.named_children():
                if type(child) is nn.Embedding and id(child.weight) in self.tables:
                    setattr(part, name, Table(self.tables[id(child.weight)]))
        return model

    def part(self, part: nn.Module) -> nn.Module:
        """The fast form of a part, or the part itself with its own parts exchanged."""
        if id(part) not in self.done:
            self.done[id(part)] = self._made(part)
        return self.done[id(part)]

    def _made(self, part: nn.Module) -> nn.Module:
        if isinstance(part, Mechanism):
            return part  # its matrices are small, and some are read as they are
        if type(part) is nn.Linear:
            return self.linear(part) if part.out_features >= LEAST else part
        if type(part) in NORMS:
            return fast_norm(part)
        if type(part) in (nn.Dropout, Dropout):
            return nn.Identity()
        if type(part) is ShiftedWordHead:
            return self.head(part)
        if type(part) is Stack and all(_usual(layer) for layer in part.layers):
            return self.stack(part)
        for name, child in list(part.named_children()):
            setattr(part, name, self.part(child))
        return part

    def linear(self, plain: nn.Linear) -> Packed:
        """A layer packed; a float32 table that words are also read from is used where it lies."""
        shared = self.precision == "float32" and id(plain.weight) in self.tied
        packed = (Shared if shared else self.pack)(plain.weight, plain.bias)
        if isinstance(packed, Tiles) and id(plain.weight) in self.tied:
            self.tables[id(plain.weight)] = packed.weights
        return packed

    def head(self, plain: ShiftedWordHead) -> WordHead:
        """A head whose shift is the bias of its product, so that the scores of all words are not walked through once more."""
        score, shift = plain.score, plain.shift
        score.bias = nn.Parameter(shift if score.bias is None else shift + score.bias, requires_grad=False)
        with torch.device("meta"):  # its own layer is not needed
            head = WordHead(score.in_features, score.out_features, between=plain.between)
        head.between, head.score = self.part(plain.between), self.part(score)  # type: ignore[assignment]
        return head

    def stack(self, plain: Stack) -> FastStack:
        """A stack with its layers and its two ends exchanged."""
        plain.enter, plain.leave = (self.part(end) for end in (plain.enter, plain.leave))
        return FastStack(plain, [self.layer(layer) for layer in plain.layers])  # type: ignore[arg-type]

    def layer(self, plain: Layer) -> FastLayer:
        """A layer with those of its sublayers exchanged that have a fast form."""
        if isinstance(plain, ParallelLayer):
            seen, thought = (fast_sublayer(part, self.pack) for part in (plain.attention, plain.feedforward))
            return FastParallelLayer(seen, thought, fast_norm(plain.norm))

        def fast(sublayer: Sublayer, *, across: bool = False) -> nn.Module:
            made = fast_sublayer(sublayer, self.pack, across=across)
            return self.part(made) if made is sublayer else made

        across = None if plain.across is None else fast(plain.across, across=True)
        return FastLayer(fast(plain.attention), fast(plain.feedforward), across)  # type: ignore[arg-type]


def _usual(layer: nn.Module) -> bool:
    """Whether a layer has a fast form; one whose branches stand side by side has it where both branches have."""
    if type(layer) is ParallelLayer:
        return has_fast_form(layer.attention) and has_fast_form(layer.feedforward)
    return type(layer) is Layer
