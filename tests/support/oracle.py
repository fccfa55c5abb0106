"""Attention written again from the formulas, one pair at a time in plain Python: what the mechanisms are checked against.

Nothing of `saccade` computes here: scores, masks and normalisation are loops over numbers. Only the parameters of a
mechanism are read, and the oracle that the entry of a plugin declares.
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


def inside(value):
    return math.log(value) if value > 0 else -math.inf


def features(x):
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
    "epanechnikov": lambda m: lambda q, k, r: inside(1 - distance2(q, k) / m.bandwidth**2),
    "relative": shaw,
    "linear": lambda m: lambda q, k, r: dot(features(q), features(k)),
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
    """By bisection for the threshold that leaves shares of sum one: another road than sorting."""
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
BY_PLACE = (
    "windowed",
    "bigbird",
    "lsh",
)  # a query looks at some places only: `own_pattern` and `buckets_of` say which


def chosen_blocks(links, head, block, final):
    """BigBird's random blocks of one query block, from the hash in plain integers."""

    def scramble(x):
        for factor in (0x45D9F3B, 0x119DE1F3):
            x = ((x ^ (x >> 15)) * factor) & 0x7FFFFFFF
        return x ^ (x >> 13)

    def end(i):
        return i < links.first_blocks or (links.bidirectional and i > final - links.last_blocks)

    free = [
        j
        for j in range(final + 1)
        if abs(block - j) > links.window_blocks and not end(block) and not end(j) and (links.bidirectional or j < block)
    ]
    rank = {j: scramble(scramble(scramble(j + links.random.seed * 7919) + block) + head) for j in free}
    return set(sorted(free, key=rank.get, reverse=True)[: links.random.blocks_per_query_block])


def buckets_of(m, k, real, head):
    """The bucket and the rank of every key in every round of LSH attention."""
    found = []
    for rotation in m.rotations[:, head].tolist():
        columns = list(zip(*rotation, strict=True))
        seen, row = {}, []
        for vector, is_real in zip(k, real, strict=True):
            turned = [dot(vector, column) for column in columns]
            turned += [-x for x in turned]
            bucket = turned.index(max(turned)) if is_real else None
            row.append((bucket, seen.get(bucket, 0)))
            seen[bucket] = seen.get(bucket, 0) + 1
        found.append(row)
    return found


def own_pattern(name, m, ahead):
    """(head, q, k, last position) -> whether a sparse mechanism looks there at all."""
    if name == "windowed":
        w, count = m.window, m.global_count
        return lambda h, q, k, last: -w.left <= k - q <= w.right or q < count or k < count
    if name == "bigbird":
        links = m.pattern.__class__(**{**m.pattern.__dict__, "bidirectional": ahead})
        size = links.random.block_size

        def allowed(h, q, k, last):
            i, j, final = q // size, k // size, last // size
            end = [b < links.first_blocks or (ahead and b > final - links.last_blocks) for b in (i, j)]
            return abs(i - j) <= links.window_blocks or any(end) or j in chosen_blocks(links, h, i, final)

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


def weights(name, m, q, k, allows, keep=None, bias=None, ahead=True):
    """All weights, (B, H, Q, K): `allows(i, j)` and `bias(h, i, j)` are functions of positions; self-attention, fresh."""
    oracle = next((entry.oracle for entry in MECHANISMS if entry.name == name), None)
    if oracle is not None:  # a mechanism of a plugin brings its formula along
        return weights_of_oracle(oracle, m, q, k, allows, keep, bias)
    assert name in SCORES, (
        f"{name} has no line in SCORES of {__file__}: write its formula there, so that it can be checked"
    )
    score, normalise = SCORES[name](m), NORMALIZERS[name]
    own = own_pattern(name, m, ahead)
    b, h, n, _ = q.shape
    out = torch.zeros(b, h, n, k.size(2), dtype=q.dtype)
    for row in range(b):
        real = [True] * k.size(2) if keep is None else keep[row].tolist()
        place = [sum(real[: i + 1]) - 1 for i in range(len(real))]
        last = max(place)
        for head in range(h):
            qs, ks = q[row, head].tolist(), k[row, head].tolist()
            table = buckets_of(m, ks, real, head) if name == "lsh" else None
            for i in range(n):
                if not real[i] and name in (*BY_PLACE, "hard"):
                    continue
                line = []
                for j in range(k.size(2)):
                    seen = real[j] and allows(place[i], place[j]) and own(head, place[i], place[j], last)
                    if seen and table is not None:
                        seen = any(r[i][0] == r[j][0] and abs(r[i][1] - r[j][1]) < m.max_bucket_distance for r in table)
                    tilt = bias(head, place[i], place[j]) if bias else 0.0
                    line.append(score(qs[i], ks[j], place[j] - place[i]) + tilt if seen else -math.inf)
                out[row, head, i] = torch.tensor(normalise(line), dtype=q.dtype)
    return out
