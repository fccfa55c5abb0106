"""DistilBERT: BERT with half the layers and no segments, taught by BERT itself (Sanh et al. 2019, arXiv 1910.01108)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.models.bert import stack, word_head
from saccade.models.capabilities import ENCODER
from saccade.models.family import Family, Head
from saccade.models.fresh import spread
from saccade.models.weights import Names
from saccade.parts.embed import Words
from saccade.parts.heads import First, LabelHead, SpanHead, TagHead
from saccade.parts.position import Learned


@dataclass(frozen=True)
class Config:
    vocab: int = 30522
    width: int = 768
    layers: int = 6
    heads: int = 12
    inner: int = 3072
    length: int = 512
    activation: str = "gelu"
    dropout: float = 0.1
    label_dropout: float = 0.2
    span_dropout: float = 0.1
    weight_dropout: float = 0.1  # as published; applies when `drop_weights` asks for it
    drop_weights: bool = False
    eps: ClassVar[float] = 1e-12  # the published form leaves no choice


class DistilBert(nn.Module):
    """Words and positions, summed and normalised; then the stack."""

    def __init__(self, config: Config):
        super().__init__()
        self.width = config.width
        self.words = Words(config.vocab, config.width)
        self.stack = stack(config, Learned(config.length, config.width))

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "DistilBERT reads text"
        return self.stack(self.words(text.tokens), text.layout)


def label_head(config: Config, body: DistilBert, labels: int) -> LabelHead:
    """The first token, through a dense layer and ReLU."""
    between = nn.Sequential(nn.Linear(config.width, config.width), nn.ReLU())
    return LabelHead(config.width, labels, pool=First(), between=between, dropout=config.label_dropout)


NAMES: Names = {
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
    said="encoder: half of BERT's layers, no segments",
    config=Config,
    build=DistilBert,
    capabilities=lambda config: ENCODER,
    names=lambda config: NAMES,
    keys={
        "vocab_size": "vocab",
        "dim": "width",
        "n_layers": "layers",
        "n_heads": "heads",
        "hidden_dim": "inner",
        "max_position_embeddings": "length",
        "activation": "activation",
        "dropout": "dropout",
        "seq_classif_dropout": "label_dropout",
        "qa_dropout": "span_dropout",
        "attention_dropout": "weight_dropout",
    },
    fixed={"tie_word_embeddings": True},
    heads={
        "words": Head(
            word_head,
            {"vocab_transform": "between.0", "vocab_layer_norm": "between.2", "vocab_projector": "score"},
            "DistilBertForMaskedLM",
        ),
        "label": Head(
            label_head,
            {"pre_classifier": "between.0", "classifier": "score"},
            "DistilBertForSequenceClassification",
        ),
        "tag": Head(
            lambda config, body, labels: TagHead(config.width, labels, dropout=config.dropout),
            {"classifier": "score"},
            "DistilBertForTokenClassification",
        ),
        "span": Head(
            lambda config, body, labels: SpanHead(config.width, dropout=config.span_dropout),
            {"qa_outputs": "score"},
            "DistilBertForQuestionAnswering",
        ),
    },
    prefix="distilbert.",
    ignored=(r"embeddings\.position_ids",),
    architecture="DistilBertModel",
    fresh=spread,
)
