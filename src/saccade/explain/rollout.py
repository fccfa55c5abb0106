"""Attention rollout and attention flow through the layers (Abnar & Zuidema 2020, arXiv 2005.00928).

Both average the heads and give half of the weight of each layer to the residual connection. They show how information could
have moved, not what the prediction depends on; see `faithfulness` for that.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from saccade.errors import UsageError
from saccade.explain.maps import AttentionMap, AttentionMaps

MAX_FLOW_NODES = 1200  # most nodes of the flow graph: tokens times layers
MIN_CAPACITY = 1e-9  # smaller residual capacities are rounding errors


def mix_with_residual(attention_maps: AttentionMaps, side: str | None = None) -> Tensor:
    """The weights of each layer averaged with the identity for the residual connection, (layers, L, L)."""
    maps = _self_attention_maps(attention_maps, side)
    mean = torch.stack([m.mean.clamp(min=0) for m in maps])
    mean = mean / mean.sum(-1, keepdim=True).clamp(min=1e-9)
    mixed = (mean + torch.eye(mean.size(-1))) / 2
    return mixed / mixed.sum(-1, keepdim=True)


def attention_rollout(attention_maps: AttentionMaps, side: str | None = None) -> Tensor:
    """The contribution of each input token to each token after each layer, (layers, L, L): every row sums to one."""
    rollout: list[Tensor] = []
    for layer in mix_with_residual(attention_maps, side):
        rollout.append(layer @ rollout[-1] if rollout else layer)
    return torch.stack(rollout)


def attention_flow(attention_maps: AttentionMaps, query: int = 0, side: str | None = None) -> Tensor:
    """The maximum flow from each input token to one token of the last layer, (L,), with the weights as capacities."""
    layers = mix_with_residual(attention_maps, side).double().numpy()
    count, length = layers.shape[:2]
    if (count + 1) * length > MAX_FLOW_NODES:
        raise UsageError(
            f"Attention flow through {count} layers of {length} tokens needs {(count + 1) * length:,} nodes, more than "
            f"{MAX_FLOW_NODES:,}; use fewer layers, a shorter text, or attention_rollout."
        )
    if not 0 <= query < length:
        raise UsageError(f"Query {query} does not exist; there are {length} tokens, numbered from 0.")
    capacities = np.zeros(((count + 1) * length,) * 2)
    for number, weights in enumerate(layers):
        above, below = (number + 1) * length, number * length
        capacities[above : above + length, below : below + length] = weights
    return torch.tensor([max_flow(capacities, count * length + query, token) for token in range(length)])


def max_flow(capacities: np.ndarray, source: int, sink: int) -> float:
    """The maximum flow from one node to another, by shortest augmenting paths (Edmonds & Karp 1972)."""
    residual, total = capacities.copy(), 0.0
    while (path := _find_shortest_path(residual, source, sink)) is not None:
        edges = list(pairwise(path))
        bottleneck = min(residual[a, b] for a, b in edges)
        for a, b in edges:
            residual[a, b] -= bottleneck
            residual[b, a] += bottleneck
        total += bottleneck
    return total


def _find_shortest_path(residual: np.ndarray, source: int, sink: int) -> list[int] | None:
    """The shortest path with residual capacity, by breadth-first search; None if there is none."""
    predecessor = np.full(len(residual), -1)
    predecessor[source] = source
    frontier = [source]
    while frontier and predecessor[sink] < 0:
        next_frontier: list[int] = []
        for node in frontier:
            new = np.flatnonzero((residual[node] > MIN_CAPACITY) & (predecessor < 0))
            predecessor[new] = node
            next_frontier.extend(new.tolist())
        frontier = next_frontier
    if predecessor[sink] < 0:
        return None
    path = [sink]
    while path[-1] != source:
        path.append(int(predecessor[path[-1]]))
    return path[::-1]


def _self_attention_maps(attention_maps: AttentionMaps, side: str | None) -> Sequence[AttentionMap]:
    """The self-attention maps of one stack, with all rows and keys."""
    complete = [m for m in attention_maps.maps if m.kind == "self" and len(m.query) == len(m.key)]
    maps = [m for m in complete if side in (None, m.side)]
    if not maps:
        hint = "call look without `queries`"
        raise UsageError(f"There is no self-attention map with all its rows (side: {side or 'any'}); {hint}.")
    return sorted((m for m in maps if m.side == maps[0].side), key=lambda m: m.layer)
