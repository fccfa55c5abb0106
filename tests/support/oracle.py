"""Reference implementation of attention: the formulas as plain Python loops over pairs, to check the mechanisms against.

No code of `saccade` is used: scores, masks and normalization are loops over numbers. Only the parameters of a mechanism are
read, and the oracle that the entry of a plugin declares.
"""

import math

import torch

from saccade.attention import MECHANISMS


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def matvec(matrix, x):
    return [dot(row, x) for row in matrix]


def norm(x):
    return max(math.sqrt(dot(x, x)), 1e-12)


def distance2(q, k):
    return sum((x - y) ** 2 for x, y in zip(q, k, strict=True))


def additive(m):
    a, b, c, u = m.query.weight.tolist(), m.key.weight.tolist(), m.key.bias.tolist(), m.outer.weight[0].tolist()
    return lambda q, k, r: dot(u, [math.tanh(x + y + z) for x, y, z in zip(matvec(a, q), matvec(b, k), c, strict=True)])


def gaussian(m):
    return lambda q, k, r: -distance2(q, k) / (2 * m.bandwidth**2)


def log_or_minus_infinity(value):
    return math.log(value) if value > 0 else -math.inf


def elu_features(x):
    return [v + 1 if v > 0 else math.exp(v) for v in x]


def scaled(m):
    return lambda q, k, r: dot(q, k) / math.sqrt(len(q))


def shaw(m):
    table, c = m.offsets.tolist(), m.max_relative_distance
    return lambda q, k, r: (
        dot(q, [x + y for x, y in zip(k, table[max(-c, min(c, r)) + c], strict=True)]) / math.sqrt(len(q))
    )


SCORES = {  # name -> mechanism -> (q, k, distance from q to k) -> score
    "dot": lambda m: lambda q, k, r: dot(q, k),
    "scaled_dot": scaled,
    "cosine": lambda m: lambda q, k, r: m.sharpness.item() * dot(q, k) / (norm(q) * norm(k)),
    "bilinear": lambda m: lambda q, k, r: dot(matvec(m.between.weight.tolist(), q), k),
    "additive": additive,
    "spatial": lambda m: additive(m.mechanism),
    "distance": lambda m: lambda q, k, r: -0.5 * distance2(q, k),
    "gaussian": gaussian,
    "boxcar": lambda m: lambda q, k, r: 0.0 if math.sqrt(distance2(q, k)) <= m.bandwidth else -math.inf,
    "constant": lambda m: lambda q, k, r: 0.0,
    "epanechnikov": lambda m: lambda q, k, r: log_or_minus_infinity(1 - distance2(q, k) / m.bandwidth**2),
    "relative": shaw,
    "linear": lambda m: lambda q, k, r: dot(elu_features(q), elu_features(k)),
    "lsh": lambda m: lambda q, k, r: dot(q, k) / norm(k) / math.sqrt(len(q)),
    **dict.fromkeys(("sum_normalized", "sparsemax", "hard", "windowed", "bigbird"), scaled),
}


def softmax(scores):
    top = max(scores)
    if top == -math.inf:
        return [0.0] * len(scores)
    parts = [math.exp(s - top) for s in scores]
    return [p / sum(parts) for p in parts]


def sum_normalized(scores):
    parts = [max(0.0, s) for s in scores]
    return [p / sum(parts) if sum(parts) else 0.0 for p in parts]


def sparsemax(scores):
    """Sparsemax by bisection for the threshold at which the weights sum to one, instead of by sorting."""
    if max(scores) == -math.inf:
        return [0.0] * len(scores)
    low, high = max(scores) - 1, max(scores)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(0.0, s - middle) for s in scores) > 1 else (low, middle)
    return [max(0.0, s - low) for s in scores]


def hard(scores):
    if max(scores) == -math.inf:
        return [0.0] * len(scores)
    best = scores.index(max(scores))
    return [float(i == best) for i in range(len(scores))]


NORMALIZERS = {"sum_normalized": sum_normalized, "sparsemax": sparsemax, "hard": hard, "linear": sum_normalized}
NORMALIZERS = {name: NORMALIZERS.get(name, softmax) for name in SCORES}
# sparse mechanisms, with the patterns of `sparse_pattern` and `buckets_of`
POSITION_BASED = ("windowed", "bigbird", "lsh")


def random_blocks(links, head, block, final):
    """The random blocks of one query block in BigBird, computed by its hash in plain integers."""

    def scramble(x):
        for factor in (0x45D9F3B, 0x119DE1F3):
            x = ((x ^ (x >> 15)) * factor) & 0x7FFFFFFF
        return x ^ (x >> 13)

    def is_end(i):
        return i < links.first_blocks or (links.bidirectional and i > final - links.last_blocks)

    free = [
        j
        for j in range(final + 1)
        if abs(block - j) > links.window_blocks
        and not is_end(block)
        and not is_end(j)
        and (links.bidirectional or j < block)
    ]
    rank = {j: scramble(scramble(scramble(j + links.random.seed * 7919) + block) + head) for j in free}
    return set(sorted(free, key=rank.get, reverse=True)[: links.random.blocks_per_query_block])


def buckets_of(m, k, real, head):
    """The (bucket, rank in the bucket) of every key in every round of LSH attention."""
    rounds = []
    for rotation in m.rotations[:, head].tolist():
        columns = list(zip(*rotation, strict=True))
        counts, row = {}, []
        for vector, is_real in zip(k, real, strict=True):
            rotated = [dot(vector, column) for column in columns]
            rotated += [-x for x in rotated]
            bucket = rotated.index(max(rotated)) if is_real else None
            row.append((bucket, counts.get(bucket, 0)))
            counts[bucket] = counts.get(bucket, 0) + 1
        rounds.append(row)
    return rounds


def sparse_pattern(name, m, bidirectional):
    """(head, q, k, last position) -> whether a sparse mechanism attends to this position at all."""
    if name == "windowed":
        w, count = m.window, m.global_count
        return lambda h, q, k, last: -w.left <= k - q <= w.right or q < count or k < count
    if name == "bigbird":
        links = m.pattern.__class__(**{**m.pattern.__dict__, "bidirectional": bidirectional})
        size = links.random.block_size

        def allowed(h, q, k, last):
            i, j, final = q // size, k // size, last // size
            ends = [b < links.first_blocks or (bidirectional and b > final - links.last_blocks) for b in (i, j)]
            return abs(i - j) <= links.window_blocks or any(ends) or j in random_blocks(links, h, i, final)

        return allowed
    return lambda h, q, k, last: True


def weights_of_oracle(oracle, m, q, k, allows, keep=None, bias=None):
    """All weights, (B, H, Q, K), by the oracle that an entry declares: one head of one text without its padding at a time."""
    b, h, n, _ = q.shape
    out = torch.zeros(b, h, n, k.size(2), dtype=q.dtype)
    for row in range(b):
        real = torch.ones(k.size(2), dtype=torch.bool) if keep is None else keep[row]
        place = (real.cumsum(0) - 1).tolist()
        for head in range(h):
            mask = torch.full((n, k.size(2)), -math.inf, dtype=q.dtype)
            for i, j in ((i, j) for i in range(n) for j in range(k.size(2)) if allows(place[i], place[j])):
                mask[i, j] = bias(head, place[i], place[j]) if bias else 0.0
            seeing = ~(mask[:, real] == -math.inf).all(1)
            if seeing.any():
                found = oracle(m, q[row, head, seeing], k[row, head, real], mask[seeing][:, real], head)
                out[row, head, seeing] = torch.zeros(int(seeing.sum()), k.size(2), dtype=q.dtype).masked_scatter(
                    real.expand(int(seeing.sum()), -1), found
                )
    return out


def weights(name, m, q, k, allows, keep=None, bias=None, bidirectional=True):
    """All weights, (B, H, Q, K), of self-attention without a cache; `allows(i, j)` and `bias(h, i, j)` depend on positions."""
    oracle = next((entry.oracle for entry in MECHANISMS if entry.name == name), None)
    if oracle is not None:  # a mechanism of a plugin declares its formula
        return weights_of_oracle(oracle, m, q, k, allows, keep, bias)
    assert name in SCORES, f"{name} is missing from SCORES in {__file__}: add its formula, so that it can be checked"
    score, normalize = SCORES[name](m), NORMALIZERS[name]
    is_linked = sparse_pattern(name, m, bidirectional)
    b, h, n, _ = q.shape
    out = torch.zeros(b, h, n, k.size(2), dtype=q.dtype)
    for row in range(b):
        real = [True] * k.size(2) if keep is None else keep[row].tolist()
        positions = [sum(real[: i + 1]) - 1 for i in range(len(real))]
        last = max(positions)
        for head in range(h):
            qs, ks = q[row, head].tolist(), k[row, head].tolist()
            table = buckets_of(m, ks, real, head) if name == "lsh" else None
            for i in range(n):
                if not real[i] and name in (*POSITION_BASED, "hard"):
                    continue
                line = []
                for j in range(k.size(2)):
                    q_pos, k_pos = positions[i], positions[j]
                    visible = real[j] and allows(q_pos, k_pos) and is_linked(head, q_pos, k_pos, last)
                    if visible and table is not None:
                        visible = any(
                            r[i][0] == r[j][0] and abs(r[i][1] - r[j][1]) < m.max_bucket_distance for r in table
                        )
                    added = bias(head, q_pos, k_pos) if bias else 0.0
                    line.append(score(qs[i], ks[j], k_pos - q_pos) + added if visible else -math.inf)
                out[row, head, i] = torch.tensor(normalize(line), dtype=q.dtype)
    return out
