"""RoBERTa: BERT trained longer on more text; its positions start after those of padding (Liu et al. 2019, arXiv 1907.11692)."""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from saccade.errors import ModelError
from saccade.models import bert
from saccade.models.bert import Bert, head_drop
from saccade.models.capabilities import ENCODER
from saccade.models.family import Family, Head
from saccade.models.fresh import spread
from saccade.parts.dropout import Dropout
from saccade.parts.heads import First, LabelHead, SpanHead, TagHead, WordHead
from saccade.parts.position import Learned


@dataclass(frozen=True)
class Config(bert.Config):
    vocab: int = 50265
    segments: int = 1
    eps: float = 1e-5
    padding: int = 1  # the id of padding; position vectors up to it belong to nobody


def build(config: Config) -> Bert:
    """BERT, with its first position behind the place of padding."""
    return Bert(config, Learned(config.length, config.width, offset=config.padding + 1))


def word_head(config: Config, body: Bert, labels: int = 0) -> WordHead:
    """As BERT's, with GELU whatever the layers have."""
    return bert.word_head(replace(config, activation="gelu"), body)


def label_head(config: Config, body: Bert, labels: int) -> LabelHead:
    """The first token, through a dense layer and tanh, with dropout on both sides."""
    between = nn.Sequential(Dropout(head_drop(config)), nn.Linear(config.width, config.width), nn.Tanh())
    return LabelHead(config.width, labels, pool=First(), between=between, dropout=head_drop(config))


UNSAID = {
    "vocab_size": 50265,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 1,
}


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """Published lengths count the vectors, also those that belong to nobody."""
    raw = UNSAID | raw
    places, padding, vocab = (raw[key] for key in ("max_position_embeddings", "pad_token_id", "vocab_size"))
    if not all(isinstance(number, int) for number in (places, padding, vocab)) or not 0 <= padding < vocab:
        raise ModelError(
            f"Positions start after that of padding: max_position_embeddings = {places!r} needs to be a whole number, "
            f"pad_token_id = {padding!r} one of the {vocab!r} ids."
        )
    return raw | {"max_position_embeddings": places - padding - 1}


FAMILY = Family(
    name="roberta",
    said="encoder: BERT, with positions that start after padding's",
    config=Config,
    build=build,
    capabilities=lambda config: ENCODER,
    names=bert.FAMILY.names,
    keys=bert.KEYS | {"pad_token_id": "padding"},
    fixed={**bert.FAMILY.fixed, "tie_word_embeddings": True},
    also=lambda config: {"max_position_embeddings": config.length + config.padding + 1},
    adapt=adapt,
    heads={
        "words": Head(
            word_head,
            {
                "lm_head.dense": "between.0",
                "lm_head.layer_norm": "between.2",
                "lm_head.bias": "score.bias",
                "lm_head.decoder.weight": "score.weight",
                "lm_head.decoder.bias": "score.bias",
            },
            "RobertaForMaskedLM",
        ),
        "label": Head(
            label_head,
            {"classifier.dense": "between.1", "classifier.out_proj": "score"},
            "RobertaForSequenceClassification",
        ),
        "tag": Head(
            lambda config, body, labels: TagHead(config.width, labels, dropout=head_drop(config)),
            {"classifier": "score"},
            "RobertaForTokenClassification",
        ),
        "span": Head(
            lambda config, body, labels: SpanHead(config.width), {"qa_outputs": "score"}, "RobertaForQuestionAnswering"
        ),
    },
    prefix="roberta.",
    ignored=(r"embeddings\.position_ids",),
    pooler=(r"pooler\..*",),
    architecture="RobertaModel",
    spare=bert.pooler,
    frame="roberta",
    fresh=spread,
)
