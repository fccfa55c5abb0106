"""Qwen2 and Qwen3: LLaMA with a bias on queries, keys and values (Yang et al. 2024, arXiv 2407.10671), and LLaMA with QK-norm
(Yang et al. 2025, arXiv 2505.09388)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from saccade.errors import ModelError
from saccade.models.families import llama
from saccade.models.weight_map import WeightMap
from saccade.parts.multihead_attention import Attention, Projections, QKNorm
from saccade.text.loading.safe_files import abbreviate


@dataclass(frozen=True)
class Qwen2Config(llama.Config):
    vocab: int = 151_936  # Vocabulary size: number of token ids.
    kv_heads: int | None = 32  # Number of key-value heads (grouped-query attention).
    ffn_width: int = 22_016  # Width of the feed-forward hidden layer.
    max_positions: int = 32_768  # Context length in training, in tokens; rotary positions set no limit.


@dataclass(frozen=True)
class Qwen3Config(Qwen2Config):
    head_width: int | None = 128  # Width of one attention head.


def qkv_biased_attention(config: Qwen2Config) -> Attention:
    """Attention with biases of queries, keys and values, but not of the output."""
    projections = Projections(head_width=llama.head_width(config), output_bias=False)
    return Attention(config.width, config.heads, kv_heads=config.kv_heads, projections=projections)


def qk_norm_attention(config: Qwen3Config) -> Attention:
    """Attention with QK-norm; the heads share one norm for queries and one for keys."""
    width = llama.head_width(config)
    norms = QKNorm(nn.RMSNorm(width, eps=config.eps), nn.RMSNorm(width, eps=config.eps))
    plain = Projections(head_width=width, bias=False)
    return Attention(config.width, config.heads, kv_heads=config.kv_heads, projections=plain, qk_norm=norms)


def normalize_config(raw: dict[str, Any], family: str) -> dict[str, Any]:
    """As in LLaMA; raises ModelError for the sliding-window layers that the published classes can have."""
    kinds = raw.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise ModelError(f"{family}: layer_types = {abbreviate(kinds)} is not supported; only 'full_attention' is.")
    return llama.normalize_config(raw, family) | ({"head.dim": raw["head_dim"]} if "head_dim" in raw else {})


def derived_keys(config: Qwen2Config) -> dict[str, Any]:
    """Publish head_dim only if it is set, since the published classes do not accept null."""
    return llama.derived_keys(config) | ({} if config.head_width is None else {"head_dim": config.head_width})


def qwen3_weight_map(config: Qwen3Config) -> WeightMap:
    branch = "stack.layers.{}.attention.branch"
    norms = {f"layers.{{}}.self_attn.{x[0]}_norm": f"{branch}.qk_norm.{x}" for x in ("query", "key")}
    return llama.weight_map(config) | norms


CONFIG_KEYS = {key: ours for key, ours in llama.FAMILY.config_keys.items() if key != "head_dim"} | {
    "head.dim": "head_width"
}
QWEN2 = replace(
    llama.FAMILY,
    name="qwen2",
    description="decoder: LLaMA with biases on queries, keys and values",
    config_class=Qwen2Config,
    build=partial(llama.Llama, attention=qkv_biased_attention),
    config_keys=CONFIG_KEYS,
    required_values={"hidden_act": "silu", "use_sliding_window": False},
    normalize_config=partial(normalize_config, family="qwen2"),
    derived_keys=derived_keys,
    architecture="Qwen2ForCausalLM",
)
QWEN3 = replace(
    llama.FAMILY,
    name="qwen3",
    description="decoder: LLaMA with RMS norms of queries and keys in each head (QK-norm)",
    config_class=Qwen3Config,
    build=partial(llama.Llama, attention=qk_norm_attention),
    weight_map=qwen3_weight_map,
    config_keys=CONFIG_KEYS,
    required_values={"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False},
    normalize_config=partial(normalize_config, family="qwen3"),
    derived_keys=lambda config: derived_keys(config) | {"head_dim": llama.head_width(config)},
    architecture="Qwen3ForCausalLM",
)
