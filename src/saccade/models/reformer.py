"""Reformer: an encoder whose tokens see those in the same bucket of a hash (Kitaev et al. 2020, arXiv 2001.04451).

BERT's assembly with hashed attention; Reformer's reversible layers, which save memory in training, are not part of it. The
sizes below train on two cores.
"""

from dataclasses import dataclass, replace

from saccade.attention import Hashed
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
    length: int = 4096
    buckets: int = 16
    rounds: int = 2  # of hashing; more of them miss less
    near: int = 32  # how far two tokens of a bucket may be apart, counted in tokens of that bucket


def build(config: Config) -> Bert:
    """BERT, with query and key of a token as one vector, hashed anew in every layer."""
    drop = config.weight_dropout if config.drop_weights else 0.0

    def look(number: int) -> Attention:
        hashed = Hashed(
            config.width // config.heads,
            config.heads,
            buckets=config.buckets,
            rounds=config.rounds,
            near=config.near,
            seed=number,
            dropout=drop,
        )
        return Attention(config.width, config.heads, hashed)

    return Bert(config, look=look)


FAMILY = Family(
    name="reformer",
    said="encoder: attention within the buckets of a hash, cost almost in proportion to the length",
    config=Config,
    build=build,
    capabilities=lambda config: UNPACKED_ENCODER,
    heads={name: replace(head, names={}, architecture="") for name, head in bert.FAMILY.heads.items()},
    fresh=spread,
)
