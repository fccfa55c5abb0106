"""Linformer: an encoder with low-rank attention, linear in the sequence length (Wang et al. 2020, arXiv 2006.04768).

BERT with low-rank attention; there are no published weights. The default sizes can be trained on two CPU cores.
"""

from dataclasses import dataclass, replace

from saccade.attention import LowRank
from saccade.models.capabilities import ENCODER_WITHOUT_PACKING
from saccade.models.families import bert
from saccade.models.families.bert import Bert
from saccade.models.family import Family
from saccade.models.init import init_normal
from saccade.parts.multihead_attention import Attention


@dataclass(frozen=True)
class Config(bert.Config):
    vocab: int = 8000  # Vocabulary size: number of token ids.
    width: int = 256  # Model width (hidden size) of every layer.
    layers: int = 3  # Number of encoder layers (transformer blocks).
    heads: int = 4  # Number of attention heads per layer.
    ffn_width: int = 1024  # Width of the feed-forward hidden layer.
    rank: int = 64  # Rank of the projection: number of keys and values that remain.


def build(config: Config) -> Bert:
    """BERT in which keys and values are projected to `rank` positions; the heads of a layer share the projection."""
    drop = config.attention_dropout if config.use_attention_dropout else 0.0
    return Bert(
        config,
        make_attention=lambda number: Attention(
            config.width, config.heads, LowRank(config.max_positions, config.rank, dropout=drop)
        ),
    )


FAMILY = Family(
    name="linformer",
    description="encoder: low-rank attention, linear in the sequence length",
    config_class=Config,
    build=build,
    capabilities=lambda config: ENCODER_WITHOUT_PACKING,
    heads={name: replace(head, weight_map={}, architecture="") for name, head in bert.FAMILY.heads.items()},
    init_weights=init_normal,
)
