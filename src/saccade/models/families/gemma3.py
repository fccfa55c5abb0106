"""Gemma 3, text model: a decoder with sliding-window attention, full attention in every sixth layer, separate RoPE settings for
both kinds of layers, and norms before and after every branch (Gemma Team 2025, arXiv 2503.19786)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from saccade.attention import CAUSAL, ScaledDot, Window
from saccade.errors import ModelError
from saccade.models.capabilities import DECODER
from saccade.models.decoder_only import DecoderOnly
from saccade.models.families import llama
from saccade.models.family import Family
from saccade.models.init import init_normal
from saccade.models.weight_map import WeightMap
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, Sublayer
from saccade.parts.multihead_attention import Attention, Projections, QKNorm
from saccade.parts.norm import OffsetRMSNorm
from saccade.parts.position import Rotary
from saccade.parts.stack import Stack
from saccade.text.loading.safe_files import abbreviate

SLIDING_ATTENTION, FULL_ATTENTION = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Config:
    vocab: int = 262_208  # Vocabulary size: number of token ids.
    width: int = 2_304  # Model width (hidden size) of every layer.
    layers: int = 26  # Number of decoder layers (transformer blocks).
    heads: int = 8  # Number of attention heads per layer.
    kv_heads: int = 4  # Number of key-value heads (grouped-query attention).
    head_width: int = 256  # Width of one attention head.
    ffn_width: int = 9_216  # Width of the feed-forward hidden layer.
    max_positions: int = 131_072  # Context length in training, in tokens; rotary positions set no limit.
    sliding_window: int = 4_096  # Sliding-window attention: tokens that a token attends to, itself included.
    full_attention_every: int = 6  # Every this many layers one layer has full causal attention.
    rope_base: float = 1_000_000.0  # Base (theta) of the rotary frequencies in full-attention layers.
    local_rope_base: float = 10_000.0  # Base (theta) of the rotary frequencies in sliding-window layers.
    rope_factor: float = 1.0  # Linear RoPE scaling of full-attention layers, for longer contexts; 1.0 disables it.
    attention_scale_width: int = 256  # Attention scores are divided by the square root of this width.
    eps: float = 1e-6  # Epsilon of RMS normalization.
    tie_embeddings: bool = True  # Tie the input and output embeddings.
    dropout: float = 0.0  # Dropout rate in training; 0 disables it.


class Gemma3(DecoderOnly):
    """Scaled token embeddings, then a stack with an attention pattern and a RoPE base for each layer."""

    def __init__(self, config: Config):
        local_rope = Rotary(config.head_width, base=config.local_rope_base)
        full_rope = Rotary(config.head_width, base=config.rope_base)
        if config.rope_factor != 1.0:
            full_rope.waves = llama.ScaledFrequencies(full_rope.waves, config.rope_factor)
        is_full = full_attention_layers(config)
        stack = Stack(
            [make_layer(config) for _ in range(config.layers)],
            [CAUSAL if full else Window(config.sliding_window - 1, 0) for full in is_full],
            [full_rope if full else local_rope for full in is_full],
            leave=OffsetRMSNorm(config.width, eps=config.eps),
        )
        super().__init__(
            TokenEmbedding(config.vocab, config.width, scale_embeddings=True),
            stack,
            tie_embeddings=config.tie_embeddings,
        )


def full_attention_layers(config: Config) -> list[bool]:
    """For each layer, whether it has full causal attention."""
    return [(index + 1) % config.full_attention_every == 0 for index in range(config.layers)]


def make_layer(config: Config) -> Layer:
    """A decoder layer with a norm before and after each branch."""
    norm = partial(OffsetRMSNorm, eps=config.eps)
    attention = Attention(
        config.width,
        config.heads,
        ScaledDot(scale=config.attention_scale_width**-0.5),
        kv_heads=config.kv_heads,
        projections=Projections(head_width=config.head_width, bias=False),
        qk_norm=QKNorm(norm(config.head_width), norm(config.head_width)),
    )
    feedforward = FeedForward(config.width, config.ffn_width, "gelu_tanh", gated=True, bias=False)

    def wrap(branch: nn.Module) -> Sublayer:
        before, after = norm(config.width), norm(config.width)
        return Sublayer(branch, before, norm_first=True, post_norm=after, dropout=config.dropout)

    return Layer(wrap(attention), wrap(feedforward))


def normalize_config(raw: dict[str, Any]) -> dict[str, Any]:
    """Read the RoPE settings and types of the layers from their older or newer config keys."""
    rope_parameters = raw.get("rope_parameters") or {}
    if not isinstance(rope_parameters, dict):
        raise ModelError(f"gemma3: rope_parameters = {abbreviate(rope_parameters)}; a table per layer type is needed.")
    full = llama.read_rope(
        rope_parameters.get(FULL_ATTENTION) or raw.get("rope_scaling") or {}, "gemma3", ("default", "linear")
    )
    local = llama.read_rope(rope_parameters.get(SLIDING_ATTENTION) or {}, "gemma3", ("default",))
    return raw | {
        "use_bidirectional_attention": raw.get("use_bidirectional_attention") or False,
        "rope_theta": full.get("rope_theta", raw.get("rope_theta", Config.rope_base)),
        "rope_local_base_freq": local.get("rope_theta", raw.get("rope_local_base_freq", Config.local_rope_base)),
        "rope.factor": full.get("factor", 1.0),
        "layers.full_every": _full_attention_every(raw),
    }


def _full_attention_every(raw: dict[str, Any]) -> int:
    """The interval between full-attention layers; newer configs list the type of every layer instead."""
    kinds = raw.get("layer_types")
    if kinds is None:
        return raw.get("sliding_window_pattern", Config.full_attention_every)
    count = raw.get("num_hidden_layers", Config.layers)
    if isinstance(kinds, list) and kinds and len(kinds) == count:
        every = kinds.index(FULL_ATTENTION) + 1 if FULL_ATTENTION in kinds else count + 1
        if kinds == [SLIDING_ATTENTION if (number + 1) % every else FULL_ATTENTION for number in range(count)]:
            return every
    raise ModelError(
        f"gemma3: layer_types = {abbreviate(kinds)} for {abbreviate(count)} layers is not supported; expected "
        f"{FULL_ATTENTION!r} at regular intervals and {SLIDING_ATTENTION!r} for all other layers."
    )


def derived_keys(config: Config) -> dict[str, Any]:
    """The settings under their older config keys, which newer versions of transformers read too."""
    scaling = None if config.rope_factor == 1.0 else {"rope_type": "linear", "factor": config.rope_factor}
    kinds = [FULL_ATTENTION if full else SLIDING_ATTENTION for full in full_attention_layers(config)]
    return {"rope_scaling": scaling, "layer_types": kinds}


WEIGHT_MAP: WeightMap = {
    "embed_tokens": "words.vectors",
    "layers.{}.input_layernorm": "stack.layers.{}.attention.norm",
    "layers.{}.self_attn.q_proj": "stack.layers.{}.attention.branch.query",
    "layers.{}.self_attn.k_proj": "stack.layers.{}.attention.branch.key",
    "layers.{}.self_attn.v_proj": "stack.layers.{}.attention.branch.value",
    "layers.{}.self_attn.o_proj": "stack.layers.{}.attention.branch.output",
    "layers.{}.self_attn.q_norm": "stack.layers.{}.attention.branch.qk_norm.query",
    "layers.{}.self_attn.k_norm": "stack.layers.{}.attention.branch.qk_norm.key",
    "layers.{}.post_attention_layernorm": "stack.layers.{}.attention.post_norm",
    "layers.{}.pre_feedforward_layernorm": "stack.layers.{}.feedforward.norm",
    "layers.{}.mlp.gate_proj": "stack.layers.{}.feedforward.branch.gate",
    "layers.{}.mlp.up_proj": "stack.layers.{}.feedforward.branch.up",
    "layers.{}.mlp.down_proj": "stack.layers.{}.feedforward.branch.down",
    "layers.{}.post_feedforward_layernorm": "stack.layers.{}.feedforward.post_norm",
    "norm": "stack.leave",
}
FAMILY = Family(
    name="gemma3",
    description="decoder: sliding-window attention in most layers, norms around each branch and of queries and keys, gated",
    config_class=Config,
    build=Gemma3,
    capabilities=lambda config: DECODER,
    weight_map=lambda config: WEIGHT_MAP if config.tie_embeddings else {**WEIGHT_MAP, "lm_head": "head.score"},
    config_keys={
        "vocab_size": "vocab",
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "head_dim": "head_width",
        "intermediate_size": "ffn_width",
        "max_position_embeddings": "max_positions",
        "sliding_window": "sliding_window",
        "layers.full_every": "full_attention_every",
        "rope_theta": "rope_base",
        "rope_local_base_freq": "local_rope_base",
        "rope.factor": "rope_factor",
        "query_pre_attn_scalar": "attention_scale_width",
        "rms_norm_eps": "eps",
        "tie_word_embeddings": "tie_embeddings",
    },
    required_values={
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "use_bidirectional_attention": False,
    },
    normalize_config=normalize_config,
    derived_keys=derived_keys,
    prefix="model.",
    unprefixed=(r"lm_head\.weight",),
    ignored_tensors=(r"lm_head\.weight",),
    architecture="Gemma3ForCausalLM",
    init_weights=init_normal,
)
