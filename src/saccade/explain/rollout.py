"""Attention through the layers: rollout multiplies it, flow asks how much can pass (Abnar & Zuidema 2020, arXiv 2005.00928).

Both take the mean of the heads and give half of each layer to the residual connection. They are about how information could
have moved, not about what the answer depends on; see `faithfulness` for that.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from saccade.errors import UsageError
from saccade.explain.maps import AttentionMap, AttentionMaps

MAX_FLOW_NODES = 1200  # nodes of a graph, tokens times layers, through which flow is computed
MIN_CAPACITY = 1e-9  # what is left of a capacity after rounding is nothing


def mix_with_residual(attention_maps: AttentionMaps, side: str | None = None) -> Tensor:
    """How much of each token each layer passes on to each, (layers, L, L), the residual connection included."""
    maps = _self_attention_maps(attention_maps, side)
    mean = torch.stack([m.mean.clamp(min=0) for m in maps])
    mean = mean / mean.sum(-1, keepdim=True).clamp(min=1e-9)
    whole = (mean + torch.eye(mean.size(-1))) / 2
    return whole / whole.sum(-1, keepdim=True)


def attention_rollout(attention_maps: AttentionMaps, side: str | None = None) -> Tensor:
    """How much of each input token is in each token after so many layers, (layers, L, L): every row sums to one."""
    out: list[Tensor] = []
    for layer in mix_with_residual(attention_maps, side):
        out.append(layer @ out[-1] if out else layer)
    return torch.stack(out)


def attention_flow(attention_maps: AttentionMaps, query: int = 0, side: str | None = None) -> Tensor:
    """How much could pass to one token of the last layer from each input token (L,), were the weights capacities of pipes."""
    layers = mix_with_residual(attention_maps, side).double().numpy()
    count, length = layers.shape[:2]
    if (count + 1) * length > MAX_FLOW_NODES:
        raise UsageError(
            f"Flow through {count} layers of {length} tokens is a graph of {(count + 1) * length:,} nodes, more than "
            f"{MAX_FLOW_NODES:,}; choose fewer layers or a shorter text, or take the rollout."
        )
    if not 0 <= query < length:
        raise UsageError(f"There are {length} tokens, numbered from 0; asked for {query}.")
    pipes = np.zeros(((count + 1) * length,) * 2)
    for number, weights in enumerate(layers):
        above, below = (number + 1) * length, number * length
        pipes[above : above + length, below : below + length] = weights
    return torch.tensor([max_flow(pipes, count * length + query, token) for token in range(length)])


def max_flow(capacities: np.ndarray, source: int, sink: int) -> float:
    """The most that can flow from one node to another, by shortest ways that have room left (Edmonds & Karp 1972)."""
    room, total = capacities.copy(), 0.0
    while (way := _find_shortest_path(room, source, sink)) is not None:
        steps = list(pairwise(way))
        least = min(room[a, b] for a, b in steps)
        for a, b in steps:
            room[a, b] -= least
            room[b, a] += least
        total += least
    return total


def _find_shortest_path(residual: np.ndarray, source: int, sink: int) -> list[int] | None:
    """A way of fewest steps along which there is room."""
    before = np.full(len(residual), -1)
    before[source] = source
    edge = [source]
    while edge and before[sink] < 0:
        ahead: list[int] = []
        for node in edge:
            new = np.flatnonzero((residual[node] > MIN_CAPACITY) & (before < 0))
            before[new] = node
            ahead.extend(new.tolist())
        edge = ahead
    if before[sink] < 0:
        return None
    way = [sink]
    while way[-1] != source:
        way.append(int(before[way[-1]]))
    return way[::-1]


def _self_attention_maps(attention_maps: AttentionMaps, side: str | None) -> Sequence[AttentionMap]:
    """The self-attention of one stack, all rows and keys of it."""
    found = [
        m for m in attention_maps.maps if m.kind == "self" and len(m.query) == len(m.key) and side in (None, m.side)
    ]
    found = [m for m in found if m.side == found[0].side]
    if not found:
        raise UsageError(
            f"There is no self-attention with all its rows here (side {side or 'any'}); look without `rows`."
        )
    return sorted(found, key=lambda m: m.layer)
