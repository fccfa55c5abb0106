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
    LinearAttention,
    LowRank,
    LSHAttention,
    Relative,
    Spatial,
    Windowed,
    get_mechanism,
)
from saccade.attention.mechanisms.linear import CAUSAL_BLOCK_SIZE
from saccade.bench.measure import BenchCase


@dataclass(frozen=True)
class OperationCount:
    """The cost of one forward pass over one text, in all heads together."""

    pairs: int  # alignment scalars: N x M for each head where every query meets every key
    multiply_adds: int
    tanh: int = 0  # what additive attention pays for each pair beside its products


@dataclass(frozen=True)
class CostFormula:
    """One line of the table: the formulas as a person writes them, the count, and the memory of the pairs.

    `held` says how many n x n tensors each head holds at the peak, forward and in training, for heads of width d. They are
    measured, at n = 1,024, and used only to leave out what cannot fit.
    """

    pairs_formula: str  # of one head
    multiply_adds_formula: str  # of all heads
    count: Callable[[Any, BenchCase], OperationCount]
    pair_tensors_at_peak: Callable[[int], tuple[float, float]] = lambda d: (0, 0)


def count_dense(module: object, case: BenchCase) -> OperationCount:
    """Every query meets every key, or every earlier one.

    >>> count_dense(None, BenchCase("scaled_dot", length=10, heads=2, width=6))
    OperationCount(pairs=200, multiply_adds=1200, tanh=0)
    """
    n = case.length
    return count_products(case.heads * (n * (n + 1) // 2 if case.causal else n * n), case)


def count_products(pairs: int, case: BenchCase) -> OperationCount:
    """Each pair costs one dot product for its score, and one scaled value in the sum."""
    return OperationCount(pairs, 2 * case.head_width * pairs)


def count_bilinear(module: Bilinear, case: BenchCase) -> OperationCount:
    count = count_dense(module, case)
    between = module.between.weight.numel()
    return replace(count, multiply_adds=count.multiply_adds + case.heads * case.length * between)


def count_relative(module: Relative, case: BenchCase) -> OperationCount:
    """Beside the dot products, each query meets each distance once."""
    count = count_dense(module, case)
    return replace(count, multiply_adds=count.multiply_adds + case.heads * case.length * module.offsets.numel())


def count_additive(module: Additive, case: BenchCase) -> OperationCount:
    """Projections once for each token; for each pair `inner` tanh, a product with u, and one scaled value."""
    pairs, inner = count_dense(module, case).pairs, module.outer.in_features
    weights = module.query.weight.numel() + sum(p.numel() for p in module.key.parameters() if p.dim() > 1)
    projections = case.heads * case.length * weights
    return OperationCount(pairs, projections + pairs * (inner + case.head_width), tanh=pairs * inner)


def count_spatial(module: Spatial, case: BenchCase) -> OperationCount:
    assert isinstance(module.mechanism, Additive)
    return count_additive(module.mechanism, case)


def count_windowed(module: Windowed, case: BenchCase) -> OperationCount:
    """A global token meets all; any other its neighbours and the global ones before them."""
    n, left, right, count = case.length, module.window.left, module.window.right, module.global_count
    pairs = 0
    for i in range(n):
        last = i if case.causal else n - 1
        first = 0 if i < count else max(0, i - left)
        end = last if i < count else min(last, i + right)
        pairs += end - first + 1 + min(count, first)
    return count_products(case.heads * pairs, case)


def count_bigbird(module: BigBird, case: BenchCase) -> OperationCount:
    """The links between blocks, each with as many pairs as the two blocks have."""
    links = replace(module.pattern, bidirectional=not case.causal)
    size = links.random.block_size
    # links are drawn between blocks, so with blocks of one token the tokens are the blocks
    at = torch.arange(-(-case.length // size))
    linked = replace(links, random=replace(links.random, block_size=1)).allows(
        at[:, None], at[None, :]
    )  # (H, blocks, blocks)
    tokens = (case.length - at * size).clamp(max=size)
    pairs = tokens[:, None] * tokens[None, :]
    if case.causal:
        pairs = pairs.tril(-1) + (tokens * (tokens + 1) // 2).diag()
    return count_products(int((linked * pairs).sum()), case)


def count_lsh(module: LSHAttention, case: BenchCase) -> OperationCount:
    """At most: every round each token meets `near - 1` others each side in its bucket, and no pair twice."""
    near = module.max_bucket_distance if case.causal else 2 * module.max_bucket_distance - 1
    count = count_products(
        min(case.heads * module.hash_rounds * case.length * near, count_dense(module, case).pairs), case
    )
    hashing = module.hash_rounds * case.length * case.heads * case.head_width * module.hash_buckets // 2
    return replace(count, multiply_adds=count.multiply_adds + hashing)


def count_low_rank(module: LowRank, case: BenchCase) -> OperationCount:
    """Mixing n keys and n values into r costs as much as attending to those r."""
    count = count_products(case.heads * case.length * module.keys.size(0), case)
    return replace(count, multiply_adds=2 * count.multiply_adds)


def count_linear(module: LinearAttention, case: BenchCase) -> OperationCount:
    """No pair is ever scored: keys and values are summed into a d x (d + 1) matrix, which every query reads."""
    n, d = case.length, case.head_width
    sums = 2 * n * d * (d + 1)
    if not case.causal:
        return OperationCount(0, case.heads * sums)
    n = (
        -(-n // CAUSAL_BLOCK_SIZE) * CAUSAL_BLOCK_SIZE
    )  # the running sum goes by whole blocks and scores the pairs inside each
    return OperationCount(
        case.heads * n * CAUSAL_BLOCK_SIZE, case.heads * n * (2 * d * (d + 1) + CAUSAL_BLOCK_SIZE * (2 * d + 1))
    )


DENSE_FORMULAS = ("n²", "2 m d n²")
COST_FORMULAS = {
    "dot": CostFormula(*DENSE_FORMULAS, count_dense),
    "scaled_dot": CostFormula(*DENSE_FORMULAS, count_dense),
    "cosine": CostFormula(*DENSE_FORMULAS, count_dense),
    "bilinear": CostFormula("n²", "2 m d n² + m d² n", count_bilinear),
    "additive": CostFormula("n²", "2 m d n² + 2 m d² n, m d n² tanh", count_additive, lambda d: (2 * d, 3 * d)),
    "distance": CostFormula(*DENSE_FORMULAS, count_dense),
    "gaussian": CostFormula(*DENSE_FORMULAS, count_dense, lambda d: (4, 6)),
    "boxcar": CostFormula(*DENSE_FORMULAS, count_dense, lambda d: (4, 4)),
    "constant": CostFormula(*DENSE_FORMULAS, count_dense, lambda d: (4, 4)),
    "epanechnikov": CostFormula(*DENSE_FORMULAS, count_dense, lambda d: (4, 8)),
    "sum_normalized": CostFormula(*DENSE_FORMULAS, count_dense, lambda d: (3, 7)),
    "sparsemax": CostFormula(*DENSE_FORMULAS, count_dense, lambda d: (6, 10)),
    "hard": CostFormula(*DENSE_FORMULAS, count_dense, lambda d: (4, 6)),
    "relative": CostFormula("n²", "2 m d n² + m d n (2 distance + 1)", count_relative, lambda d: (2, 4)),
    "windowed": CostFormula("≤ n (left + 1 + right + 2 count)", "2 m d · pairs", count_windowed),
    "bigbird": CostFormula("≤ n block (2 window + 1 + 2 ends + count)", "2 m d · pairs", count_bigbird),
    "lsh": CostFormula("≤ n rounds (2 near - 1)", "2 m d · pairs + m d n rounds buckets / 2", count_lsh),
    "low_rank": CostFormula("n rank", "4 m d n rank", count_low_rank),
    "linear": CostFormula("none scored", "2 m d (d + 1) n", count_linear),
    "spatial": CostFormula("n²", "2 m d n² + 2 m d² n, m d n² tanh", count_spatial, lambda d: (2 * d, 3 * d)),
}


def count_operations(case: BenchCase) -> OperationCount | None:
    """What the case costs on paper; None for a mechanism that has no line here, which can be measured all the same."""
    line = COST_FORMULAS.get(case.mechanism)
    if line is None:
        return None
    module = get_mechanism(case.mechanism).make(case.head_width, case.heads, case.max_positions)
    return line.count(module, case)


def predict_peak_bytes(case: BenchCase) -> float:
    """Bytes that the case will hold at its peak, at the least: q, k, v, and the pairs where they are known to be held at once."""
    line = COST_FORMULAS.get(case.mechanism)
    held = 0.0 if line is None else line.pair_tensors_at_peak(case.head_width)[case.training]
    return case.input_bytes + 4 * case.batch_size * case.heads * case.length**2 * held
