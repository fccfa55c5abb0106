"""GPT-2: a decoder with learned positions and pre-norm (Radford et al. 2019)."""

import math
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from saccade.attention import CAUSAL, ScaledDot
from saccade.data import Batch, Text
from saccade.models.capabilities import DECODER
from saccade.models.family import Family
from saccade.models.init import INIT_STD, init_normal
from saccade.models.weight_map import Split, Transpose, WeightMap
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import LMHead
from saccade.parts.layer import Layer, make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import Learned
from saccade.parts.stack import Stack
from saccade.parts.state import State


@dataclass(frozen=True)
class Config:
    vocab: int = 50257  # Vocabulary size: number of token ids.
    width: int = 768  # Model width (hidden size) of every layer.
    layers: int = 12  # Number of decoder layers (transformer blocks).
    heads: int = 12  # Number of attention heads per layer.
    ffn_width: int | None = None  # Width of the feed-forward hidden layer; default: four times the model width.
    max_positions: int = 1024  # Maximum sequence length in tokens.
    activation: str = "gelu_tanh"  # Activation function of the feed-forward layers.
    eps: float = 1e-5  # Epsilon of layer normalization.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    attention_dropout: float = 0.1  # Dropout rate of attention weights; needs `use_attention_dropout`.
    use_attention_dropout: bool = False  # Apply attention dropout in training; off: attention weights get no dropout.


class GPT2(nn.Module):
    """A causal language model with tied input and output embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        width, norm = config.width, partial(nn.LayerNorm, eps=config.eps)
        drop = config.attention_dropout if config.use_attention_dropout else 0.0
        self.width = width
        self.words: TokenEmbedding = TokenEmbedding(config.vocab, width)
        layers = [
            make_layer(
                Attention(width, config.heads, ScaledDot(dropout=drop)),
                FeedForward(width, config.ffn_width or 4 * width, config.activation),
                width=width,
                norm=norm,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        ]
        position = Learned(config.max_positions, width)
        self.stack: Stack = Stack(layers, CAUSAL, position, enter=Dropout(config.dropout), leave=norm(width))
        self.head: LMHead = LMHead(width, config.vocab, tied_embedding=self.words.vectors)

    def start(self, batch: Batch) -> tuple[State, Text]:
        assert isinstance(batch.source, Text), "GPT-2 continues a text"
        return State(), batch.source

    def hidden_states(self, text: Text, state: State) -> Tensor:
        return self.stack(self.words(text.tokens), text.layout, state)

    def step(self, text: Text, state: State) -> Tensor:
        return self.head(self.hidden_states(text, state))


WEIGHT_MAP: WeightMap = {
    "wte": "words.vectors",
    "wpe": "stack.position.vectors",
    "h.{}.ln_1": "stack.layers.{}.attention.norm",
    "h.{}.attn.c_attn": Split("stack.layers.{}.attention.branch.", "query", "key", "value", transposed=True),
    "h.{}.attn.c_proj": Transpose("stack.layers.{}.attention.branch.output"),
    "h.{}.ln_2": "stack.layers.{}.feedforward.norm",
    "h.{}.mlp.c_fc": Transpose("stack.layers.{}.feedforward.branch.up"),
    "h.{}.mlp.c_proj": Transpose("stack.layers.{}.feedforward.branch.down"),
    "ln_f": "stack.leave",
}


def init_weights(model: nn.Module, config: Config) -> None:
    """Initialize like BERT, but scale the output layer of each branch by 1 / √(2 · layers)."""
    init_normal(model, config)
    for module in model.modules():
        if isinstance(module, Layer):
            for linear in (module.attention.branch.output, module.feedforward.branch.down):
                nn.init.normal_(linear.weight, std=INIT_STD / math.sqrt(2 * config.layers))  # type: ignore[arg-type]


FAMILY = Family(
    name="gpt2",
    description="decoder: learned positions, pre-norm",
    config_class=Config,
    build=GPT2,
    capabilities=lambda config: DECODER,
    weight_map=lambda config: WEIGHT_MAP,
    config_keys={
        "vocab_size": "vocab",
        "n_embd": "width",
        "n_layer": "layers",
        "n_head": "heads",
        "n_inner": "ffn_width",
        "n_positions": "max_positions",
        "activation_function": "activation",
        "layer_norm_epsilon": "eps",
        "resid_pdrop": "dropout",
        "attn_pdrop": "attention_dropout",
    },
    required_values={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    derived_keys=lambda config: {"embd_pdrop": config.dropout},
    prefix="transformer.",
    ignored_tensors=(r"h\.\d+\.attn\.(bias|masked_bias)", r"lm_head\.weight"),
    architecture="GPT2LMHeadModel",
    init_weights=init_weights,
)
