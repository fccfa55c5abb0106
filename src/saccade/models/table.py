"""Every family of the package, in order: the table that tests and tools run over."""

from saccade.models import (
    bart,
    bert,
    bigbird,
    distilbert,
    electra,
    gpt2,
    linformer,
    llama,
    longformer,
    marian,
    reformer,
    roberta,
    senet,
    t5,
    vit,
)
from saccade.models.family import Family

FAMILIES: list[Family] = [
    bert.FAMILY,
    roberta.FAMILY,
    distilbert.FAMILY,
    electra.FAMILY,
    longformer.FAMILY,
    bigbird.FAMILY,
    linformer.FAMILY,
    reformer.FAMILY,
    gpt2.FAMILY,
    llama.FAMILY,
    t5.FAMILY,
    bart.FAMILY,
    marian.FAMILY,
    vit.FAMILY,
    senet.FAMILY,
]
