"""LLaMA: a decoder with rotary positions, RMSNorm, gated feed-forward and grouped-query attention
(Touvron et al. 2023, arXiv 2302.13971; Ainslie et al. 2023, arXiv 2305.13245)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, Pattern
from saccade.errors import ModelError
from saccade.models.capabilities import DECODER
from saccade.models.decoder_only import DecoderOnly
from saccade.models.family import Family
from saccade.models.init import init_normal
from saccade.models.weight_map import WeightMap, WeightTransform
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention, Projections
from saccade.parts.position import Rotary, Sinusoidal
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    vocab: int = 32000  # Vocabulary size: number of token ids.
    width: int = 4096  # Model width (hidden size) of every layer.
    layers: int = 32  # Number of decoder layers (transformer blocks).
    heads: int = 32  # Number of attention heads per layer.
    kv_heads: int | None = None  # Number of key-value heads (grouped-query attention); default: as many as heads.
    head_width: int | None = None  # Width of one attention head; default: model width / heads.
    ffn_width: int = 11008  # Width of the feed-forward hidden layer.
    max_positions: int = 2048  # Context length in training, in tokens; rotary positions set no limit.
    rope_base: float = 10_000.0  # Base (theta) of the rotary position frequencies.
    rope_factor: float = 1.0  # RoPE scaling factor for contexts longer than in training; 1.0 disables it.
    original_max_positions: int | None = None
    """LLaMA 3.1 RoPE scaling: context length before scaling; only low frequencies are scaled. Default: scale all."""
    eps: float = 1e-6  # Epsilon of RMS normalization.
    tie_embeddings: bool = False  # Tie the input and output embeddings.
    dropout: float = 0.0  # Dropout rate in training; 0 disables it.


class Llama(DecoderOnly):
    """Pre-norm layers without biases, with rotary positions.

    Derived families pass another `attention` (a function of the config) or another `pattern`.
    """

    def __init__(
        self, config: Config, *, attention: Callable[[Any], Attention] | None = None, pattern: Pattern = CAUSAL
    ):
        width, norm = config.width, partial(nn.RMSNorm, eps=config.eps)
        layers = [
            make_layer(
                (attention or unbiased_attention)(config),
                FeedForward(width, config.ffn_width, "silu", gated=True, bias=False),
                width=width,
                norm=norm,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        ]
        position = Rotary(head_width(config), base=config.rope_base)
        if config.rope_factor != 1.0:
            position.waves = ScaledFrequencies(position.waves, config.rope_factor, config.original_max_positions)
        super().__init__(
            TokenEmbedding(config.vocab, width),
            Stack(layers, pattern, position, leave=norm(width)),
            tie_embeddings=config.tie_embeddings,
        )


def head_width(config: Config) -> int:
    return config.head_width or config.width // config.heads


def unbiased_attention(config: Config) -> Attention:
    projections = Projections(head_width=head_width(config), bias=False)
    return Attention(config.width, config.heads, kv_heads=config.kv_heads, projections=projections)


class ScaledFrequencies(Sinusoidal):
    """RoPE scaling: lower frequencies, so that a longer context covers the angles seen in training.

    Divides all frequencies by the factor (Chen et al. 2023, arXiv 2306.15595), or, given the original context length, only those
    with fewer than four turns in it, with a smooth transition between four turns and one (LLaMA 3.1, arXiv 2407.21783).
    """

    rope_factor: float
    original_max_positions: int | None

    def __init__(self, unscaled: Sinusoidal, rope_factor: float, original_max_positions: int | None = None):
        super().__init__(unscaled.width, base=unscaled.base, sines_first=True)
        self.rope_factor, self.original_max_positions = rope_factor, original_max_positions

    def frequencies(self, device: torch.device) -> Tensor:
        plain = super().frequencies(device)
        if self.original_max_positions is None:
            return plain / self.rope_factor
        turns = self.original_max_positions * plain / (2 * math.pi)
        unscaled_share = ((turns - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR)).clamp(0, 1)
        return plain * (unscaled_share + (1 - unscaled_share) / self.rope_factor)


LOW_FREQ_FACTOR, HIGH_FREQ_FACTOR = 1.0, 4.0
ORIGINAL_MAX_POSITIONS_KEY = "original_max_position_embeddings"
REQUIRED_ROPE_VALUES: dict[str, dict[str, float | None]] = {  # required settings by rope_type; None: any number above 0
    "default": {},
    "linear": {"factor": None},
    "llama3": {
        "factor": None,
        ORIGINAL_MAX_POSITIONS_KEY: None,
        "low_freq_factor": LOW_FREQ_FACTOR,
        "high_freq_factor": HIGH_FREQ_FACTOR,
    },
}


def normalize_config(raw: dict[str, Any], family: str = "llama") -> dict[str, Any]:
    """Read the RoPE settings, which newer files have in one table and older ones in two keys."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    rope = read_rope(rope, family)
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{family}: partial rotary positions are not supported; got {rope}.")
    return raw | {
        "rope_theta": rope.get("rope_theta", raw.get("rope_theta", Config.rope_base)),
        "rope.factor": rope.get("factor", 1.0),
        "rope.original": rope.get(ORIGINAL_MAX_POSITIONS_KEY),
    }


def read_rope(rope: Any, family: str, kinds: Sequence[str] = tuple(REQUIRED_ROPE_VALUES)) -> dict[str, Any]:
    """Check a table of RoPE settings, and drop the keys that its rope_type does not use."""
    if not isinstance(rope, dict):
        raise ModelError(f"{family}: the rotary settings (RoPE) are {rope!r}; a table with `rope_type` is needed.")
    kind = str(rope.get("rope_type", rope.get("type", "default")))
    if kind not in kinds:
        raise ModelError(f"{family}: rope_type {kind!r} is not supported; supported are {', '.join(kinds)}.")
    for key, value in REQUIRED_ROPE_VALUES[kind].items():
        if type(rope.get(key)) not in (int, float) or value not in (None, rope[key]) or not rope[key] > 0:
            raise ModelError(f"{family}: rope_type {kind!r} needs {key} = {value or 'a number above 0'}; got {rope}.")
    return {
        key: value
        for key, value in rope.items()
        if key not in ("factor", ORIGINAL_MAX_POSITIONS_KEY) or key in REQUIRED_ROPE_VALUES[kind]
    }


def derived_keys(config: Config) -> dict[str, Any]:
    """The RoPE settings under their older config keys, which newer versions of transformers read too."""
    rope: dict[str, Any] | None = None if config.rope_factor == 1.0 else {"rope_type": "linear"}
    if rope is not None and config.original_max_positions is not None:
        rope = REQUIRED_ROPE_VALUES["llama3"] | {
            "rope_type": "llama3",
            ORIGINAL_MAX_POSITIONS_KEY: config.original_max_positions,
        }
    return {"rope_theta": config.rope_base, "rope_scaling": rope and rope | {"factor": config.rope_factor}}


WEIGHT_MAP: WeightMap = {
    "embed_tokens": "words.vectors",
    "layers.{}.input_layernorm": "stack.layers.{}.attention.norm",
    "layers.{}.self_attn.q_proj": "stack.layers.{}.attention.branch.query",
    "layers.{}.self_attn.k_proj": "stack.layers.{}.attention.branch.key",
    "layers.{}.self_attn.v_proj": "stack.layers.{}.attention.branch.value",
    "layers.{}.self_attn.o_proj": "stack.layers.{}.attention.branch.output",
    "layers.{}.post_attention_layernorm": "stack.layers.{}.feedforward.norm",
    "layers.{}.mlp.gate_proj": "stack.layers.{}.feedforward.branch.gate",
    "layers.{}.mlp.up_proj": "stack.layers.{}.feedforward.branch.up",
    "layers.{}.mlp.down_proj": "stack.layers.{}.feedforward.branch.down",
    "norm": "stack.leave",
}


def weight_map(config: Config) -> dict[str, str | WeightTransform]:
    return dict(WEIGHT_MAP) if config.tie_embeddings else {**WEIGHT_MAP, "lm_head": "head.score"}


FAMILY = Family(
    name="llama",
    description="decoder: rotary positions, RMS pre-norm, gated feed-forward, grouped-query attention",
    config_class=Config,
    build=Llama,
    capabilities=lambda config: DECODER,
    weight_map=weight_map,
    config_keys={
        "vocab_size": "vocab",
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "head_dim": "head_width",
        "intermediate_size": "ffn_width",
        "max_position_embeddings": "max_positions",
        "rope_theta": "rope_base",
        "rope.factor": "rope_factor",
        "rope.original": "original_max_positions",
        "rms_norm_eps": "eps",
        "tie_word_embeddings": "tie_embeddings",
    },
    required_values={"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
    normalize_config=normalize_config,
    derived_keys=derived_keys,
    prefix="model.",
    unprefixed=(r"lm_head\.weight",),
    ignored_tensors=(r"lm_head\.weight", r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),
    architecture="LlamaForCausalLM",
    init_weights=init_normal,
)
