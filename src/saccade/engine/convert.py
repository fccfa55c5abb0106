"""Conversion of a model for inference: each module that has an optimized form is replaced by it, all others are kept."""

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

from saccade.attention import Mechanism
from saccade.engine.kernels.compile_encoder import compile_encoder, encoder_unsupported_reason
from saccade.engine.layers import FastLayer, FastParallelLayer
from saccade.engine.native import ops
from saccade.engine.packed_linear import (
    Int8Embedding,
    Int8TiledLinear,
    LinearPacker,
    PackedLinear,
    PanelLinear,
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

MIN_OUTPUTS = (
    8  # a linear layer with fewer outputs, such as a head of two labels, would lose precision and gain no speed
)


@dataclass
class ModuleConverter:
    """Converts modules to one precision. A module that occurs twice, such as a tied embedding, is converted once."""

    precision: str
    pack: LinearPacker = field(init=False)
    tied_weights: set[int] = field(
        default_factory=set
    )  # ids of embedding tables that may also be the weight of a linear layer
    packed_embeddings: dict[int, ops.Int8Tiles] = field(default_factory=dict)  # tied tables that were packed, by id
    converted_modules: dict[int, nn.Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pack = choose_packer(self.precision)

    def convert_model(self, model: nn.Module) -> nn.Module:
        """Replace the modules of a model, in place."""
        self.tied_weights = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
        model = self.convert(model)
        for part in list(model.modules()):
            for name, child in part.named_children():
                if type(child) is nn.Embedding and id(child.weight) in self.packed_embeddings:
                    setattr(part, name, Int8Embedding(self.packed_embeddings[id(child.weight)]))
        return model

    def convert(self, module: nn.Module) -> nn.Module:
        """The optimized form of a module, or the module itself with its children converted."""
        if id(module) not in self.converted_modules:
            self.converted_modules[id(module)] = self._convert_new(module)
        return self.converted_modules[id(module)]

    def _convert_new(self, module: nn.Module) -> nn.Module:
        if isinstance(module, Mechanism):
            return module  # its matrices are small, and some code reads them directly
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
        """Pack a linear layer; a float32 weight that is tied to an embedding is shared, not copied."""
        shared = self.precision == "float32" and id(original.weight) in self.tied_weights
        packed = (SharedWeightLinear if shared else self.pack)(original.weight, original.bias)
        if isinstance(packed, Int8TiledLinear) and id(original.weight) in self.tied_weights:
            self.packed_embeddings[id(original.weight)] = packed.weights
        return packed

    def convert_head(self, original: BiasedLMHead) -> LMHead:
        """Fold the stored bias of an output layer into its linear layer, which saves one pass over the scores of all tokens."""
        score, shift = original.score, original.shift
        score.bias = nn.Parameter(shift if score.bias is None else shift + score.bias, requires_grad=False)
        with torch.device("meta"):  # its weights are replaced below
            head = LMHead(score.in_features, score.out_features, between=original.between)
        head.between, head.score = self.convert(original.between), self.convert(score)  # type: ignore[assignment]
        return head

    def convert_stack(self, original: Stack) -> FastStack:
        """Convert the layers of a stack, and the modules in front of and behind them; an encoder becomes one program."""
        reason = encoder_unsupported_reason(original, self.precision)
        outer_pack = self.pack
        if not reason:
            self.pack = partial(PanelLinear, precision=self.precision)
        original.enter, original.leave = (self.convert(end) for end in (original.enter, original.leave))
        layers = [self.convert_layer(layer) for layer in original.layers]  # type: ignore[arg-type]
        self.pack = outer_pack
        program = None if reason else compile_encoder(layers, original.leave, self.precision)
        return FastStack(original, layers, program, reason)

    def convert_layer(self, original: Layer) -> FastLayer:
        """Convert the sublayers of a layer that have an optimized form."""
        if isinstance(original, ParallelLayer):
            attention, feedforward = (
                fast_sublayer(sublayer, self.pack) for sublayer in (original.attention, original.feedforward)
            )
            return FastParallelLayer(attention, feedforward, fast_norm(original.norm))

        def convert_sublayer(sublayer: Sublayer, *, cross: bool = False) -> nn.Module:
            new = fast_sublayer(sublayer, self.pack, cross=cross)
            return self.convert(new) if new is sublayer else new

        across = None if original.across is None else convert_sublayer(original.across, cross=True)
        return FastLayer(
            convert_sublayer(original.attention),  # type: ignore[arg-type]
            convert_sublayer(original.feedforward),  # type: ignore[arg-type]
            across,  # type: ignore[arg-type]
        )


def _has_fast_layer(layer: nn.Module) -> bool:
    """Whether a layer has an optimized form; a parallel layer has one if both of its branches do."""
    if type(layer) is ParallelLayer:
        return has_fast_form(layer.attention) and has_fast_form(layer.feedforward)
    return type(layer) is Layer
