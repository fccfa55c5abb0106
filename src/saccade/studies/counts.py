"""What each mechanism costs on paper: alignment scalars, multiply-adds and the memory that its pairs need.

Counted are the matrix products of one forward pass for one text, as in the formula; softmax, norms and masks are not. torch's
own counter sees nothing inside the fused kernel of a CPU, so we count. With n tokens, m heads of width d, and D = m d:

    dense attention takes m d n² multiply-adds for the scores and as many for the sum of the values, 2 m d n² = 2 D n².
    It is written O(m d n²) where d is the width of one head, as in the lectures, and O(D n²) where D is that of all heads.
    More heads at the same D change the number of alignment scalars, m n², but not the number of multiply-adds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from saccade.attention import (
    Additive,
    BigBird,
    Bilinear,
    Hashed,
    Linear,
    LowRank,
    Relative,
    Spatial,
    Windowed,
    mechanism,
)
from saccade.attention.linear import BLOCK
from saccade.studies.measure import Case


@dataclass(frozen=True)
class Count:
    """The cost of one forward pass over one text, in all heads together."""

    pairs: int  # alignment scalars: N x M for each head where every query meets every key
    multiply_adds: int
    tanh: int = 0  # what additive attention pays for each pair beside its products


@dataclass(frozen=True)
class Line:
    """One line of the table: the formulas as a person writes them, the count, and the memory of the pairs.

    `held` says how many n x n tensors each head holds at the peak, forward and in training, for heads of width d. They are
    measured, at n = 1,024, and used only to leave out what cannot fit.
    """

    pairs: str  # of one head
    multiply_adds: str  # of all heads
    count: Callable[[Any, Case], Count]
    held: Callable[[int], tuple[float, float]] = lambda d: (0, 0)


def dense(module: object, case: Case) -> Count:
    """Every query meets every key, or every earlier one.

    >>> dense(None, Case("scaled_dot", length=10, heads=2, width=6))
    Count(pairs=200, multiply_adds=1200, tanh=0)
    """
    n = case.length
    return products(case.heads * (n * (n + 1) // 2 if case.causal else n * n), case)


def products(pairs: int, case: Case) -> Count:
    """Each pair costs one dot product for its score, and one scaled value in the sum."""
    return Count(pairs, 2 * case.head_width * pairs)


def bilinear(module: Bilinear, case: Case) -> Count:
    count = dense(module, case)
    between = module.between.weight.numel()
    return replace(count, multiply_adds=count.multiply_adds + case.heads * case.length * between)


def relative(module: Relative, case: Case) -> Count:
    """Beside the dot products, each query meets each distance once."""
    count = dense(module, case)
    return replace(count, multiply_adds=count.multiply_adds + case.heads * case.length * module.offsets.numel())


def additive(module: Additive, case: Case) -> Count:
    """Projections once for each token; for each pair `inner` tanh, a product with u, and one scaled value."""
    pairs, inner = dense(module, case).pairs, module.outer.in_features
    weights = module.query.weight.numel() + sum(p.numel() for p in module.key.parameters() if p.dim() > 1)
    projections = case.heads * case.length * weights
    return Count(pairs, projections + pairs * (inner + case.head_width), tanh=pairs * inner)


def spatial(module: Spatial, case: Case) -> Count:
    assert isinstance(module.mechanism, Additive)
    return additive(module.mechanism, case)


def windowed(module: Windowed, case: Case) -> Count:
    """A global token meets all; any other its neighbours and the global ones before them."""
    n, left, right, count = case.length, module.window.left, module.window.right, module.count
    pairs = 0
    for i in range(n):
        last = i if case.causal else n - 1
        first = 0 if i < count else max(0, i - left)
        end = last if i < count else min(last, i + right)
        pairs += end - first + 1 + min(count, first)
    return products(case.heads * pairs, case)


def bigbird(module: BigBird, case: Case) -> Count:
    """The links between blocks, each with as many pairs as the two blocks have."""
    links = replace(module.links, ahead=not case.causal)
    size = links.random.block
    # links are drawn between blocks, so with blocks of one token the tokens are the blocks
    at = torch.arange(-(-case.length // size))
    linked = replace(links, random=replace(links.random, block=1)).allows(
        at[:, None], at[None, :]
    )  # (H, blocks, blocks)
    tokens = (case.length - at * size).clamp(max=size)
    pairs = tokens[:, None] * tokens[None, :]
    if case.causal:
        pairs = pairs.tril(-1) + (tokens * (tokens + 1) // 2).diag()
    return products(int((linked * pairs).sum()), case)


def hashed(module: Hashed, case: Case) -> Count:
    """At most: every round each token meets `near - 1` others each side in its bucket, and no pair twice."""
    near = module.near if case.causal else 2 * module.near - 1
    count = products(min(case.heads * module.rounds * case.length * near, dense(module, case).pairs), case)
    hashing = module.rounds * case.length * case.heads * case.head_width * module.buckets // 2
    return replace(count, multiply_adds=count.multiply_adds + hashing)


def low_rank(module: LowRank, case: Case) -> Count:
    """Mixing n keys and n values into r costs as much as attending to those r."""
    count = products(case.heads * case.length * module.keys.size(0), case)
    return replace(count, multiply_adds=2 * count.multiply_adds)


def linear(module: Linear, case: Case) -> Count:
    """No pair is ever scored: keys and values are summed into a d x (d + 1) matrix, which every query reads."""
    n, d = case.length, case.head_width
    sums = 2 * n * d * (d + 1)
    if not case.causal:
        return Count(0, case.heads * sums)
    n = -(-n // BLOCK) * BLOCK  # the running sum goes by whole blocks and scores the pairs inside each
    return Count(case.heads * n * BLOCK, case.heads * n * (2 * d * (d + 1) + BLOCK * (2 * d + 1)))


DENSE = ("n²", "2 m d n²")
COUNTS = {
    "dot": Line(*DENSE, dense),
    "scaled_dot": Line(*DENSE, dense),
    "cosine": Line(*DENSE, dense),
    "bilinear": Line("n²", "2 m d n² + m d² n", bilinear),
    "additive": Line("n²", "2 m d n² + 2 m d² n, m d n² tanh", additive, lambda d: (2 * d, 3 * d)),
    "distance": Line(*DENSE, dense),
    "gaussian": Line(*DENSE, dense, lambda d: (4, 6)),
    "boxcar": Line(*DENSE, dense, lambda d: (4, 4)),
    "constant": Line(*DENSE, dense, lambda d: (4, 4)),
    "epanechnikov": Line(*DENSE, dense, lambda d: (4, 8)),
    "plain_sum": Line(*DENSE, dense, lambda d: (3, 7)),
    "sparsemax": Line(*DENSE, dense, lambda d: (6, 10)),
    "hard": Line(*DENSE, dense, lambda d: (4, 6)),
    "relative": Line("n²", "2 m d n² + m d n (2 distance + 1)", relative, lambda d: (2, 4)),
    "windowed": Line("≤ n (left + 1 + right + 2 count)", "2 m d · pairs", windowed),
    "bigbird": Line("≤ n block (2 window + 1 + 2 ends + count)", "2 m d · pairs", bigbird),
    "hashed": Line("≤ n rounds (2 near - 1)", "2 m d · pairs + m d n rounds buckets / 2", hashed),
    "low_rank": Line("n rank", "4 m d n rank", low_rank),
    "linear": Line("none scored", "2 m d (d + 1) n", linear),
    "spatial": Line("n²", "2 m d n² + 2 m d² n, m d n² tanh", spatial, lambda d: (2 * d, 3 * d)),
}


def count(case: Case) -> Count | None:
    """What the case costs on paper; None for a mechanism that has no line here, which can be measured all the same."""
    line = COUNTS.get(case.mechanism)
    if line is None:
        return None
    module = mechanism(case.mechanism).make(case.head_width, case.heads, case.room)
    return line.count(module, case)


def predicted(case: Case) -> float:
    """Bytes that the case will hold at its peak, at the least: q, k, v, and the pairs where they are known to be held at once."""
    line = COUNTS.get(case.mechanism)
    held = 0.0 if line is None else line.held(case.head_width)[case.training]
    return case.inputs + 4 * case.batch * case.heads * case.length**2 * held
