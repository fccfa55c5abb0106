"""DistilBERT: BERT with half the layers and no segments, trained by distillation (Sanh et al. 2019, arXiv 1910.01108)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.models.capabilities import ENCODER, TextEncoderParts
from saccade.models.families.bert import lm_head, make_encoder_stack
from saccade.models.family import Family, HeadSpec
from saccade.models.init import init_normal
from saccade.models.weight_map import WeightMap
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.heads import ClassificationHead, FirstTokenPool, SpanHead, TokenClassificationHead
from saccade.parts.position import Learned


@dataclass(frozen=True)
class Config:
    vocab: int = 30522  # Vocabulary size: number of token ids.
    width: int = 768  # Model width (hidden size) of every layer.
    layers: int = 6  # Number of encoder layers (transformer blocks).
    heads: int = 12  # Number of attention heads per layer.
    ffn_width: int = 3072  # Width of the feed-forward hidden layer.
    max_positions: int = 512  # Maximum sequence length in tokens.
    activation: str = "gelu"  # Activation function of the feed-forward layers.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    label_dropout: float = 0.2  # Dropout rate before a classification head.
    span_dropout: float = 0.1  # Dropout rate before a question-answering head.
    attention_dropout: float = 0.1  # Dropout rate of attention weights; needs `use_attention_dropout`.
    use_attention_dropout: bool = False  # Apply attention dropout in training; off: attention weights get no dropout.
    eps: ClassVar[float] = 1e-12  # fixed in the published model


class DistilBert(nn.Module):
    """The sum of token and position embeddings, LayerNorm, then the encoder stack."""

    def __init__(self, config: Config):
        super().__init__()
        self.width: int = config.width
        self.words: TokenEmbedding = TokenEmbedding(config.vocab, config.width)
        self.stack = make_encoder_stack(config, Learned(config.max_positions, config.width))

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "DistilBERT takes text"
        return self.stack(self.words(text.tokens), text.layout)


def label_head(config: Config, body: DistilBert, labels: int) -> ClassificationHead:
    """The classification head: the first token, through a dense layer and ReLU."""
    between = nn.Sequential(nn.Linear(config.width, config.width), nn.ReLU())
    return ClassificationHead(
        config.width, labels, pool=FirstTokenPool(), between=between, dropout=config.label_dropout
    )


WEIGHT_MAP: WeightMap = {
    "embeddings.word_embeddings": "words.vectors",
    "embeddings.position_embeddings": "stack.position.vectors",
    "embeddings.LayerNorm": "stack.enter.0",
    "transformer.layer.{}.attention.q_lin": "stack.layers.{}.attention.branch.query",
    "transformer.layer.{}.attention.k_lin": "stack.layers.{}.attention.branch.key",
    "transformer.layer.{}.attention.v_lin": "stack.layers.{}.attention.branch.value",
    "transformer.layer.{}.attention.out_lin": "stack.layers.{}.attention.branch.output",
    "transformer.layer.{}.sa_layer_norm": "stack.layers.{}.attention.norm",
    "transformer.layer.{}.ffn.lin1": "stack.layers.{}.feedforward.branch.up",
    "transformer.layer.{}.ffn.lin2": "stack.layers.{}.feedforward.branch.down",
    "transformer.layer.{}.output_layer_norm": "stack.layers.{}.feedforward.norm",
}
FAMILY = Family(
    name="distilbert",
    description="encoder: BERT with half the layers and no segment embeddings",
    config_class=Config,
    build=DistilBert,
    capabilities=lambda config: replace(ENCODER, text_encoder=TextEncoderParts(segments="")),
    weight_map=lambda config: WEIGHT_MAP,
    config_keys={
        "vocab_size": "vocab",
        "dim": "width",
        "n_layers": "layers",
        "n_heads": "heads",
        "hidden_dim": "ffn_width",
        "max_position_embeddings": "max_positions",
        "activation": "activation",
        "dropout": "dropout",
        "seq_classif_dropout": "label_dropout",
        "qa_dropout": "span_dropout",
        "attention_dropout": "attention_dropout",
    },
    required_values={"tie_word_embeddings": True},
    heads={
        "lm": HeadSpec(
            lm_head,
            {"vocab_transform": "between.0", "vocab_layer_norm": "between.2", "vocab_projector": "score"},
            "DistilBertForMaskedLM",
        ),
        "label": HeadSpec(
            label_head,
            {"pre_classifier": "between.0", "classifier": "score"},
            "DistilBertForSequenceClassification",
        ),
        "tag": HeadSpec(
            lambda config, body, labels: TokenClassificationHead(config.width, labels, dropout=config.dropout),
            {"classifier": "score"},
            "DistilBertForTokenClassification",
        ),
        "span": HeadSpec(
            lambda config, body, labels: SpanHead(config.width, dropout=config.span_dropout),
            {"qa_outputs": "score"},
            "DistilBertForQuestionAnswering",
        ),
    },
    prefix="distilbert.",
    ignored_tensors=(r"embeddings\.position_ids",),
    architecture="DistilBertModel",
    init_weights=init_normal,
)
