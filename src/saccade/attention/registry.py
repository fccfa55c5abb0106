"""The table of attention mechanisms, with formula, paper, cost and supported features; tests and tools iterate over it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from saccade.attention.mechanism import Mechanism
from saccade.attention.mechanisms.additive import Additive
from saccade.attention.mechanisms.bilinear import Bilinear
from saccade.attention.mechanisms.cosine import Cosine
from saccade.attention.mechanisms.distance import Distance
from saccade.attention.mechanisms.dot import Dot, ScaledDot
from saccade.attention.mechanisms.kernel import Kernel
from saccade.attention.mechanisms.linear import LinearAttention
from saccade.attention.mechanisms.lowrank import LowRank
from saccade.attention.mechanisms.relative import Relative
from saccade.attention.mechanisms.spatial import Spatial
from saccade.attention.normalizer import Hard, Sparsemax, SumNormalizer
from saccade.attention.sparse.bigbird import BigBird
from saccade.attention.sparse.lsh import LSHAttention
from saccade.attention.sparse.windowed import Windowed
from saccade.suggest import suggest

FEATURES = {
    "causal": "supports causal masking",
    "pattern": "supports any attention pattern (mask)",
    "bias": "supports an additive bias of the scores (ALiBi, T5 buckets)",
    "padding": "padding does not change the output",
    "cross_attention": "supports cross-attention from one sequence to another",
    "incremental": "decoding token by token equals the full pass",
    "permutation": "without positional encoding, the order of the keys does not matter",
    "gradients": "queries and keys receive gradients",
    "normalized": "attention weights of a row are nonnegative and sum to one (to zero if no key is visible)",
}
ALL_FEATURES = frozenset(FEATURES)
SELF_ATTENTION_FEATURES = ALL_FEATURES - {"cross_attention", "permutation"}  # keys are selected by their position
DENSE_COST = "n² d"

Oracle = Callable[[Any, Tensor, Tensor, Tensor, int], Tensor]
"""The weights (Q, K) of one head of one text in float64: (mechanism, q (Q, D), k (K, D), mask (Q, K), number of the head).

The mask is added to the scores: it is -inf where a key is hidden, and the bias of the scores elsewhere."""


@dataclass(frozen=True)
class MechanismEntry:
    """One mechanism of the table."""

    name: str
    make: Callable[[int, int, int], Mechanism]  # (head width, heads, max. positions)
    formula: str
    paper: str = ""
    cost: str = DENSE_COST
    supports: frozenset[str] = ALL_FEATURES
    # the formula written for the reader, with which `saccade check --mechanism` compares the mechanism; see `Oracle`
    oracle: Oracle | None = None

    def lacks(self) -> frozenset[str]:
        """The features that the mechanism does not support."""
        return frozenset(FEATURES) - self.supports


def _scale_size(default: int, length: int, divisor: int) -> int:
    """The default size, or a fraction of the sequence length if the sequence is too short for it."""
    return min(default, max(2, length // divisor))


MECHANISMS = [
    MechanismEntry("dot", lambda w, h, n: Dot(), "softmax(q·k)", "Luong 2015", DENSE_COST, ALL_FEATURES),
    MechanismEntry(
        "scaled_dot", lambda w, h, n: ScaledDot(), "softmax(q·k / √d)", "Vaswani 2017", DENSE_COST, ALL_FEATURES
    ),
    MechanismEntry(
        "cosine", lambda w, h, n: Cosine(), "softmax(s · cos(q, k))", "Graves 2014", DENSE_COST, ALL_FEATURES
    ),
    MechanismEntry("bilinear", lambda w, h, n: Bilinear(w), "softmax(qᵀ W k)", "Luong 2015", DENSE_COST, ALL_FEATURES),
    MechanismEntry(
        "additive",
        lambda w, h, n: Additive(w),
        "softmax(u · tanh(A q + B k))",
        "Bahdanau 2014",
        DENSE_COST,
        ALL_FEATURES,
    ),
    MechanismEntry(
        "distance", lambda w, h, n: Distance(), "softmax(-½ ‖q - k‖²)", "Parzen 1962", DENSE_COST, ALL_FEATURES
    ),
    MechanismEntry(
        "gaussian",
        lambda w, h, n: Kernel("gaussian"),
        "K(u) / Σ K(u), K = exp(-½ u²)",
        "Nadaraya 1964",
        DENSE_COST,
        ALL_FEATURES,
    ),
    MechanismEntry(
        "boxcar",
        lambda w, h, n: Kernel("boxcar", 4.0),
        "K = 1 where u ≤ 1",
        "Nadaraya 1964",
        DENSE_COST,
        ALL_FEATURES - {"gradients"},
    ),
    MechanismEntry(
        "constant",
        lambda w, h, n: Kernel("constant"),
        "K = 1: the mean",
        "Nadaraya 1964",
        DENSE_COST,
        ALL_FEATURES - {"gradients"},
    ),
    MechanismEntry(
        "epanechnikov",
        lambda w, h, n: Kernel("epanechnikov", 6.0),
        "K = 1 - u² where u < 1",
        "Watson 1964",
        DENSE_COST,
        ALL_FEATURES,
    ),
    MechanismEntry(
        "sum_normalized",
        lambda w, h, n: ScaledDot(normalizer=SumNormalizer()),
        "a / Σ a, a = max(0, q·k / √d)",
        "Dive into Deep Learning, section 11.1",
        DENSE_COST,
        ALL_FEATURES,
    ),
    MechanismEntry(
        "sparsemax",
        lambda w, h, n: ScaledDot(normalizer=Sparsemax()),
        "sparsemax(q·k / √d)",
        "Martins 2016",
        DENSE_COST,
        ALL_FEATURES,
    ),
    MechanismEntry(
        "hard",
        lambda w, h, n: ScaledDot(normalizer=Hard()),
        "one key, sampled from softmax(q·k / √d)",
        "Mnih 2014",
        DENSE_COST,
        ALL_FEATURES - {"gradients"},
    ),
    MechanismEntry(
        "relative",
        lambda w, h, n: Relative(w),
        "softmax(q · (k + a_r) / √d)",
        "Shaw 2018",
        DENSE_COST,
        ALL_FEATURES - {"permutation"},
    ),
    MechanismEntry(
        "windowed",
        lambda w, h, n: Windowed(_scale_size(256, n, 8), global_count=_scale_size(16, n, 32)),
        "softmax(q·k / √d), window or global",
        "Beltagy 2020",
        "n w d",
        SELF_ATTENTION_FEATURES,
    ),
    MechanismEntry(
        "bigbird",
        lambda w, h, n: BigBird(h, block_size=_scale_size(64, n, 12)),
        "softmax(q·k / √d), window, global or random",
        "Zaheer 2020",
        "n w d",
        SELF_ATTENTION_FEATURES,
    ),
    MechanismEntry(
        "lsh",
        lambda w, h, n: LSHAttention(w, h, max_bucket_distance=_scale_size(32, n, 8)),
        "softmax(q·k̂ / √d), same bucket",
        "Kitaev 2020",
        "n log n + n m d",
        SELF_ATTENTION_FEATURES,
    ),
    MechanismEntry(
        "low_rank",
        lambda w, h, n: LowRank(n, min(64, n)),
        "softmax(q·(E k) / √d) F",
        "Wang 2020",
        "n r d",
        frozenset({"padding", "cross_attention", "gradients"}),
    ),
    MechanismEntry(
        "linear",
        lambda w, h, n: LinearAttention(),
        "φ(q)·φ(k) / Σ φ(q)·φ(k), φ = elu + 1",
        "Katharopoulos 2020",
        "n d²",
        ALL_FEATURES - {"pattern", "bias"},
    ),
    MechanismEntry(
        "spatial",
        lambda w, h, n: Spatial(Additive(w)),
        "softmax(u · tanh(A q + B z_ij))",
        "Xu 2015",
        DENSE_COST,
        ALL_FEATURES,
    ),
]


def get_mechanism(name: str) -> MechanismEntry:
    """The mechanism of that name, or an error that suggests the nearest name.

    >>> get_mechanism("scaled_dot").cost
    'n² d'
    """
    for entry in MECHANISMS:
        if entry.name == name:
            return entry
    raise ValueError(f"Unknown mechanism {name!r}; {suggest(name, [entry.name for entry in MECHANISMS])}")
