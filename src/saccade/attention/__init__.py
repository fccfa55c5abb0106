"""What attention is: the contract, and one file for each mechanism. `MECHANISMS` is the table of them all."""

from saccade.attention.additive import Additive
from saccade.attention.bias import Alibi, Buckets
from saccade.attention.bigbird import BigBird, Links
from saccade.attention.bilinear import Bilinear
from saccade.attention.cosine import Cosine
from saccade.attention.distance import Distance
from saccade.attention.dot import Dot, ScaledDot
from saccade.attention.hard import draws, reinforce
from saccade.attention.hashed import Hashed, recall
from saccade.attention.kernel import KERNELS, Kernel
from saccade.attention.layout import Layout
from saccade.attention.linear import Linear
from saccade.attention.lowrank import LowRank
from saccade.attention.mechanism import Mechanism
from saccade.attention.normaliser import Hard, Normaliser, PlainSum, Softmax, Sparsemax
from saccade.attention.pattern import (
    CAUSAL,
    FULL,
    Both,
    Causal,
    Either,
    Full,
    Global,
    Pattern,
    Prefix,
    RandomBlocks,
    Strided,
    Window,
)
from saccade.attention.pool import AttentionPool, NadarayaWatson
from saccade.attention.relative import Relative
from saccade.attention.sight import Bias, Sight, positions
from saccade.attention.spatial import Spatial
from saccade.attention.table import HONOURS, MECHANISMS, mechanism
from saccade.attention.watch import Everything, Look, Pooled, Stream, Top, watch, watchable
from saccade.attention.windowed import Windowed

__all__ = [
    "CAUSAL",
    "FULL",
    "HONOURS",
    "KERNELS",
    "MECHANISMS",
    "Additive",
    "Alibi",
    "AttentionPool",
    "Bias",
    "BigBird",
    "Bilinear",
    "Both",
    "Buckets",
    "Causal",
    "Cosine",
    "Distance",
    "Dot",
    "Either",
    "Everything",
    "Full",
    "Global",
    "Hard",
    "Hashed",
    "Kernel",
    "Layout",
    "Linear",
    "Links",
    "Look",
    "LowRank",
    "Mechanism",
    "NadarayaWatson",
    "Normaliser",
    "Pattern",
    "PlainSum",
    "Pooled",
    "Prefix",
    "RandomBlocks",
    "Relative",
    "ScaledDot",
    "Sight",
    "Softmax",
    "Sparsemax",
    "Spatial",
    "Stream",
    "Strided",
    "Top",
    "Window",
    "Windowed",
    "draws",
    "mechanism",
    "positions",
    "recall",
    "reinforce",
    "watch",
    "watchable",
]
