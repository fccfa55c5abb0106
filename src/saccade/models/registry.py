"""The registry of model families: every architecture of the package, in order."""

from saccade.errors import ModelError
from saccade.models import derived_families
from saccade.models.decoder_only import DecoderOnly
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.families import (
    bart,
    bert,
    bigbird,
    captioner,
    dalle,
    distilbert,
    electra,
    gemma3,
    gpt2,
    gpt_neox,
    kernel_regression,
    linformer,
    llama,
    longformer,
    marian,
    marian_ssru,
    qwen,
    reformer,
    rnn,
    roberta,
    senet,
    t5,
    transformer,
    vit,
)
from saccade.models.families.speech import speech_decoders, speech_encoder
from saccade.models.family import AutoregressiveBody, Family
from saccade.suggest import suggest

FAMILIES: list[Family] = [
    rnn.FAMILY,
    rnn.LM_FAMILY,
    rnn.ENCODER_FAMILY,
    transformer.FAMILY,
    transformer.LM_FAMILY,
    transformer.ENCODER_FAMILY,
    bert.FAMILY,
    roberta.FAMILY,
    derived_families.XLM_ROBERTA,
    derived_families.CAMEMBERT,
    distilbert.FAMILY,
    electra.FAMILY,
    longformer.FAMILY,
    bigbird.FAMILY,
    linformer.FAMILY,
    reformer.FAMILY,
    gpt2.FAMILY,
    llama.FAMILY,
    derived_families.MISTRAL,
    qwen.QWEN2,
    qwen.QWEN3,
    gpt_neox.FAMILY,
    gemma3.FAMILY,
    t5.FAMILY,
    bart.FAMILY,
    marian.FAMILY,
    marian_ssru.FAMILY,
    vit.FAMILY,
    senet.FAMILY,
    speech_encoder.FAMILY,
    speech_decoders.FAMILY,
    speech_decoders.TRANSFORMER_FAMILY,
    captioner.FAMILY,
    captioner.TRANSFORMER_FAMILY,
    captioner.VIT_FAMILY,
    dalle.FAMILY,
    kernel_regression.FAMILY,
]

# Lets the type checker verify that these classes implement the protocol.
AUTOREGRESSIVE_MODELS: tuple[type[AutoregressiveBody], ...] = (
    DecoderOnly,
    EncoderDecoder,
    gpt2.GPT2,
    transformer.TransformerLanguageModel,
    rnn.RNNLanguageModel,
    rnn.RNNTranslator,
    captioner.RNNCaptioner,
    speech_decoders.ListenAttendSpell,
    dalle.DallE,
)


def get_family(name: str) -> Family:
    """Return the family with this name; the error for an unknown name suggests the nearest one."""
    for entry in FAMILIES:
        if name in (entry.name, entry.required_values.get("model_type")):
            return entry
    raise ModelError(f"Unknown family {name!r}; {suggest(name, [entry.name for entry in FAMILIES])}")
