"""BERT: an encoder with segment embeddings, learned positions and post-norm (Devlin et al. 2019, arXiv 1810.04805)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from saccade.attention import FULL, ScaledDot
from saccade.data import Batch, Text
from saccade.models.capabilities import EMBEDDING_ENCODER
from saccade.models.family import ExtraTensors, Family, HeadSpec
from saccade.models.init import extra_dense, init_normal
from saccade.models.weight_map import WeightMap
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import SegmentEmbedding, TokenEmbedding
from saccade.parts.feedforward import ACTIVATIONS, FeedForward
from saccade.parts.heads import ClassificationHead, FirstTokenPool, LMHead, SpanHead, TokenClassificationHead
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import Learned, Position
from saccade.parts.stack import Stack

AttentionFactory = Callable[[int], nn.Module]  # layer index -> attention module


@dataclass(frozen=True)
class Config:
    vocab: int = 30522  # Vocabulary size: number of token ids.
    width: int = 768  # Model width (hidden size) of every layer.
    layers: int = 12  # Number of encoder layers (transformer blocks).
    heads: int = 12  # Number of attention heads per layer.
    ffn_width: int = 3072  # Width of the feed-forward hidden layer.
    max_positions: int = 512  # Maximum sequence length in tokens.
    segments: int = 2  # Number of segment types (token type ids).
    activation: str = "gelu"  # Activation function of the feed-forward layers.
    eps: float = 1e-12  # Epsilon of layer normalization.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    attention_dropout: float = 0.1  # Dropout rate of attention weights; needs `use_attention_dropout`.
    use_attention_dropout: bool = False  # Apply attention dropout in training; off: attention weights get no dropout.
    classifier_dropout: float | None = None
    """Dropout rate before a classification or tagging head; default: as `dropout`."""


class Bert(nn.Module):
    """The sum of token, segment and position embeddings, LayerNorm, then the encoder stack."""

    def __init__(self, config: Config, position: Learned | None = None, make_attention: AttentionFactory | None = None):
        super().__init__()
        self.width: int = config.width
        self.words: TokenEmbedding = TokenEmbedding(config.vocab, config.width)
        self.segments: SegmentEmbedding = SegmentEmbedding(config.segments, config.width)
        self.stack: Stack = make_encoder_stack(
            config, position or Learned(config.max_positions, config.width), make_attention
        )

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "BERT takes text"
        return self.stack(self.segments(self.words(text.tokens), text.segment_ids), text.layout)


def make_encoder_stack(config, position: Position, make_attention: AttentionFactory | None = None) -> Stack:
    """BERT's encoder stack, shared by several families: LayerNorm and dropout after the embeddings, then post-norm layers.

    `make_attention` makes the attention of each layer; the default is BERT's.
    """
    norm = partial(nn.LayerNorm, eps=config.eps)
    drop = config.attention_dropout if config.use_attention_dropout else 0.0
    make_attention = make_attention or (lambda index: Attention(config.width, config.heads, ScaledDot(dropout=drop)))
    layers = [
        make_layer(
            make_attention(index),
            FeedForward(config.width, config.ffn_width, config.activation),
            width=config.width,
            norm_first=False,
            norm=norm,
            dropout=config.dropout,
        )
        for index in range(config.layers)
    ]
    return Stack(layers, FULL, position, enter=nn.Sequential(norm(config.width), Dropout(config.dropout)))


EMBEDDING_WEIGHT_MAP: WeightMap = {
    "embeddings.word_embeddings": "words.vectors",
    "embeddings.position_embeddings": "stack.position.vectors",
    "embeddings.token_type_embeddings": "segments.vectors",
    "embeddings.LayerNorm": "stack.enter.0",
}
LAYER_WEIGHT_MAP: WeightMap = {
    "encoder.layer.{}.attention.self.query": "stack.layers.{}.attention.branch.query",
    "encoder.layer.{}.attention.self.key": "stack.layers.{}.attention.branch.key",
    "encoder.layer.{}.attention.self.value": "stack.layers.{}.attention.branch.value",
    "encoder.layer.{}.attention.output.dense": "stack.layers.{}.attention.branch.output",
    "encoder.layer.{}.attention.output.LayerNorm": "stack.layers.{}.attention.norm",
    "encoder.layer.{}.intermediate.dense": "stack.layers.{}.feedforward.branch.up",
    "encoder.layer.{}.output.dense": "stack.layers.{}.feedforward.branch.down",
    "encoder.layer.{}.output.LayerNorm": "stack.layers.{}.feedforward.norm",
}
CONFIG_KEYS = {
    "vocab_size": "vocab",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "ffn_width",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "segments",
    "hidden_act": "activation",
    "layer_norm_eps": "eps",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "classifier_dropout",
}


class Activation(nn.Module):
    """An activation function by name, as a module."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.name](x)


def classifier_dropout(config) -> float:
    """The dropout rate before the output layer of classification and tagging heads."""
    return config.dropout if config.classifier_dropout is None else config.classifier_dropout


def lm_head(config, body, labels: int = 0) -> LMHead:
    """The masked-LM head: a dense layer, activation and LayerNorm, then logits tied to the token embeddings."""
    between = nn.Sequential(
        nn.Linear(config.width, config.width), Activation(config.activation), nn.LayerNorm(config.width, eps=config.eps)
    )
    return LMHead(config.width, config.vocab, tied_embedding=body.words.vectors, between=between, bias=True)


def label_head(config: Config, body: Bert, labels: int) -> ClassificationHead:
    """The classification head: the first token, through a dense layer and tanh."""
    between = nn.Sequential(nn.Linear(config.width, config.width), nn.Tanh())
    return ClassificationHead(
        config.width, labels, pool=FirstTokenPool(), between=between, dropout=classifier_dropout(config)
    )


def unused_pooler(config) -> ExtraTensors:
    """The pooler of the published body, which it has with any head; here it is part of the classification head."""
    return extra_dense("pooler.dense", config.width)


FAMILY = Family(
    name="bert",
    description="encoder: segment embeddings, learned positions, post-norm",
    config_class=Config,
    build=Bert,
    capabilities=lambda config: EMBEDDING_ENCODER,
    weight_map=lambda config: EMBEDDING_WEIGHT_MAP | LAYER_WEIGHT_MAP,  # type: ignore[operator]
    config_keys=CONFIG_KEYS,
    required_values={
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    accepted_values={"position_embedding_type": "absolute"},
    heads={
        "lm": HeadSpec(
            lm_head,
            {
                "cls.predictions.transform.dense": "between.0",
                "cls.predictions.transform.LayerNorm": "between.2",
                "cls.predictions.bias": "score.bias",
                "cls.predictions.decoder.weight": "score.weight",
                "cls.predictions.decoder.bias": "score.bias",
            },
            "BertForMaskedLM",
            other_architectures=("BertForPreTraining",),
        ),
        "label": HeadSpec(
            label_head, {"bert.pooler.dense": "between.0", "classifier": "score"}, "BertForSequenceClassification"
        ),
        "tag": HeadSpec(
            lambda config, body, labels: TokenClassificationHead(
                config.width, labels, dropout=classifier_dropout(config)
            ),
            {"classifier": "score"},
            "BertForTokenClassification",
        ),
        "span": HeadSpec(
            lambda config, body, labels: SpanHead(config.width), {"qa_outputs": "score"}, "BertForQuestionAnswering"
        ),
    },
    prefix="bert.",
    ignored_tensors=(r"embeddings\.position_ids",),
    pooler_tensors=(r"pooler\..*",),
    architecture="BertModel",
    extra_tensors=unused_pooler,
    init_weights=init_normal,
)
