"""Qwen2 and Qwen3: LLaMA with a bias on queries, keys and values (Yang et al. 2024, arXiv 2407.10671), and LLaMA with QK-norm
(Yang et al. 2025, arXiv 2505.09388)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from saccade.errors import ModelError
from saccade.models import llama
from saccade.models.weights import Names
from saccade.parts.multihead import Attention, Projections, QKNorm
from saccade.text.files import shown


@dataclass(frozen=True)
class Qwen2Config(llama.Config):
    vocab: int = 151_936
    key_heads: int | None = 32
    inner: int = 22_016
    length: int = 32_768


@dataclass(frozen=True)
class Qwen3Config(Qwen2Config):
    head_width: int | None = 128


def biased_attention(config: Qwen2Config) -> Attention:
    """Queries, keys and values have a bias, the output has none."""
    biased = Projections(head_width=llama.head_width(config), output_bias=False)
    return Attention(config.width, config.heads, kv_heads=config.key_heads, projections=biased)


def normed_attention(config: Qwen3Config) -> Attention:
    """Queries and keys are normalized, with one norm for all heads of each."""
    width = llama.head_width(config)
    norms = QKNorm(nn.RMSNorm(width, eps=config.eps), nn.RMSNorm(width, eps=config.eps))
    plain = Projections(head_width=width, bias=False)
    return Attention(config.width, config.heads, kv_heads=config.key_heads, projections=plain, qk_norm=norms)


def adapt(raw: dict[str, Any], family: str) -> dict[str, Any]:
    """As LLaMA's; the sliding window that the published classes have as an option is refused by name."""
    kinds = raw.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise ModelError(f"{family}: layer_types = {shown(kinds)} are not built here; only 'full_attention' is.")
    return llama.adapt(raw, family) | ({"head.dim": raw["head_dim"]} if "head_dim" in raw else {})


def also(config: Qwen2Config) -> dict[str, Any]:
    """The width of a head is a number wherever the published classes find one: null is none."""
    return llama.also(config) | ({} if config.head_width is None else {"head_dim": config.head_width})


def qwen3_names(config: Qwen3Config) -> Names:
    branch = "stack.layers.{}.attention.branch"
    norms = {f"layers.{{}}.self_attn.{x[0]}_norm": f"{branch}.qk_norm.{x}" for x in ("query", "key")}
    return llama.names(config) | norms


KEYS = {key: ours for key, ours in llama.FAMILY.keys.items() if key != "head_dim"} | {"head.dim": "head_width"}
QWEN2 = replace(
    llama.FAMILY,
    name="qwen2",
    said="decoder: LLaMA with a bias on queries, keys and values",
    config=Qwen2Config,
    build=partial(llama.Llama, attention=biased_attention),
    keys=KEYS,
    fixed={"hidden_act": "silu", "use_sliding_window": False},
    adapt=partial(adapt, family="qwen2"),
    also=also,
    architecture="Qwen2ForCausalLM",
)
QWEN3 = replace(
    llama.FAMILY,
    name="qwen3",
    said="decoder: LLaMA with norms of queries and keys in each head",
    config=Qwen3Config,
    build=partial(llama.Llama, attention=normed_attention),
    names=qwen3_names,
    keys=KEYS,
    fixed={"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False},
    adapt=partial(adapt, family="qwen3"),
    also=lambda config: also(config) | {"head_dim": llama.head_width(config)},
    architecture="Qwen3ForCausalLM",
)
