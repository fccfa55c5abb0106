"""From plain parts to fast ones: each part of a model that has a fast form is exchanged for it, and nothing else is."""

from dataclasses import dataclass, field

import torch
from torch import nn

from saccade.attention import Mechanism
from saccade.engine.layers import FastLayer, FastParallelLayer
from saccade.engine.native import ops
from saccade.engine.packed_linear import (
    Int8Embedding,
    Int8TiledLinear,
    LinearPacker,
    PackedLinear,
    SharedWeightLinear,
    choose_packer,
)
from saccade.engine.stack import FastStack
from saccade.engine.sublayers import NORMS, fast_norm, fast_sublayer, has_fast_form
from saccade.models.encoder_decoder import BiasedLMHead
from saccade.parts.dropout import Dropout
from saccade.parts.heads import LMHead
from saccade.parts.layer import Layer, ParallelLayer, Sublayer
from saccade.parts.stack import Stack

MIN_OUTPUTS = 8  # outputs; a smaller layer, such as a head of two labels, gains nothing and would lose precision


@dataclass
class ModuleConverter:
    """The forms of one precision, and what was already exchanged: a part that two share stays one."""

    precision: str
    pack: LinearPacker = field(init=False)
    tied_weights: set[int] = field(default_factory=set)  # tables that also serve as weights, by identity
    packed_embeddings: dict[int, ops.Int8Tiles] = field(default_factory=dict)  # those of them that were packed
    converted_modules: dict[int, nn.Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pack = choose_packer(self.precision)

    def convert_model(self, model: nn.Module) -> nn.Module:
        """The model with its parts exchanged."""
        self.tied_weights = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
        model = self.convert(model)
        for part in list(model.modules()):
            for name, child in part.named_children():
                if type(child) is nn.Embedding and id(child.weight) in self.packed_embeddings:
                    setattr(part, name, Int8Embedding(self.packed_embeddings[id(child.weight)]))
        return model

    def convert(self, module: nn.Module) -> nn.Module:
        """The fast form of a part, or the part itself with its own parts exchanged."""
        if id(module) not in self.converted_modules:
            self.converted_modules[id(module)] = self._convert_new(module)
        return self.converted_modules[id(module)]

    def _convert_new(self, module: nn.Module) -> nn.Module:
        if isinstance(module, Mechanism):
            return module  # its matrices are small, and some are read as they are
        if type(module) is nn.Linear:
            return self.convert_linear(module) if module.out_features >= MIN_OUTPUTS else module
        if type(module) in NORMS:
            return fast_norm(module)
        if type(module) in (nn.Dropout, Dropout):
            return nn.Identity()
        if type(module) is BiasedLMHead:
            return self.convert_head(module)
        if type(module) is Stack and all(_has_fast_layer(layer) for layer in module.layers):
            return self.convert_stack(module)
        for name, child in list(module.named_children()):
            setattr(module, name, self.convert(child))
        return module

    def convert_linear(self, original: nn.Linear) -> PackedLinear:
        """A layer packed; a float32 table that words are also read from is used where it lies."""
        shared = self.precision == "float32" and id(original.weight) in self.tied_weights
        packed = (SharedWeightLinear if shared else self.pack)(original.weight, original.bias)
        if isinstance(packed, Int8TiledLinear) and id(original.weight) in self.tied_weights:
            self.packed_embeddings[id(original.weight)] = packed.weights
        return packed

    def convert_head(self, original: BiasedLMHead) -> LMHead:
        """A head whose shift is the bias of its product, so that the scores of all words are not walked through once more."""
        score, shift = original.score, original.shift
        score.bias = nn.Parameter(shift if score.bias is None else shift + score.bias, requires_grad=False)
        with torch.device("meta"):  # its own layer is not needed
            head = LMHead(score.in_features, score.out_features, between=original.between)
        head.between, head.score = self.convert(original.between), self.convert(score)  # type: ignore[assignment]
        return head

    def convert_stack(self, original: Stack) -> FastStack:
        """A stack with its layers and its two ends exchanged."""
        original.enter, original.leave = (self.convert(end) for end in (original.enter, original.leave))
        return FastStack(original, [self.convert_layer(layer) for layer in original.layers])  # type: ignore[arg-type]

    def convert_layer(self, original: Layer) -> FastLayer:
        """A layer with those of its sublayers exchanged that have a fast form."""
        if isinstance(original, ParallelLayer):
            seen, thought = (fast_sublayer(part, self.pack) for part in (original.attention, original.feedforward))
            return FastParallelLayer(seen, thought, fast_norm(original.norm))

        def fast(sublayer: Sublayer, *, across: bool = False) -> nn.Module:
            made = fast_sublayer(sublayer, self.pack, cross=across)
            return self.convert(made) if made is sublayer else made

        across = None if original.across is None else fast(original.across, across=True)
        return FastLayer(fast(original.attention), fast(original.feedforward), across)  # type: ignore[arg-type]


def _has_fast_layer(layer: nn.Module) -> bool:
    """Whether a layer has a fast form; one whose branches stand side by side has it where both branches have."""
    if type(layer) is ParallelLayer:
        return has_fast_form(layer.attention) and has_fast_form(layer.feedforward)
    return type(layer) is Layer
