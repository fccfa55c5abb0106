"""ELECTRA: pretraining by replaced token detection, with a generator and a discriminator (Clark et al. 2020, arXiv 2003.10555).

A small generator fills in masked tokens, and the discriminator predicts which tokens were replaced. Both are BERTs whose token
embeddings are narrower than their layers, with a projection in between. Fine-tuning starts from the discriminator.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models.capabilities import EMBEDDING_ENCODER
from saccade.models.families import bert
from saccade.models.families.bert import Activation, classifier_dropout, make_encoder_stack
from saccade.models.family import Family, HeadSpec
from saccade.models.init import init_normal
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import SegmentEmbedding, TokenEmbedding
from saccade.parts.heads import ClassificationHead, FirstTokenPool, LMHead, SpanHead, TokenClassificationHead
from saccade.parts.position import AdditivePosition, Position, get_position


@dataclass(frozen=True)
class Config(bert.Config):
    embedding_width: int = 128  # Width of the token embeddings, projected to the model width.
    width: int = 256  # Model width (hidden size) of every layer.
    heads: int = 4  # Number of attention heads per layer.
    ffn_width: int = 1024  # Width of the feed-forward hidden layer.
    position: str = "learned"  # Position scheme: learned as published, or another, such as rotary.


class Electra(nn.Module):
    """The sum of token, segment and position embeddings, LayerNorm, a projection to the model width, then BERT's stack."""

    def __init__(self, config: Config):
        super().__init__()
        narrow = config.embedding_width
        self.width: int = config.width
        self.words: TokenEmbedding = TokenEmbedding(config.vocab, narrow)
        self.segments: SegmentEmbedding = SegmentEmbedding(config.segments, narrow)
        self.stack = make_encoder_stack(config, make_position(config))
        widen = [] if narrow == config.width else [nn.Linear(narrow, config.width)]
        self.stack.enter = nn.Sequential(nn.LayerNorm(narrow, eps=config.eps), Dropout(config.dropout), *widen)

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "ELECTRA takes text"
        return self.stack(self.segments(self.words(text.tokens), text.segment_ids), text.layout)


def make_position(config: Config) -> Position:
    """The position scheme: of embedding width if it is added to the input, otherwise of model width."""
    entry = get_position(config.position)
    position = entry.make(
        config.embedding_width if entry.is_added_to_input else config.width, config.heads, config.max_positions
    )
    if position.extra_width:
        raise ModelError(
            f"electra does not support position {config.position!r}, which makes the layers wider; use rotary or learned."
        )
    return position


class ReplacedTokenHead(nn.Module):
    """The logit of each token for having been replaced, (B, L)."""

    def __init__(self, width: int, activation: str):
        super().__init__()
        self.between: nn.Sequential = nn.Sequential(nn.Linear(width, width), Activation(activation))
        self.score: nn.Linear = nn.Linear(width, 1)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.score(self.between(x)).squeeze(-1)


def lm_head(config: Config, body: Electra, labels: int = 0) -> LMHead:
    """The masked-LM head of the generator: a projection to the embedding width, then logits tied to the token embeddings."""
    narrow = config.embedding_width
    between = nn.Sequential(nn.Linear(config.width, narrow), Activation("gelu"), nn.LayerNorm(narrow, eps=config.eps))
    return LMHead(narrow, config.vocab, tied_embedding=body.words.vectors, between=between, bias=True)


def replaced_token_head(config: Config, body: Electra, labels: int = 0) -> ReplacedTokenHead:
    """The head of the discriminator."""
    return ReplacedTokenHead(config.width, config.activation)


def label_head(config: Config, body: Electra, labels: int) -> ClassificationHead:
    """The classification head: the first token, through a dense layer and GELU, with dropout before and after."""
    between = nn.Sequential(Dropout(classifier_dropout(config)), nn.Linear(config.width, config.width), nn.GELU())
    return ClassificationHead(
        config.width, labels, pool=FirstTokenPool(), between=between, dropout=classifier_dropout(config)
    )


def share_embeddings(source: Electra, target: Electra) -> None:
    """Share embeddings and embedding norm of `source` with `target`; projection and rotary positions stay separate."""
    target.words, target.segments = source.words, source.segments
    if isinstance(source.stack.position, AdditivePosition):
        target.stack.position = source.stack.position
    _, *rest = target.stack.enter.children()
    target.stack.enter = nn.Sequential(next(source.stack.enter.children()), *rest)


FAMILY = Family(
    name="electra",
    description="encoder: BERT with narrow token embeddings, pretrained by replaced token detection",
    config_class=Config,
    build=Electra,
    capabilities=lambda config: EMBEDDING_ENCODER,
    weight_map=lambda config: {
        **bert.EMBEDDING_WEIGHT_MAP,
        "embeddings_project": "stack.enter.2",
        **bert.LAYER_WEIGHT_MAP,
    },
    config_keys=bert.CONFIG_KEYS | {"embedding_size": "embedding_width"},
    required_values={**bert.FAMILY.required_values, "tie_word_embeddings": True},
    heads={
        "lm": HeadSpec(
            lm_head,
            {
                "generator_predictions.dense": "between.0",
                "generator_predictions.LayerNorm": "between.2",
                "generator_lm_head": "score",
            },
            "ElectraForMaskedLM",
        ),
        "replaced_token_detection": HeadSpec(
            replaced_token_head,
            {
                "discriminator_predictions.dense": "between.0",
                "discriminator_predictions.dense_prediction": "score",
            },
            "ElectraForPreTraining",
        ),
        "label": HeadSpec(
            label_head,
            {"classifier.dense": "between.1", "classifier.out_proj": "score"},
            "ElectraForSequenceClassification",
        ),
        "tag": HeadSpec(
            lambda config, body, labels: TokenClassificationHead(
                config.width, labels, dropout=classifier_dropout(config)
            ),
            {"classifier": "score"},
            "ElectraForTokenClassification",
        ),
        "span": HeadSpec(
            lambda config, body, labels: SpanHead(config.width), {"qa_outputs": "score"}, "ElectraForQuestionAnswering"
        ),
    },
    prefix="electra.",
    ignored_tensors=(r"embeddings\.position_ids",),
    architecture="ElectraModel",
    init_weights=init_normal,
    is_unpublished=lambda config: config.position != "learned",
)
