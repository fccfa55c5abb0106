"""GPT-2: a decoder of words and learned positions, norm before each branch and at the end (Radford et al. 2019)."""

import math
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from saccade.attention import CAUSAL, ScaledDot
from saccade.data import Batch, Text
from saccade.models.capabilities import DECODER
from saccade.models.family import Family
from saccade.models.fresh import STD, spread
from saccade.models.weights import Names, Split, Transposed
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import WordHead
from saccade.parts.layer import Layer, layer
from saccade.parts.multihead import Attention
from saccade.parts.position import Learned
from saccade.parts.stack import Stack
from saccade.parts.state import State


@dataclass(frozen=True)
class Config:
    vocab: int = 50257
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int | None = None  # four times the width, unless said otherwise
    length: int = 1024
    activation: str = "gelu_tanh"
    eps: float = 1e-5
    dropout: float = 0.1
    weight_dropout: float = 0.1  # as published; applies when `drop_weights` asks for it
    drop_weights: bool = False


class GPT2(nn.Module):
    """Words in, scores of the next word out, with one table for both."""

    def __init__(self, config: Config):
        super().__init__()
        width, norm = config.width, partial(nn.LayerNorm, eps=config.eps)
        drop = config.weight_dropout if config.drop_weights else 0.0
        self.width = width
        self.words = Words(config.vocab, width)
        layers = [
            layer(
                Attention(width, config.heads, ScaledDot(dropout=drop)),
                FeedForward(width, config.inner or 4 * width, config.activation),
                width=width,
                norm=norm,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        ]
        position = Learned(config.length, width)
        self.stack = Stack(layers, CAUSAL, position, enter=Dropout(config.dropout), leave=norm(width))
        self.head = WordHead(width, config.vocab, tied=self.words.vectors)

    def start(self, batch: Batch) -> tuple[State, Text]:
        assert isinstance(batch.source, Text), "GPT-2 continues a text"
        return State(), batch.source

    def think(self, text: Text, state: State) -> Tensor:
        return self.stack(self.words(text.tokens), text.layout, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.think(text, state))


NAMES: Names = {
    "wte": "words.vectors",
    "wpe": "stack.position.vectors",
    "h.{}.ln_1": "stack.layers.{}.attention.norm",
    "h.{}.attn.c_attn": Split("stack.layers.{}.attention.branch.", "query", "key", "value", transposed=True),
    "h.{}.attn.c_proj": Transposed("stack.layers.{}.attention.branch.output"),
    "h.{}.ln_2": "stack.layers.{}.feedforward.norm",
    "h.{}.mlp.c_fc": Transposed("stack.layers.{}.feedforward.branch.up"),
    "h.{}.mlp.c_proj": Transposed("stack.layers.{}.feedforward.branch.down"),
    "ln_f": "stack.leave",
}


def fresh(model: nn.Module, config: Config) -> None:
    """As BERT's, with what is added to the residual stream made smaller, the more so the more layers add to it."""
    spread(model, config)
    for module in model.modules():
        if isinstance(module, Layer):
            for last in (module.attention.branch.output, module.feedforward.branch.down):
                nn.init.normal_(last.weight, std=STD / math.sqrt(2 * config.layers))  # type: ignore[arg-type]


FAMILY = Family(
    name="gpt2",
    said="decoder: words, learned positions, norm before",
    config=Config,
    build=GPT2,
    capabilities=lambda config: DECODER,
    names=lambda config: NAMES,
    keys={
        "vocab_size": "vocab",
        "n_embd": "width",
        "n_layer": "layers",
        "n_head": "heads",
        "n_inner": "inner",
        "n_positions": "length",
        "activation_function": "activation",
        "layer_norm_epsilon": "eps",
        "resid_pdrop": "dropout",
        "attn_pdrop": "weight_dropout",
    },
    fixed={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    also=lambda config: {"embd_pdrop": config.dropout},
    prefix="transformer.",
    ignored=(r"h\.\d+\.attn\.(bias|masked_bias)", r"lm_head\.weight"),
    architecture="GPT2LMHeadModel",
    fresh=fresh,
)
