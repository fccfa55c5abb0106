"""Reformer: an encoder with LSH attention, within hash buckets (Kitaev et al. 2020, arXiv 2001.04451).

BERT with LSH attention; Reformer's reversible layers, which save memory in training, are not included. The default sizes can
be trained on two CPU cores.
"""

from dataclasses import dataclass, replace

from saccade.attention import LSHAttention
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
    max_positions: int = 4096  # Maximum sequence length in tokens.
    hash_buckets: int = 16  # Number of hash buckets of LSH attention.
    hash_rounds: int = 2  # Number of hash rounds of LSH attention; more miss fewer keys.
    max_bucket_distance: int = 32  # Maximum distance of two tokens within a bucket, in tokens of that bucket.


def build(config: Config) -> Bert:
    """BERT with LSH attention: queries and keys share a projection, and each layer has its own hash functions."""
    drop = config.attention_dropout if config.use_attention_dropout else 0.0

    def make_attention(index: int) -> Attention:
        lsh = LSHAttention(
            config.width // config.heads,
            config.heads,
            hash_buckets=config.hash_buckets,
            hash_rounds=config.hash_rounds,
            max_bucket_distance=config.max_bucket_distance,
            seed=index,
            dropout=drop,
        )
        return Attention(config.width, config.heads, lsh)

    return Bert(config, make_attention=make_attention)


FAMILY = Family(
    name="reformer",
    description="encoder: LSH attention within hash buckets, almost linear in the sequence length",
    config_class=Config,
    build=build,
    capabilities=lambda config: ENCODER_WITHOUT_PACKING,
    heads={name: replace(head, weight_map={}, architecture="") for name, head in bert.FAMILY.heads.items()},
    init_weights=init_normal,
)
