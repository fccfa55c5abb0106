"""Cosine similarity of embeddings: the nearest neighbors of some vectors, and the nearest pairs among many."""

import heapq
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_SIMILARITIES_AT_ONCE = 2**24  # bounds the memory: blocks of 64 MB


def nearest_neighbors(queries: Tensor, vectors: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` vectors nearest to each query by cosine similarity, nearest first: similarities and indices, (queries, count).

    >>> values, indices = nearest_neighbors(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0], [3.0, 0.0]]), 2)
    >>> values.tolist(), indices.tolist()
    ([[1.0, 0.0]], [[1, 0]])
    """
    normalized, count = F.normalize(vectors, dim=-1), min(count, len(vectors))
    rows = max(1, MAX_SIMILARITIES_AT_ONCE // max(1, len(vectors)))
    blocks = [(F.normalize(block, dim=-1) @ normalized.T).topk(count) for block in _split(queries, rows)]
    return torch.cat([block.values for block in blocks]), torch.cat([block.indices for block in blocks])


def _split(vectors: Tensor, rows: int) -> Sequence[Tensor]:
    return cast(Any, vectors).split(rows)


def _to_list(values: Tensor) -> list[Any]:
    return cast(Any, values).tolist()


def nearest_pairs(vectors: Tensor, count: int) -> list[tuple[float, int, int]]:
    """The `count` pairs of different vectors with the highest cosine similarity, as (similarity, first, second), highest first.

    >>> nearest_pairs(torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 5.0]]), 1)
    [(1.0, 0, 2)]
    """
    normalized = F.normalize(vectors, dim=-1)
    rows = max(1, MAX_SIMILARITIES_AT_ONCE // max(1, len(vectors)))
    found: list[tuple[float, int, int]] = []
    for start in range(0, len(vectors), rows):
        block = normalized[start : start + rows] @ normalized.T
        later = torch.arange(len(vectors)) > torch.arange(start, start + len(block))[:, None]  # each pair once
        block = block.masked_fill(~later, -torch.inf).flatten()
        values, cells = block.topk(min(count, len(block)))
        pairs = zip(_to_list(values), _to_list(cells), strict=True)
        found += [
            (value, start + cell // len(vectors), cell % len(vectors)) for value, cell in pairs if value > -torch.inf
        ]
        found = heapq.nlargest(count, found, key=lambda pair: pair[0])
    return found
