"""GPT-NeoX and Pythia: a decoder whose attention and feed-forward stand side by side in a parallel layer, and in which a quarter
of each head turns (Black et al. 2022, arXiv 2204.06745; Biderman et al. 2023, arXiv 2304.01373)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from saccade.attention import CAUSAL, ScaledDot
from saccade.errors import ModelError
from saccade.models import llama
from saccade.models.capabilities import DECODER
from saccade.models.decoder_only import DecoderOnly
from saccade.models.family import Family
from saccade.models.fresh import spread
from saccade.models.weights import Names, SplitHeads
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, ParallelLayer, Sublayer
from saccade.parts.multihead import Attention, Projections
from saccade.parts.position import Rotary
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    vocab: int = 50_432
    width: int = 6_144
    layers: int = 44
    heads: int = 64
    inner: int = 24_576
    length: int = 2_048  # of the texts it was trained on; rotary positions have no limit of their own
    activation: str = "gelu"
    base: float = 10_000.0
    rotary_share: float = 0.25  # share of the columns of a head that turn
    stretch: float = 1.0  # how many times slower positions turn, for texts longer than those of the first training
    parallel: bool = True  # attention and feed-forward side by side; False: one after the other
    attention_bias: bool = True  # of all projections of the attention
    eps: float = 1e-5
    tied: bool = False
    dropout: float = 0.0
    weight_dropout: float = 0.0  # as published; applies when `drop_weights` asks for it
    drop_weights: bool = False


class GPTNeoX(DecoderOnly):
    """Words and no positions in the input, parallel layers with two norms each, and an output table of its own."""

    def __init__(self, config: Config):
        width, norm = config.width, partial(nn.LayerNorm, eps=config.eps)
        position = Rotary(width // config.heads, base=config.base, rotary_width=rotary_width(config))
        if config.stretch != 1.0:
            position.waves = llama.Stretched(position.waves, config.stretch)
        layers = [layer(config) for _ in range(config.layers)]
        stack = Stack(layers, CAUSAL, position, enter=Dropout(config.dropout), leave=norm(width))
        super().__init__(Words(config.vocab, width), stack, tied=config.tied)


def rotary_width(config: Config) -> int:
    """How many columns of a head turn."""
    head_width = config.width // config.heads
    width = int(head_width * config.rotary_share)
    if width % 2 or not 0 < width <= head_width:
        raise ModelError(
            f"gpt_neox: a rotary_share of {config.rotary_share} turns {width} columns of a head of width {head_width}; an even "
            "number of them is needed. Choose another rotary_share, such as 0.5 or 1.0, or fewer heads."
        )
    return width


def layer(config: Config) -> Layer:
    """Two branches, each with a norm of its own."""
    drop = config.weight_dropout if config.drop_weights else 0.0
    biases = Projections(bias=config.attention_bias)

    def around(branch: nn.Module) -> Sublayer:
        norm = nn.LayerNorm(config.width, eps=config.eps)
        return Sublayer(branch, norm, norm_first=True, dropout=config.dropout)

    return (ParallelLayer if config.parallel else Layer)(
        around(Attention(config.width, config.heads, ScaledDot(dropout=drop), projections=biases)),
        around(FeedForward(config.width, config.inner, config.activation)),
    )


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """Rotary settings under their older and their newer names."""
    rope = llama.read_rope(
        raw.get("rope_parameters") or raw.get("rope_scaling") or {}, "gpt_neox", ("default", "linear")
    )
    return raw | {
        "rotary_emb_base": rope.get("rope_theta", raw.get("rotary_emb_base", Config.base)),
        "rotary_pct": rope.get("partial_rotary_factor", raw.get("rotary_pct", Config.rotary_share)),
        "rope.factor": rope.get("factor", 1.0),
    }


def also(config: Config) -> dict[str, Any]:
    """The same settings under their older names, which newer packages read too."""
    return {"rope_scaling": None if config.stretch == 1.0 else {"rope_type": "linear", "factor": config.stretch}}


def names(config: Config) -> Names:
    lines: dict[str, Any] = {
        "embed_in": "words.vectors",
        "layers.{}.input_layernorm": "stack.layers.{}.attention.norm",
        "layers.{}.attention.query_key_value": SplitHeads(
            "stack.layers.{}.attention.branch.", "query", "key", "value", heads=config.heads
        ),
        "layers.{}.attention.dense": "stack.layers.{}.attention.branch.output",
        "layers.{}.post_attention_layernorm": "stack.layers.{}.feedforward.norm",
        "layers.{}.mlp.dense_h_to_4h": "stack.layers.{}.feedforward.branch.up",
        "layers.{}.mlp.dense_4h_to_h": "stack.layers.{}.feedforward.branch.down",
        "final_layer_norm": "stack.leave",
    }
    # `transformers` 5 calls the output lm_head in memory and embed_out in its files; read under both names, written as embed_out
    return lines if config.tied else {**lines, "embed_out": "head.score", "lm_head": "head.score"}


FAMILY = Family(
    name="gpt_neox",
    said="decoder: attention and feed-forward in parallel, rotary positions in a quarter of each head",
    config=Config,
    build=GPTNeoX,
    capabilities=lambda config: DECODER,
    names=names,
    keys={
        "vocab_size": "vocab",
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "intermediate_size": "inner",
        "max_position_embeddings": "length",
        "hidden_act": "activation",
        "rotary_emb_base": "base",
        "rotary_pct": "rotary_share",
        "rope.factor": "stretch",
        "use_parallel_residual": "parallel",
        "attention_bias": "attention_bias",
        "layer_norm_eps": "eps",
        "tie_word_embeddings": "tied",
        "hidden_dropout": "dropout",
        "attention_dropout": "weight_dropout",
    },
    adapt=adapt,
    also=also,
    prefix="gpt_neox.",
    beside=(r"embed_out\.weight", r"lm_head\.weight"),
    ignored=(
        r"embed_out\.weight",
        r"lm_head\.weight",
        r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
    ),
    architecture="GPTNeoXForCausalLM",
    fresh=spread,
)
