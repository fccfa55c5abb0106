"""The theoretical cost of each mechanism (FLOPs): alignment scores, multiply-adds, and the memory of its pairs.

The counts cover the matrix products of one forward pass over one sequence; softmax, norms and masks are not counted. torch's
FLOP counter does not see inside the fused kernel of a CPU, so this module has formulas. With n tokens, m heads of width d, and
D = m d:

    dense attention takes m d n² multiply-adds for the scores and as many for the weighted sum of the values, 2 m d n² = 2 D n².
    It is written O(m d n²) with the width d of one head, and O(D n²) with the width D of all heads together.
    More heads at the same D change the number of alignment scores, m n², but not the number of multiply-adds.
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
    """The cost of one forward pass over one sequence, for all heads together."""

    pairs: int  # alignment scores: queries x keys per head for dense attention
    multiply_adds: int
    tanh: int = 0  # tanh evaluations of additive attention


@dataclass(frozen=True)
class CostFormula:
    """The cost of a mechanism: formulas as text, the count, and the memory of the pairs.

    `pair_tensors_at_peak` is the number of n x n tensors per head at peak memory, in inference and in training, for heads of
    width d. The numbers were measured at n = 1,024 and are only used to skip cases that do not fit into memory.
    """

    pairs_formula: str  # per head
    multiply_adds_formula: str  # for all heads
    count: Callable[[Any, BenchCase], OperationCount]
    pair_tensors_at_peak: Callable[[int], tuple[float, float]] = lambda d: (0, 0)


def count_dense(module: object, case: BenchCase) -> OperationCount:
    """Every query attends to every key, or to itself and every earlier one if causal.

    >>> count_dense(None, BenchCase("scaled_dot", length=10, heads=2, width=6))
    OperationCount(pairs=200, multiply_adds=1200, tanh=0)
    """
    n = case.length
    return count_products(case.heads * (n * (n + 1) // 2 if case.causal else n * n), case)


def count_products(pairs: int, case: BenchCase) -> OperationCount:
    """Each pair costs one dot product for its score and one scaled value in the weighted sum."""
    return OperationCount(pairs, 2 * case.head_width * pairs)


def count_bilinear(module: Bilinear, case: BenchCase) -> OperationCount:
    count = count_dense(module, case)
    weights = module.between.weight.numel()
    return replace(count, multiply_adds=count.multiply_adds + case.heads * case.length * weights)


def count_relative(module: Relative, case: BenchCase) -> OperationCount:
    """Dense attention plus one dot product of each query with each relative distance."""
    count = count_dense(module, case)
    return replace(count, multiply_adds=count.multiply_adds + case.heads * case.length * module.offsets.numel())


def count_additive(module: Additive, case: BenchCase) -> OperationCount:
    """Projections for each token; for each pair `inner` tanh, a dot product with u, and one scaled value."""
    pairs, inner = count_dense(module, case).pairs, module.outer.in_features
    weights = module.query.weight.numel() + sum(p.numel() for p in module.key.parameters() if p.dim() > 1)
    projections = case.heads * case.length * weights
    return OperationCount(pairs, projections + pairs * (inner + case.head_width), tanh=pairs * inner)


def count_spatial(module: Spatial, case: BenchCase) -> OperationCount:
    assert isinstance(module.mechanism, Additive)
    return count_additive(module.mechanism, case)


def count_windowed(module: Windowed, case: BenchCase) -> OperationCount:
    """Global tokens attend to all tokens; the others to their window and to the global tokens before it."""
    n, left, right, count = case.length, module.window.left, module.window.right, module.global_count
    pairs = 0
    for i in range(n):
        last = i if case.causal else n - 1
        first = 0 if i < count else max(0, i - left)
        end = last if i < count else min(last, i + right)
        pairs += end - first + 1 + min(count, first)
    return count_products(case.heads * pairs, case)


def count_bigbird(module: BigBird, case: BenchCase) -> OperationCount:
    """The sum over linked pairs of blocks of the token pairs in them."""
    links = replace(module.pattern, bidirectional=not case.causal)
    size = links.random.block_size
    # the random links are between blocks; with blocks of one token, tokens stand for blocks
    block = torch.arange(-(-case.length // size))
    linked = replace(links, random=replace(links.random, block_size=1)).allows(
        block[:, None], block[None, :]
    )  # (H, blocks, blocks)
    tokens = (case.length - block * size).clamp(max=size)
    pairs = tokens[:, None] * tokens[None, :]
    if case.causal:
        pairs = pairs.tril(-1) + (tokens * (tokens + 1) // 2).diag()
    return count_products(int((linked * pairs).sum()), case)


def count_lsh(module: LSHAttention, case: BenchCase) -> OperationCount:
    """An upper bound: in every hash round each token attends to `max_bucket_distance - 1` others on each side in its bucket."""
    near = module.max_bucket_distance if case.causal else 2 * module.max_bucket_distance - 1
    count = count_products(
        min(case.heads * module.hash_rounds * case.length * near, count_dense(module, case).pairs), case
    )
    hashing = module.hash_rounds * case.length * case.heads * case.head_width * module.hash_buckets // 2
    return replace(count, multiply_adds=count.multiply_adds + hashing)


def count_low_rank(module: LowRank, case: BenchCase) -> OperationCount:
    """Projecting n keys and n values to r costs as much as attending to those r."""
    count = count_products(case.heads * case.length * module.keys.size(0), case)
    return replace(count, multiply_adds=2 * count.multiply_adds)


def count_linear(module: LinearAttention, case: BenchCase) -> OperationCount:
    """No pairs are scored: keys and values are summed into a d x (d + 1) matrix, which is multiplied by every query."""
    n, d = case.length, case.head_width
    sums = 2 * n * d * (d + 1)
    if not case.causal:
        return OperationCount(0, case.heads * sums)
    # the cumulative sum runs over whole blocks, and the pairs inside each block are scored
    n = -(-n // CAUSAL_BLOCK_SIZE) * CAUSAL_BLOCK_SIZE
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
    """The theoretical cost of a case; None for a mechanism without an entry, which can still be measured."""
    formula = COST_FORMULAS.get(case.mechanism)
    if formula is None:
        return None
    module = get_mechanism(case.mechanism).make(case.head_width, case.heads, case.max_positions)
    return formula.count(module, case)


def predict_peak_bytes(case: BenchCase) -> float:
    """A lower bound of the peak memory of a case in bytes: q, k and v, and the n x n tensors that exist at the same time."""
    formula = COST_FORMULAS.get(case.mechanism)
    pair_tensors = 0.0 if formula is None else formula.pair_tensors_at_peak(case.head_width)[case.training]
    return case.input_bytes + 4 * case.batch_size * case.heads * case.length**2 * pair_tensors
