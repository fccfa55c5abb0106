"""Families with the architecture of another one: XLM-RoBERTa and CamemBERT (RoBERTa), Mistral (LLaMA).

XLM-RoBERTa covers a hundred languages (Conneau et al. 2020, arXiv 1911.02116), CamemBERT French (Martin et al. 2020, arXiv
1911.03894). Mistral (Jiang et al. 2023, arXiv 2310.06825) is LLaMA with grouped-query attention and, in its first version,
sliding-window attention.
"""

from dataclasses import dataclass, replace
from typing import Any

from saccade.attention import CAUSAL, Pattern, Window
from saccade.models.families import llama, roberta
from saccade.models.family import Family


@dataclass(frozen=True)
class XlmRobertaConfig(roberta.Config):
    vocab: int = 250_002  # Vocabulary size: number of token ids.


@dataclass(frozen=True)
class CamembertConfig(roberta.Config):
    vocab: int = 32_005  # Vocabulary size: number of token ids.


@dataclass(frozen=True)
class MistralConfig(llama.Config):
    vocab: int = 32_768  # Vocabulary size: number of token ids.
    kv_heads: int | None = 8  # Number of key-value heads (grouped-query attention).
    ffn_width: int = 14_336  # Width of the feed-forward hidden layer.
    max_positions: int = 32_768  # Context length in training, in tokens; rotary positions set no limit.
    rope_base: float = 1_000_000.0  # Base (theta) of the rotary position frequencies.
    eps: float = 1e-5  # Epsilon of RMS normalization.
    sliding_window: int | None = None
    """Sliding-window attention: tokens that a token attends to, itself included; default: full."""


def _roberta_variant(name: str, class_prefix: str, config: type, model_type: str, description: str) -> Family:
    """RoBERTa under another name; missing keys of its published config have RoBERTa's defaults, except the vocabulary."""
    heads = {
        kind: replace(head, architecture=head.architecture.replace("Roberta", class_prefix))
        for kind, head in roberta.FAMILY.heads.items()
    }
    return replace(
        roberta.FAMILY,
        name=name,
        description=description,
        config_class=config,
        required_values={**roberta.FAMILY.required_values, "model_type": model_type},
        normalize_config=lambda raw: roberta.normalize_config({"vocab_size": 30522} | raw),
        heads=heads,
        architecture=f"{class_prefix}Model",
    )


XLM_ROBERTA = _roberta_variant(
    "xlm_roberta", "XLMRoberta", XlmRobertaConfig, "xlm-roberta", "encoder: RoBERTa, trained on a hundred languages"
)
CAMEMBERT = _roberta_variant(
    "camembert", "Camembert", CamembertConfig, "camembert", "encoder: RoBERTa, trained on French"
)

MISTRAL_PUBLISHED_DEFAULTS: dict[str, Any] = {  # defaults of keys that a published config leaves out
    "vocab_size": 32000,
    "rms_norm_eps": 1e-6,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "max_position_embeddings": 4096 * 32,
    "sliding_window": 4096,
}


def normalize_mistral_config(raw: dict[str, Any]) -> dict[str, Any]:
    """As LLaMA's; the sliding window has a default and is off only if it is null, as from version 0.2 on."""
    return llama.normalize_config(MISTRAL_PUBLISHED_DEFAULTS | raw, "mistral")


def sliding_pattern(window: int | None) -> Pattern:
    """Causal attention, limited to the last `window` tokens, the current one included, if a window is set."""
    return CAUSAL if window is None else Window(window - 1, 0)


MISTRAL = replace(
    llama.FAMILY,
    name="mistral",
    description="decoder: LLaMA with grouped-query attention, with or without a sliding window",
    config_class=MistralConfig,
    build=lambda config: llama.Llama(config, pattern=sliding_pattern(config.sliding_window)),
    config_keys={**llama.FAMILY.config_keys, "sliding_window": "sliding_window"},
    required_values={"hidden_act": "silu"},
    normalize_config=normalize_mistral_config,
    architecture="MistralForCausalLM",
)
