"""BERT: an encoder of words, segments and learned positions, norm after each branch (Devlin et al. 2019, arXiv 1810.04805)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from saccade.attention import FULL, ScaledDot
from saccade.data import Batch, Text
from saccade.models.capabilities import ENCODER
from saccade.models.family import Family, Head, Spares
from saccade.models.fresh import dense, spread
from saccade.models.weights import Names
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Segments, Words
from saccade.parts.feedforward import ACTIVATIONS, FeedForward
from saccade.parts.heads import First, LabelHead, SpanHead, TagHead, WordHead
from saccade.parts.layer import layer
from saccade.parts.multihead import Attention
from saccade.parts.position import Learned, Position
from saccade.parts.stack import Stack

Look = Callable[[int], nn.Module]  # the number of a layer -> its attention


@dataclass(frozen=True)
class Config:
    vocab: int = 30522
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    length: int = 512
    segments: int = 2
    activation: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.1
    weight_dropout: float = 0.1  # as published; applies when `drop_weights` asks for it
    drop_weights: bool = False
    head_dropout: float | None = None  # before a head for labels or tags: as `dropout`, unless said otherwise


class Bert(nn.Module):
    """Words, segments and positions, summed and normalised; then the stack."""

    def __init__(self, config: Config, position: Learned | None = None, look: Look | None = None):
        super().__init__()
        self.width = config.width
        self.words = Words(config.vocab, config.width)
        self.segments = Segments(config.segments, config.width)
        self.stack = stack(config, position or Learned(config.length, config.width), look)

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "BERT reads text"
        return self.stack(self.segments(self.words(text.tokens), text.segment), text.layout)


def stack(config, position: Position, look: Look | None = None) -> Stack:
    """BERT's encoder, for all who have it: what enters is normalised and dropped, every branch is normalised after.

    `look` makes the attention of each layer where it is another than BERT's.
    """
    norm = partial(nn.LayerNorm, eps=config.eps)
    drop = config.weight_dropout if config.drop_weights else 0.0
    look = look or (lambda number: Attention(config.width, config.heads, ScaledDot(dropout=drop)))
    layers = [
        layer(
            look(number),
            FeedForward(config.width, config.inner, config.activation),
            width=config.width,
            norm_first=False,
            norm=norm,
            dropout=config.dropout,
        )
        for number in range(config.layers)
    ]
    return Stack(layers, FULL, position, enter=nn.Sequential(norm(config.width), Dropout(config.dropout)))


EMBEDDINGS: Names = {
    "embeddings.word_embeddings": "words.vectors",
    "embeddings.position_embeddings": "stack.position.vectors",
    "embeddings.token_type_embeddings": "segments.vectors",
    "embeddings.LayerNorm": "stack.enter.0",
}
LAYERS: Names = {
    "encoder.layer.{}.attention.self.query": "stack.layers.{}.attention.branch.query",
    "encoder.layer.{}.attention.self.key": "stack.layers.{}.attention.branch.key",
    "encoder.layer.{}.attention.self.value": "stack.layers.{}.attention.branch.value",
    "encoder.layer.{}.attention.output.dense": "stack.layers.{}.attention.branch.output",
    "encoder.layer.{}.attention.output.LayerNorm": "stack.layers.{}.attention.norm",
    "encoder.layer.{}.intermediate.dense": "stack.layers.{}.feedforward.branch.up",
    "encoder.layer.{}.output.dense": "stack.layers.{}.feedforward.branch.down",
    "encoder.layer.{}.output.LayerNorm": "stack.layers.{}.feedforward.norm",
}
KEYS = {
    "vocab_size": "vocab",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "inner",
    "max_position_embeddings": "length",
    "type_vocab_size": "segments",
    "hidden_act": "activation",
    "layer_norm_eps": "eps",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "weight_dropout",
    "classifier_dropout": "head_dropout",
}


class Bend(nn.Module):
    """A named activation between two layers of a head."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.name](x)


def head_drop(config) -> float:
    """How much is dropped before the scores of labels and tags."""
    return config.dropout if config.head_dropout is None else config.head_dropout


def word_head(config, body, labels: int = 0) -> WordHead:
    """A dense layer and a norm, then the words' own vectors."""
    between = nn.Sequential(
        nn.Linear(config.width, config.width), Bend(config.activation), nn.LayerNorm(config.width, eps=config.eps)
    )
    return WordHead(config.width, config.vocab, tied=body.words.vectors, between=between, bias=True)


def label_head(config: Config, body: Bert, labels: int) -> LabelHead:
    """The first token, through a dense layer and tanh."""
    between = nn.Sequential(nn.Linear(config.width, config.width), nn.Tanh())
    return LabelHead(config.width, labels, pool=First(), between=between, dropout=head_drop(config))


def pooler(config) -> Spares:
    """A dense layer that the published body has for its summary; here it belongs to the head that uses it."""
    return dense("pooler.dense", config.width)


FAMILY = Family(
    name="bert",
    said="encoder: words, segments, learned positions, norm after",
    config=Config,
    build=Bert,
    capabilities=lambda config: ENCODER,
    names=lambda config: EMBEDDINGS | LAYERS,  # type: ignore[operator]
    keys=KEYS,
    fixed={
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    only={"position_embedding_type": "absolute"},
    heads={
        "words": Head(
            word_head,
            {
                "cls.predictions.transform.dense": "between.0",
                "cls.predictions.transform.LayerNorm": "between.2",
                "cls.predictions.bias": "score.bias",
                "cls.predictions.decoder.weight": "score.weight",
                "cls.predictions.decoder.bias": "score.bias",
            },
            "BertForMaskedLM",
            also_in=("BertForPreTraining",),
        ),
        "label": Head(
            label_head, {"bert.pooler.dense": "between.0", "classifier": "score"}, "BertForSequenceClassification"
        ),
        "tag": Head(
            lambda config, body, labels: TagHead(config.width, labels, dropout=head_drop(config)),
            {"classifier": "score"},
            "BertForTokenClassification",
        ),
        "span": Head(
            lambda config, body, labels: SpanHead(config.width), {"qa_outputs": "score"}, "BertForQuestionAnswering"
        ),
    },
    prefix="bert.",
    ignored=(r"embeddings\.position_ids",),
    pooler=(r"pooler\..*",),
    architecture="BertModel",
    spare=pooler,
    fresh=spread,
)
