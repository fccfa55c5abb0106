"""Families that are another one to the last tensor, under a published name of their own.

XLM-RoBERTa, for a hundred languages (Conneau et al. 2020, arXiv 1911.02116), and CamemBERT, for French (Martin et al. 2020,
arXiv 1911.03894), are RoBERTa; Mistral (Jiang et al. 2023, arXiv 2310.06825) is LLaMA with shared keys and, in its first version,
a sliding window.
"""

from dataclasses import dataclass, replace
from typing import Any

from saccade.attention import CAUSAL, Pattern, Window
from saccade.models import llama, roberta
from saccade.models.family import Family


@dataclass(frozen=True)
class XlmRobertaConfig(roberta.Config):
    vocab: int = 250_002


@dataclass(frozen=True)
class CamembertConfig(roberta.Config):
    vocab: int = 32_005


@dataclass(frozen=True)
class MistralConfig(llama.Config):
    vocab: int = 32_768
    key_heads: int | None = 8
    inner: int = 14_336
    length: int = 32_768
    base: float = 1_000_000.0
    eps: float = 1e-5
    window: int | None = None  # tokens that a token sees, itself among them; None: all that came before


def _roberta(name: str, published: str, config: type, model_type: str, description: str) -> Family:
    """RoBERTa under another name; what its published config leaves unsaid is RoBERTa's, but for the vocabulary."""
    heads = {
        kind: replace(head, architecture=head.architecture.replace("Roberta", published))
        for kind, head in roberta.FAMILY.heads.items()
    }
    return replace(
        roberta.FAMILY,
        name=name,
        said=description,
        config=config,
        fixed={**roberta.FAMILY.fixed, "model_type": model_type},
        adapt=lambda raw: roberta.adapt({"vocab_size": 30522} | raw),
        heads=heads,
        architecture=f"{published}Model",
    )


XLM_ROBERTA = _roberta(
    "xlm_roberta", "XLMRoberta", XlmRobertaConfig, "xlm-roberta", "encoder: RoBERTa, trained on a hundred languages"
)
CAMEMBERT = _roberta("camembert", "Camembert", CamembertConfig, "camembert", "encoder: RoBERTa, trained on French")

MISTRAL_UNSAID: dict[str, Any] = {  # what a published config means when it says nothing
    "vocab_size": 32000,
    "rms_norm_eps": 1e-6,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "max_position_embeddings": 4096 * 32,
    "sliding_window": 4096,
}


def adapt_mistral(raw: dict[str, Any]) -> dict[str, Any]:
    """As LLaMA's; a sliding window is there unless it is said to be null, as from version 0.2 on."""
    return llama.adapt(MISTRAL_UNSAID | raw, "mistral")


def sliding(window: int | None) -> Pattern:
    """All that came before, or the nearest `window` tokens, the newest among them."""
    return CAUSAL if window is None else Window(window - 1, 0)


MISTRAL = replace(
    llama.FAMILY,
    name="mistral",
    said="decoder: LLaMA whose heads share keys, with or without a sliding window",
    config=MistralConfig,
    build=lambda config: llama.Llama(config, pattern=sliding(config.window)),
    keys={**llama.FAMILY.keys, "sliding_window": "window"},
    fixed={"hidden_act": "silu"},
    adapt=adapt_mistral,
    architecture="MistralForCausalLM",
)
