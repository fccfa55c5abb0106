"""BigBird: BERT for long texts with block-sparse attention to neighbouring, first and last, and random blocks.

Zaheer et al. 2020, arXiv 2007.14062. A text hardly longer than what each token would attend to gets full attention.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from saccade.attention import BigBird as BlockSparse
from saccade.attention import BigBirdPattern, Mechanism, RandomBlocks, ScaledDot
from saccade.errors import ModelError
from saccade.models.capabilities import ENCODER_WITHOUT_PACKING
from saccade.models.families import bert
from saccade.models.families.bert import Activation, Bert, classifier_dropout
from saccade.models.family import Family, HeadSpec
from saccade.models.init import extra_dense, init_normal
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import ClassificationHead, FirstTokenPool, SpanHead, TokenClassificationHead
from saccade.parts.layer import Sublayer
from saccade.parts.multihead_attention import Attention


@dataclass(frozen=True)
class Config(bert.Config):
    vocab: int = 50358  # Vocabulary size: number of token ids.
    max_positions: int = 4096  # Maximum sequence length in tokens.
    activation: str = "gelu_tanh"  # Activation function of the feed-forward layers.
    block_size: int = 64  # Block size of the block-sparse attention, in tokens.
    random_blocks: int = 3  # Number of random blocks that each block attends to.
    block_sparse: bool = True  # Block-sparse attention; off: full attention for every text.
    scale_embeddings: bool = False  # Scale token embeddings by the square root of the width.


class BigBird(Bert):
    """BERT with block-sparse attention; after the embeddings, dropout comes before LayerNorm."""

    def __init__(self, config: Config):
        super().__init__(
            config, make_attention=lambda number: Attention(config.width, config.heads, layer_mechanism(config, number))
        )
        if config.scale_embeddings:
            self.words: TokenEmbedding = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
        self.stack.enter = nn.Sequential(Dropout(config.dropout), nn.LayerNorm(config.width, eps=config.eps))


def layer_mechanism(config: Config, number: int) -> Mechanism:
    """The attention mechanism of layer `number`; each layer has its own random blocks, the same for every text."""
    drop = config.attention_dropout if config.use_attention_dropout else 0.0
    if not config.block_sparse:
        return ScaledDot(dropout=drop)
    if config.block_size < 1 or config.random_blocks < 0:
        raise ModelError(
            f"block_size must be 1 or more and random_blocks 0 or more; got {config.block_size} and {config.random_blocks}."
        )
    random = RandomBlocks(number, config.block_size, config.random_blocks, config.heads)
    # a text of up to this many blocks gets full attention: three neighbours, two ends, and twice the random blocks
    return BlockSparse(
        config.heads, pattern=BigBirdPattern(random, max_full_blocks=5 + 2 * config.random_blocks), dropout=drop
    )


def label_head(config: Config, body: Bert, labels: int) -> ClassificationHead:
    """The classification head: the first token, through a dense layer and the activation, with dropout before and after."""
    dense = nn.Linear(config.width, config.width)
    between = nn.Sequential(Dropout(classifier_dropout(config)), dense, Activation(config.activation))
    return ClassificationHead(
        config.width, labels, pool=FirstTokenPool(), between=between, dropout=classifier_dropout(config)
    )


class DeepSpanHead(nn.Module):
    """A span head with a feed-forward layer before the start and end scores."""

    def __init__(self, config: Config):
        super().__init__()
        feedforward = FeedForward(config.width, config.ffn_width, config.activation)
        branch = nn.Sequential(Dropout(config.dropout), feedforward)  # the residual connection bypasses both
        norm = nn.LayerNorm(config.width, eps=config.eps)
        self.think: Sublayer = Sublayer(branch, norm, norm_first=False, dropout=config.dropout)
        self.read: SpanHead = SpanHead(config.width)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.read(self.think(x), keep)


ATTENTION_TYPES = {True: "block_sparse", False: "original_full"}


def normalize_config(raw: dict[str, Any]) -> dict[str, Any]:
    """Turn the published `attention_type` into a bool."""
    kind = raw.get("attention_type", "block_sparse")
    if kind not in ATTENTION_TYPES.values():
        raise ModelError(
            f"bigbird: unknown attention_type = {kind!r}; expected {' or '.join(ATTENTION_TYPES.values())}."
        )
    return raw | {"attention_type": kind == ATTENTION_TYPES[True]}


FAMILY = Family(
    name="bigbird",
    description="encoder: BERT for long texts, block-sparse attention (window, global and random blocks)",
    config_class=Config,
    build=BigBird,
    capabilities=lambda config: ENCODER_WITHOUT_PACKING,
    weight_map=lambda config: {
        **bert.EMBEDDING_WEIGHT_MAP,
        "embeddings.LayerNorm": "stack.enter.1",
        **bert.LAYER_WEIGHT_MAP,
    },
    config_keys={
        **bert.CONFIG_KEYS,
        "block_size": "block_size",
        "num_random_blocks": "random_blocks",
        "attention_type": "block_sparse",
        "rescale_embeddings": "scale_embeddings",
    },
    required_values={
        **bert.FAMILY.required_values,
        "model_type": "big_bird",
        "use_bias": True,
        "tie_word_embeddings": True,
    },
    derived_keys=lambda config: {"attention_type": ATTENTION_TYPES[config.block_sparse]},
    normalize_config=normalize_config,
    heads={
        "lm": HeadSpec(
            bert.lm_head,
            bert.FAMILY.heads["lm"].weight_map,
            "BigBirdForMaskedLM",
            other_architectures=("BigBirdForPreTraining",),
        ),
        "label": HeadSpec(
            label_head,
            {"classifier.dense": "between.1", "classifier.out_proj": "score"},
            "BigBirdForSequenceClassification",
        ),
        "tag": HeadSpec(
            lambda config, body, labels: TokenClassificationHead(
                config.width, labels, dropout=classifier_dropout(config)
            ),
            {"classifier": "score"},
            "BigBirdForTokenClassification",
        ),
        "span": HeadSpec(
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
    ignored_tensors=bert.FAMILY.ignored_tensors,
    pooler_tensors=bert.FAMILY.pooler_tensors,
    architecture="BigBirdModel",
    extra_tensors=lambda config: extra_dense("pooler", config.width),
    heads_with_extra_tensors=("lm", "label", "tag"),
    init_weights=init_normal,
)
