"""Every family of the package, in order: the table that tests and tools run over."""

from saccade.attention.table import nearest
from saccade.errors import ModelError
from saccade.models import (
    bart,
    bert,
    bigbird,
    captioner,
    distilbert,
    electra,
    gemma3,
    gpt2,
    gpt_neox,
    kernel,
    linformer,
    llama,
    longformer,
    marian,
    marian_student,
    painter,
    qwen,
    reformer,
    relatives,
    rnn,
    roberta,
    senet,
    t5,
    transformer,
    vit,
)
from saccade.models.family import Family

FAMILIES: list[Family] = [
    rnn.FAMILY,
    rnn.LANGUAGE,
    rnn.READER,
    transformer.FAMILY,
    transformer.LANGUAGE,
    transformer.READER,
    bert.FAMILY,
    roberta.FAMILY,
    relatives.XLM_ROBERTA,
    relatives.CAMEMBERT,
    distilbert.FAMILY,
    electra.FAMILY,
    longformer.FAMILY,
    bigbird.FAMILY,
    linformer.FAMILY,
    reformer.FAMILY,
    gpt2.FAMILY,
    llama.FAMILY,
    relatives.MISTRAL,
    qwen.QWEN2,
    qwen.QWEN3,
    gpt_neox.FAMILY,
    gemma3.FAMILY,
    t5.FAMILY,
    bart.FAMILY,
    marian.FAMILY,
    marian_student.FAMILY,
    vit.FAMILY,
    senet.FAMILY,
    captioner.FAMILY,
    captioner.TRANSFORMER,
    captioner.PATCHES,
    painter.FAMILY,
    kernel.FAMILY,
]


def family(name: str) -> Family:
    """The family of that name, or an error with the nearest."""
    for entry in FAMILIES:
        if name in (entry.name, entry.fixed.get("model_type")):
            return entry
    raise ModelError(f"There is no family {name!r}; {nearest(name, [entry.name for entry in FAMILIES])}")
