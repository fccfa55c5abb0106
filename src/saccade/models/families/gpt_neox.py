"""GPT-NeoX and Pythia: a decoder with parallel attention and feed-forward, and rotary positions in a quarter of each head
(Black et al. 2022, arXiv 2204.06745; Biderman et al. 2023, arXiv 2304.01373)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from saccade.attention import CAUSAL, ScaledDot
from saccade.errors import ModelError
from saccade.models.capabilities import DECODER
from saccade.models.decoder_only import DecoderOnly
from saccade.models.families import llama
from saccade.models.family import Family
from saccade.models.init import init_normal
from saccade.models.weight_map import SplitHeads, WeightMap
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, ParallelLayer, Sublayer
from saccade.parts.multihead_attention import Attention, Projections
from saccade.parts.position import Rotary
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    vocab: int = 50_432  # Vocabulary size: number of token ids.
    width: int = 6_144  # Model width (hidden size) of every layer.
    layers: int = 44  # Number of decoder layers (transformer blocks).
    heads: int = 64  # Number of attention heads per layer.
    ffn_width: int = 24_576  # Width of the feed-forward hidden layer.
    max_positions: int = 2_048  # Context length in training, in tokens; rotary positions set no limit.
    activation: str = "gelu"  # Activation function of the feed-forward layers.
    rope_base: float = 10_000.0  # Base (theta) of the rotary position frequencies.
    rotary_fraction: float = 0.25  # Fraction of each head's columns that get rotary positions.
    rope_factor: float = 1.0  # Linear RoPE scaling for contexts longer than in training; 1.0 disables it.
    parallel_residual: bool = True  # Parallel attention and feed-forward; off: one after the other.
    attention_bias: bool = True  # Biases in all projections of the attention.
    eps: float = 1e-5  # Epsilon of layer normalization.
    tie_embeddings: bool = False  # Tie the input and output embeddings.
    dropout: float = 0.0  # Dropout rate in training; 0 disables it.
    attention_dropout: float = 0.0  # Dropout rate of attention weights; needs `use_attention_dropout`.
    use_attention_dropout: bool = False  # Apply attention dropout in training; off: attention weights get no dropout.


class GPTNeoX(DecoderOnly):
    """Token embeddings, parallel layers with two norms each, and untied output embeddings."""

    def __init__(self, config: Config):
        width, norm = config.width, partial(nn.LayerNorm, eps=config.eps)
        position = Rotary(width // config.heads, base=config.rope_base, rotary_width=rotary_width(config))
        if config.rope_factor != 1.0:
            position.waves = llama.ScaledFrequencies(position.waves, config.rope_factor)
        layers = [make_layer(config) for _ in range(config.layers)]
        stack = Stack(layers, CAUSAL, position, enter=Dropout(config.dropout), leave=norm(width))
        super().__init__(TokenEmbedding(config.vocab, width), stack, tie_embeddings=config.tie_embeddings)


def rotary_width(config: Config) -> int:
    """Number of columns of a head that get rotary positions."""
    head_width = config.width // config.heads
    width = int(head_width * config.rotary_fraction)
    if width % 2 or not 0 < width <= head_width:
        raise ModelError(
            f"gpt_neox: rotary_fraction {config.rotary_fraction} of head width {head_width} gives {width} rotary columns; an "
            "even number is needed. Choose another rotary_fraction, such as 0.5 or 1.0, or fewer heads."
        )
    return width


def make_layer(config: Config) -> Layer:
    """A pre-norm layer, parallel or sequential."""
    drop = config.attention_dropout if config.use_attention_dropout else 0.0
    projections = Projections(bias=config.attention_bias)

    def wrap(branch: nn.Module) -> Sublayer:
        norm = nn.LayerNorm(config.width, eps=config.eps)
        return Sublayer(branch, norm, norm_first=True, dropout=config.dropout)

    return (ParallelLayer if config.parallel_residual else Layer)(
        wrap(Attention(config.width, config.heads, ScaledDot(dropout=drop), projections=projections)),
        wrap(FeedForward(config.width, config.ffn_width, config.activation)),
    )


def normalize_config(raw: dict[str, Any]) -> dict[str, Any]:
    """Read the RoPE settings from their older or newer config keys."""
    rope = llama.read_rope(
        raw.get("rope_parameters") or raw.get("rope_scaling") or {}, "gpt_neox", ("default", "linear")
    )
    return raw | {
        "rotary_emb_base": rope.get("rope_theta", raw.get("rotary_emb_base", Config.rope_base)),
        "rotary_pct": rope.get("partial_rotary_factor", raw.get("rotary_pct", Config.rotary_fraction)),
        "rope.factor": rope.get("factor", 1.0),
    }


def derived_keys(config: Config) -> dict[str, Any]:
    """The settings under their older config keys, which newer versions of transformers read too."""
    return {
        "rope_scaling": None if config.rope_factor == 1.0 else {"rope_type": "linear", "factor": config.rope_factor}
    }


def weight_map(config: Config) -> WeightMap:
    mapping: dict[str, Any] = {
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
    # transformers 5 names the output lm_head in memory and embed_out in files; both are read, embed_out is written
    return mapping if config.tie_embeddings else {**mapping, "embed_out": "head.score", "lm_head": "head.score"}


FAMILY = Family(
    name="gpt_neox",
    description="decoder: parallel attention and feed-forward, rotary positions in a quarter of each head",
    config_class=Config,
    build=GPTNeoX,
    capabilities=lambda config: DECODER,
    weight_map=weight_map,
    config_keys={
        "vocab_size": "vocab",
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "intermediate_size": "ffn_width",
        "max_position_embeddings": "max_positions",
        "hidden_act": "activation",
        "rotary_emb_base": "rope_base",
        "rotary_pct": "rotary_fraction",
        "rope.factor": "rope_factor",
        "use_parallel_residual": "parallel_residual",
        "attention_bias": "attention_bias",
        "layer_norm_eps": "eps",
        "tie_word_embeddings": "tie_embeddings",
        "hidden_dropout": "dropout",
        "attention_dropout": "attention_dropout",
    },
    normalize_config=normalize_config,
    derived_keys=derived_keys,
    prefix="gpt_neox.",
    unprefixed=(r"embed_out\.weight", r"lm_head\.weight"),
    ignored_tensors=(
        r"embed_out\.weight",
        r"lm_head\.weight",
        r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
    ),
    architecture="GPTNeoXForCausalLM",
    init_weights=init_normal,
)
