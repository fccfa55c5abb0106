"""RoBERTa: BERT trained longer on more text; position ids start after the padding id (Liu et al. 2019, arXiv 1907.11692)."""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from saccade.errors import ModelError
from saccade.models.capabilities import EMBEDDING_ENCODER
from saccade.models.families import bert
from saccade.models.families.bert import Bert, classifier_dropout
from saccade.models.family import Family, HeadSpec
from saccade.models.init import init_normal
from saccade.parts.dropout import Dropout
from saccade.parts.heads import ClassificationHead, FirstTokenPool, LMHead, SpanHead, TokenClassificationHead
from saccade.parts.position import Learned


@dataclass(frozen=True)
class Config(bert.Config):
    vocab: int = 50265  # Vocabulary size: number of token ids.
    segments: int = 1  # Number of segment types (token type ids).
    eps: float = 1e-5  # Epsilon of layer normalization.
    pad_id: int = 1  # Id of the padding token; position ids start after it.


def build(config: Config) -> Bert:
    """BERT with position ids that start after the padding id."""
    return Bert(config, Learned(config.max_positions, config.width, offset=config.pad_id + 1))


def lm_head(config: Config, body: Bert, labels: int = 0) -> LMHead:
    """BERT's head, with GELU whatever the activation of the layers."""
    return bert.lm_head(replace(config, activation="gelu"), body)


def label_head(config: Config, body: Bert, labels: int) -> ClassificationHead:
    """The classification head: the first token, through a dense layer and tanh, with dropout before and after."""
    between = nn.Sequential(Dropout(classifier_dropout(config)), nn.Linear(config.width, config.width), nn.Tanh())
    return ClassificationHead(
        config.width, labels, pool=FirstTokenPool(), between=between, dropout=classifier_dropout(config)
    )


PUBLISHED_DEFAULTS = {
    "vocab_size": 50265,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 1,
}


def normalize_config(raw: dict[str, Any]) -> dict[str, Any]:
    """Subtract the unused position embeddings, which the published `max_position_embeddings` counts."""
    raw = PUBLISHED_DEFAULTS | raw
    positions, padding, vocab = (raw[key] for key in ("max_position_embeddings", "pad_token_id", "vocab_size"))
    if not all(isinstance(number, int) for number in (positions, padding, vocab)) or not 0 <= padding < vocab:
        raise ModelError(
            f"Position ids start after the padding id: pad_token_id = {padding!r} must be one of the {vocab!r} ids, and "
            f"max_position_embeddings = {positions!r} a whole number."
        )
    return raw | {"max_position_embeddings": positions - padding - 1}


FAMILY = Family(
    name="roberta",
    description="encoder: BERT with position ids that start after the padding id",
    config_class=Config,
    build=build,
    capabilities=lambda config: EMBEDDING_ENCODER,
    weight_map=bert.FAMILY.weight_map,
    config_keys=bert.CONFIG_KEYS | {"pad_token_id": "pad_id"},
    required_values={**bert.FAMILY.required_values, "tie_word_embeddings": True},
    derived_keys=lambda config: {"max_position_embeddings": config.max_positions + config.pad_id + 1},
    normalize_config=normalize_config,
    heads={
        "lm": HeadSpec(
            lm_head,
            {
                "lm_head.dense": "between.0",
                "lm_head.layer_norm": "between.2",
                "lm_head.bias": "score.bias",
                "lm_head.decoder.weight": "score.weight",
                "lm_head.decoder.bias": "score.bias",
            },
            "RobertaForMaskedLM",
        ),
        "label": HeadSpec(
            label_head,
            {"classifier.dense": "between.1", "classifier.out_proj": "score"},
            "RobertaForSequenceClassification",
        ),
        "tag": HeadSpec(
            lambda config, body, labels: TokenClassificationHead(
                config.width, labels, dropout=classifier_dropout(config)
            ),
            {"classifier": "score"},
            "RobertaForTokenClassification",
        ),
        "span": HeadSpec(
            lambda config, body, labels: SpanHead(config.width), {"qa_outputs": "score"}, "RobertaForQuestionAnswering"
        ),
    },
    prefix="roberta.",
    ignored_tensors=(r"embeddings\.position_ids",),
    pooler_tensors=(r"pooler\..*",),
    architecture="RobertaModel",
    extra_tensors=bert.unused_pooler,
    token_template="roberta",
    init_weights=init_normal,
)
