"""Linformer: an encoder that looks at a few mixtures of its tokens, at a cost of n (Wang et al. 2020, arXiv 2006.04768).

BERT's assembly with low-rank attention; there are no published weights. The sizes below train on two cores.
"""

from dataclasses import dataclass, replace

from saccade.attention import LowRank
from saccade.models import bert
from saccade.models.bert import Bert
from saccade.models.capabilities import UNPACKED_ENCODER
from saccade.models.family import Family
from saccade.models.fresh import spread
from saccade.parts.multihead import Attention


@dataclass(frozen=True)
class Config(bert.Config):
    vocab: int = 8000
    width: int = 256
    layers: int = 3
    heads: int = 4
    inner: int = 1024
    rank: int = 64  # how many keys and values are left after mixing


def build(config: Config) -> Bert:
    """BERT, with every layer looking at `rank` mixtures of the tokens; the heads of a layer share them."""
    drop = config.weight_dropout if config.drop_weights else 0.0
    return Bert(
        config,
        look=lambda number: Attention(config.width, config.heads, LowRank(config.length, config.rank, dropout=drop)),
    )


FAMILY = Family(
    name="linformer",
    said="encoder: low-rank attention, cost in proportion to the length",
    config=Config,
    build=build,
    capabilities=lambda config: UNPACKED_ENCODER,
    heads={name: replace(head, names={}, architecture="") for name, head in bert.FAMILY.heads.items()},
    fresh=spread,
)
