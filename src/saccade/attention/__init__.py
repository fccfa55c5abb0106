"""Attention mechanisms behind one interface, attention patterns, masks, and `watch`. `MECHANISMS` lists all mechanisms."""

from saccade.attention.bias import Alibi, T5Bias
from saccade.attention.layout import Layout
from saccade.attention.mechanism import Mechanism
from saccade.attention.mechanisms.additive import Additive
from saccade.attention.mechanisms.bilinear import Bilinear
from saccade.attention.mechanisms.cosine import Cosine
from saccade.attention.mechanisms.distance import Distance
from saccade.attention.mechanisms.dot import Dot, ScaledDot
from saccade.attention.mechanisms.kernel import KERNELS, Kernel
from saccade.attention.mechanisms.linear import LinearAttention
from saccade.attention.mechanisms.lowrank import LowRank
from saccade.attention.mechanisms.relative import Relative
from saccade.attention.mechanisms.spatial import Spatial
from saccade.attention.nadaraya_watson import AttentionPool, NadarayaWatson
from saccade.attention.normalizer import Hard, Normalizer, Softmax, Sparsemax, SumNormalizer
from saccade.attention.pattern import (
    CAUSAL,
    FULL,
    And,
    Causal,
    Full,
    Global,
    Or,
    Pattern,
    Prefix,
    RandomBlocks,
    Strided,
    Window,
)
from saccade.attention.registry import ALL_FEATURES, FEATURES, MECHANISMS, MechanismEntry, get_mechanism
from saccade.attention.reinforce import record_draws, reinforce_loss
from saccade.attention.sight import Bias, Sight, make_positions
from saccade.attention.sparse.bigbird import BigBird, BigBirdPattern
from saccade.attention.sparse.lsh import LSHAttention, lsh_recall
from saccade.attention.sparse.windowed import Windowed
from saccade.attention.watch import Downsample, KeepAll, Look, Looks, RowCallback, TopK, watch, watchable_modules

__all__ = [
    "ALL_FEATURES",
    "CAUSAL",
    "FEATURES",
    "FULL",
    "KERNELS",
    "MECHANISMS",
    "Additive",
    "Alibi",
    "And",
    "AttentionPool",
    "Bias",
    "BigBird",
    "BigBirdPattern",
    "Bilinear",
    "Causal",
    "Cosine",
    "Distance",
    "Dot",
    "Downsample",
    "Full",
    "Global",
    "Hard",
    "KeepAll",
    "Kernel",
    "LSHAttention",
    "Layout",
    "LinearAttention",
    "Look",
    "Looks",
    "LowRank",
    "Mechanism",
    "MechanismEntry",
    "NadarayaWatson",
    "Normalizer",
    "Or",
    "Pattern",
    "Prefix",
    "RandomBlocks",
    "Relative",
    "RowCallback",
    "ScaledDot",
    "Sight",
    "Softmax",
    "Sparsemax",
    "Spatial",
    "Strided",
    "SumNormalizer",
    "T5Bias",
    "TopK",
    "Window",
    "Windowed",
    "get_mechanism",
    "lsh_recall",
    "make_positions",
    "record_draws",
    "reinforce_loss",
    "watch",
    "watchable_modules",
]
