"""BigBird: BERT for long texts; blocks of tokens see their neighbours, the first and the last block, and a few at random.

Zaheer et al. 2020, arXiv 2007.14062. A text that is hardly longer than what each token would see is seen whole.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from saccade.attention import BigBird as BlockSparse
from saccade.attention import Links, Mechanism, RandomBlocks, ScaledDot
from saccade.errors import ModelError
from saccade.models import bert
from saccade.models.bert import Bend, Bert, head_drop
from saccade.models.capabilities import UNPACKED_ENCODER
from saccade.models.family import Family, Head
from saccade.models.fresh import dense, spread
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import First, LabelHead, SpanHead, TagHead
from saccade.parts.layer import Sublayer
from saccade.parts.multihead import Attention


@dataclass(frozen=True)
class Config(bert.Config):
    vocab: int = 50358
    length: int = 4096
    activation: str = "gelu_tanh"
    block: int = 64
    count: int = 3  # random blocks for each block
    sparse: bool = True  # False: every text is seen whole
    scaled: bool = False  # words times √width


class BigBird(Bert):
    """BERT with sparse looks; dropout stands before the first norm."""

    def __init__(self, config: Config):
        super().__init__(config, look=lambda number: Attention(config.width, config.heads, mechanism(config, number)))
        if config.scaled:
            self.words = Words(config.vocab, config.width, scaled=True)
        self.stack.enter = nn.Sequential(Dropout(config.dropout), nn.LayerNorm(config.width, eps=config.eps))


def mechanism(config: Config, number: int) -> Mechanism:
    """How layer `number` looks; each layer draws random blocks of its own, the same for every text."""
    drop = config.weight_dropout if config.drop_weights else 0.0
    if not config.sparse:
        return ScaledDot(dropout=drop)
    if config.block < 1 or config.count < 0:
        raise ModelError(
            f"A block has 1 token or more, random blocks are 0 or more; got {config.block}, {config.count}."
        )
    random = RandomBlocks(number, config.block, config.count, config.heads)
    # three neighbours, two ends, and room for twice the random ones
    return BlockSparse(config.heads, links=Links(random, short=5 + 2 * config.count), dropout=drop)


def label_head(config: Config, body: Bert, labels: int) -> LabelHead:
    """The first token, through a dense layer and the model's own activation, with dropout on both sides."""
    dense = nn.Linear(config.width, config.width)
    between = nn.Sequential(Dropout(head_drop(config)), dense, Bend(config.activation))
    return LabelHead(config.width, labels, pool=First(), between=between, dropout=head_drop(config))


class DeepSpanHead(nn.Module):
    """One more feed-forward, then where the answer begins and where it ends."""

    def __init__(self, config: Config):
        super().__init__()
        think = nn.Sequential(
            Dropout(config.dropout), FeedForward(config.width, config.inner, config.activation)
        )  # the residual connection goes past both
        norm = nn.LayerNorm(config.width, eps=config.eps)
        self.think = Sublayer(think, norm, norm_first=False, dropout=config.dropout)
        self.read = SpanHead(config.width)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.read(self.think(x), keep)


ATTENTION = {True: "block_sparse", False: "original_full"}


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """The published name of the attention as yes or no."""
    kind = raw.get("attention_type", "block_sparse")
    if kind not in ATTENTION.values():
        raise ModelError(f"bigbird: attention_type = {kind!r} is not known; it is {' or '.join(ATTENTION.values())}.")
    return raw | {"attention_type": kind == ATTENTION[True]}


FAMILY = Family(
    name="bigbird",
    said="encoder: BERT for long texts, neighbours, both ends and random blocks",
    config=Config,
    build=BigBird,
    capabilities=lambda config: UNPACKED_ENCODER,
    names=lambda config: {**bert.EMBEDDINGS, "embeddings.LayerNorm": "stack.enter.1", **bert.LAYERS},
    keys={
        **bert.KEYS,
        "block_size": "block",
        "num_random_blocks": "count",
        "attention_type": "sparse",
        "rescale_embeddings": "scaled",
    },
    fixed={**bert.FAMILY.fixed, "model_type": "big_bird", "use_bias": True, "tie_word_embeddings": True},
    also=lambda config: {"attention_type": ATTENTION[config.sparse]},
    adapt=adapt,
    heads={
        "words": Head(
            bert.word_head,
            bert.FAMILY.heads["words"].names,
            "BigBirdForMaskedLM",
            also_in=("BigBirdForPreTraining",),
        ),
        "label": Head(
            label_head,
            {"classifier.dense": "between.1", "classifier.out_proj": "score"},
            "BigBirdForSequenceClassification",
        ),
        "tag": Head(
            lambda config, body, labels: TagHead(config.width, labels, dropout=head_drop(config)),
            {"classifier": "score"},
            "BigBirdForTokenClassification",
        ),
        "span": Head(
            lambda config, body, labels: DeepSpanHead(config),
            {
                "qa_classifier.intermediate.dense": "think.branch.1.up",
                "qa_classifier.output.dense": "think.branch.1.down",
                "qa_classifier.output.LayerNorm": "think.norm",
                "qa_classifier.qa_outputs": "read.score",
            },
            "BigBirdForQuestionAnswering",
        ),
    },
    prefix="bert.",
    ignored=bert.FAMILY.ignored,
    pooler=bert.FAMILY.pooler,
    architecture="BigBirdModel",
    spare=lambda config: dense("pooler", config.width),
    spare_with=("words", "label", "tag"),
    fresh=spread,
)
