"""Every mechanism of the package with its formula, its cost and what it honours: the table that tests and tools run over."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from saccade.attention.additive import Additive
from saccade.attention.bigbird import BigBird
from saccade.attention.bilinear import Bilinear
from saccade.attention.cosine import Cosine
from saccade.attention.distance import Distance
from saccade.attention.dot import Dot, ScaledDot
from saccade.attention.hashed import Hashed
from saccade.attention.kernel import Kernel
from saccade.attention.linear import Linear
from saccade.attention.lowrank import LowRank
from saccade.attention.mechanism import Mechanism
from saccade.attention.normaliser import Hard, PlainSum, Sparsemax
from saccade.attention.relative import Relative
from saccade.attention.spatial import Spatial
from saccade.attention.windowed import Windowed

HONOURS = {
    "causal": "hides the future where the model does",
    "pattern": "honours any pattern of who may look at whom",
    "bias": "takes a tilt of the scores (ALiBi, T5 buckets)",
    "padding": "padding changes nothing",
    "cross": "attends from one sequence to another",
    "step": "one token at a time equals all at once",
    "permutation": "without positions the order of the keys does not matter",
    "gradients": "queries and keys learn by back-propagation",
    "sum": "the weights of a row are shares: none negative, sum one (nothing where no key is in reach)",
}


@dataclass(frozen=True)
class Entry:
    """One line of the table."""

    name: str
    make: Callable[[int, int, int], Mechanism]  # (head width, heads, longest text), with sizes that suit that length
    formula: str
    paper: str
    cost: str
    honours: frozenset[str]

    def refuses(self) -> frozenset[str]:
        return frozenset(HONOURS) - self.honours


def _fit(usual: int, length: int, share: int) -> int:
    """The usual size, or a share of a text that is too short for it."""
    return min(usual, max(2, length // share))


ALL = frozenset(HONOURS)
OWN = ALL - {"cross", "permutation"}  # looks at tokens of its own sequence, by place
DENSE = "n² d"

MECHANISMS = [
    Entry("dot", lambda w, h, n: Dot(), "softmax(q·k)", "Luong 2015", DENSE, ALL),
    Entry("scaled_dot", lambda w, h, n: ScaledDot(), "softmax(q·k / √d)", "Vaswani 2017", DENSE, ALL),
    Entry("cosine", lambda w, h, n: Cosine(), "softmax(s · cos(q, k))", "Graves 2014", DENSE, ALL),
    Entry("bilinear", lambda w, h, n: Bilinear(w), "softmax(qᵀ W k)", "Luong 2015", DENSE, ALL),
    Entry("additive", lambda w, h, n: Additive(w), "softmax(u · tanh(A q + B k))", "Bahdanau 2014", DENSE, ALL),
    Entry("distance", lambda w, h, n: Distance(), "softmax(-½ ‖q - k‖²)", "Parzen 1962", DENSE, ALL),
    Entry("gaussian", lambda w, h, n: Kernel("gaussian"), "K(u) / Σ K(u), K = exp(-½ u²)", "Nadaraya 1964", DENSE, ALL),
    Entry(
        "boxcar",
        lambda w, h, n: Kernel("boxcar", 4.0),
        "K = 1 where u ≤ 1",
        "Nadaraya 1964",
        DENSE,
        ALL - {"gradients"},
    ),
    Entry(
        "constant", lambda w, h, n: Kernel("constant"), "K = 1: the mean", "Nadaraya 1964", DENSE, ALL - {"gradients"}
    ),
    Entry(
        "epanechnikov", lambda w, h, n: Kernel("epanechnikov", 6.0), "K = 1 - u² where u < 1", "Watson 1964", DENSE, ALL
    ),
    Entry(
        "plain_sum",
        lambda w, h, n: ScaledDot(normaliser=PlainSum()),
        "a / Σ a, a = max(0, q·k / √d)",
        "S. 11.1 of Dive into Deep Learning",
        DENSE,
        ALL,
    ),
    Entry(
        "sparsemax",
        lambda w, h, n: ScaledDot(normaliser=Sparsemax()),
        "nearest shares to q·k / √d",
        "Martins 2016",
        DENSE,
        ALL,
    ),
    Entry(
        "hard",
        lambda w, h, n: ScaledDot(normaliser=Hard()),
        "one key, drawn from softmax(q·k / √d)",
        "Mnih 2014",
        DENSE,
        ALL - {"gradients"},
    ),
    Entry(
        "relative",
        lambda w, h, n: Relative(w),
        "softmax(q · (k + a_r) / √d)",
        "Shaw 2018",
        DENSE,
        ALL - {"permutation"},
    ),
    Entry(
        "windowed",
        lambda w, h, n: Windowed(_fit(256, n, 8), count=_fit(16, n, 32)),
        "softmax(q·k / √d), near or global",
        "Beltagy 2020",
        "n w d",
        OWN,
    ),
    Entry(
        "bigbird",
        lambda w, h, n: BigBird(h, block=_fit(64, n, 12)),
        "softmax(q·k / √d), near, global or random",
        "Zaheer 2020",
        "n w d",
        OWN,
    ),
    Entry(
        "hashed",
        lambda w, h, n: Hashed(w, h, near=_fit(32, n, 8)),
        "softmax(q·k̂ / √d), same bucket",
        "Kitaev 2020",
        "n log n + n m d",
        OWN,
    ),
    Entry(
        "low_rank",
        lambda w, h, n: LowRank(n, min(64, n)),
        "softmax(q·(E k) / √d) F",
        "Wang 2020",
        "n r d",
        frozenset({"padding", "cross", "gradients"}),
    ),
    Entry(
        "linear",
        lambda w, h, n: Linear(),
        "φ(q)·φ(k) / Σ φ(q)·φ(k), φ = elu + 1",
        "Katharopoulos 2020",
        "n d²",
        ALL - {"pattern", "bias"},
    ),
    Entry("spatial", lambda w, h, n: Spatial(Additive(w)), "softmax(u · tanh(A q + B z_ij))", "Xu 2015", DENSE, ALL),
]


def mechanism(name: str) -> Entry:
    """The line of that name, or an error that lists the names.

    >>> mechanism("scaled_dot").cost
    'n² d'
    """
    for entry in MECHANISMS:
        if entry.name == name:
            return entry
    raise ValueError(f"Unknown mechanism {name!r}; {nearest(name, [entry.name for entry in MECHANISMS])}")


def nearest(name: str, known: list[str]) -> str:
    """What somebody may have meant, and what there is.

    >>> nearest("bigbrid", ["dot", "bigbird"])
    "did you mean 'bigbird'? Known are dot, bigbird."
    """
    near = get_close_matches(name, known, n=1)
    return (f"did you mean {near[0]!r}? Known" if near else "known") + f" are {', '.join(known)}."
