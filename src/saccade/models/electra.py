"""ELECTRA: a small generator fills gaps, a discriminator spots which words are not the original ones (Clark et al. 2020, arXiv
2003.10555).

Both are BERTs whose word vectors are narrower than their layers, with a projection in between. What is kept for other tasks
is the discriminator.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models import bert
from saccade.models.bert import Bend, head_drop, stack
from saccade.models.capabilities import ENCODER
from saccade.models.family import Family, Head
from saccade.models.fresh import spread
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Segments, Words
from saccade.parts.heads import First, LabelHead, SpanHead, TagHead, WordHead
from saccade.parts.position import Placed, Position, position


@dataclass(frozen=True)
class Config(bert.Config):
    word_width: int = 128
    width: int = 256
    heads: int = 4
    inner: int = 1024
    position: str = "learned"  # as published; from nothing on little text another of POSITIONS, such as rotary


class Electra(nn.Module):
    """Words, segments and positions, summed, normalised and made as wide as the layers; then BERT's stack."""

    def __init__(self, config: Config):
        super().__init__()
        narrow = config.word_width
        self.width = config.width
        self.words = Words(config.vocab, narrow)
        self.segments = Segments(config.segments, narrow)
        self.stack = stack(config, positions(config))
        widen = [] if narrow == config.width else [nn.Linear(narrow, config.width)]
        self.stack.enter = nn.Sequential(nn.LayerNorm(narrow, eps=config.eps), Dropout(config.dropout), *widen)

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "ELECTRA reads text"
        return self.stack(self.segments(self.words(text.tokens), text.segment), text.layout)


def positions(config: Config) -> Position:
    """What is added is as wide as the words, what the layers do as wide as they."""
    entry = position(config.position)
    found = entry.make(config.word_width if entry.added else config.width, config.heads, config.length)
    if found.extra:
        raise ModelError(
            f"Positions that are {config.position} widen the layers of an ELECTRA: take rotary or learned ones."
        )
    return found


class ReplacedHead(nn.Module):
    """How much each token looks replaced, (B, L): above zero is more likely than not."""

    def __init__(self, width: int, activation: str):
        super().__init__()
        self.between = nn.Sequential(nn.Linear(width, width), Bend(activation))
        self.score = nn.Linear(width, 1)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.score(self.between(x)).squeeze(-1)


def word_head(config: Config, body: Electra, labels: int = 0) -> WordHead:
    """The generator's: back to the width of the words, whose own vectors do the scoring."""
    narrow = config.word_width
    between = nn.Sequential(nn.Linear(config.width, narrow), Bend("gelu"), nn.LayerNorm(narrow, eps=config.eps))
    return WordHead(narrow, config.vocab, tied=body.words.vectors, between=between, bias=True)


def replaced_head(config: Config, body: Electra, labels: int = 0) -> ReplacedHead:
    """The discriminator's."""
    return ReplacedHead(config.width, config.activation)


def label_head(config: Config, body: Electra, labels: int) -> LabelHead:
    """The first token, through a dense layer and GELU, with dropout on both sides."""
    between = nn.Sequential(Dropout(head_drop(config)), nn.Linear(config.width, config.width), nn.GELU())
    return LabelHead(config.width, labels, pool=First(), between=between, dropout=head_drop(config))


def share(one: Electra, other: Electra) -> None:
    """Let the other read with the vectors and the norm of the one; each keeps its own projection, and how its heads turn."""
    other.words, other.segments = one.words, one.segments
    if isinstance(one.stack.position, Placed):
        other.stack.position = one.stack.position
    _, *rest = other.stack.enter.children()
    other.stack.enter = nn.Sequential(next(one.stack.enter.children()), *rest)


FAMILY = Family(
    name="electra",
    said="encoder: BERT with narrow word vectors, trained to spot replaced words",
    config=Config,
    build=Electra,
    capabilities=lambda config: ENCODER,
    names=lambda config: {**bert.EMBEDDINGS, "embeddings_project": "stack.enter.2", **bert.LAYERS},
    keys=bert.KEYS | {"embedding_size": "word_width"},
    fixed={**bert.FAMILY.fixed, "tie_word_embeddings": True},
    heads={
        "words": Head(
            word_head,
            {
                "generator_predictions.dense": "between.0",
                "generator_predictions.LayerNorm": "between.2",
                "generator_lm_head": "score",
            },
            "ElectraForMaskedLM",
        ),
        "replaced": Head(
            replaced_head,
            {
                "discriminator_predictions.dense": "between.0",
                "discriminator_predictions.dense_prediction": "score",
            },
            "ElectraForPreTraining",
        ),
        "label": Head(
            label_head,
            {"classifier.dense": "between.1", "classifier.out_proj": "score"},
            "ElectraForSequenceClassification",
        ),
        "tag": Head(
            lambda config, body, labels: TagHead(config.width, labels, dropout=head_drop(config)),
            {"classifier": "score"},
            "ElectraForTokenClassification",
        ),
        "span": Head(
            lambda config, body, labels: SpanHead(config.width), {"qa_outputs": "score"}, "ElectraForQuestionAnswering"
        ),
    },
    prefix="electra.",
    ignored=(r"embeddings\.position_ids",),
    architecture="ElectraModel",
    fresh=spread,
    unpublished=lambda config: config.position != "learned",
)
