"""The base class of attention mechanisms: attention weights over keys, and the weighted sum of the values.

`weights` defines a mechanism and is written for the reader. `attend` is the fast path and must equal `weights @ v`; a
contract test checks this for every mechanism, and `watch` returns the weights of any of them.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from saccade.attention.normalizer import Normalizer, Softmax
from saccade.attention.sight import Sight

Watcher = Callable[..., None]
"""Called with a function (row indices -> weights of those rows), the shape of the full weights, and the values or None."""


class Mechanism(nn.Module):
    """An attention mechanism: queries (B, H, Q, D) and keys (B, H, K, D) give attention weights (B, H, Q, K).

    k and v may have fewer heads than q (grouped-query attention); each then serves a group of query heads. `dropout` is the
    dropout of the attention weights in training; it rules out the fused kernel, so the default is 0.
    """

    watcher: Watcher | None = None
    axes: tuple[str, ...] = ("batch", "head", "query", "key")
    supports_packing = True  # whether packed texts, which share a row, cannot attend to each other (see `Sight.allows`)
    ties_query_key = False  # whether the query and the key of a token are the same vector, from one projection

    def __init__(self, *, normalizer: Normalizer | None = None, dropout: float = 0.0):
        super().__init__()
        self.normalizer: Normalizer | Softmax = normalizer or Softmax()
        self.dropout = dropout
        if dropout and self.normalizer.is_stochastic:
            raise ValueError(
                f"{type(normalizer).__name__} samples a single key, so there is nothing to drop; use dropout=0."
            )

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """The attention scores (logits) of each query for each key, (B, H, Q, K)."""
        raise NotImplementedError(f"{type(self).__name__} must define `scores`, or `weights` and `attend`")

    def normalize(self, scores: Tensor, sight: Sight) -> Tensor:
        """Turn scores into weights and apply the dropout of this call, if any."""
        mask = sight.mask(scores, scores.mT)
        if self.normalizer.is_stochastic and sight.real_queries is not None:  # padding samples no key
            mask = mask.masked_fill(~sight.real_queries[:, None, :, None], -math.inf)
        weights = self.normalizer(scores, mask, sight.noise)
        if self.training and self.dropout and sight.noise is not None:
            weights = weights * (sight.noise >= self.dropout) / (1 - self.dropout)
        return weights

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        """The definition: the attention weight of each query on each key, (B, H, Q, K)."""
        return self.normalize(self.scores(q, repeat_kv_heads(k, q)), sight)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        """`weights @ v`, (B, H, Q, D); override it with a faster implementation."""
        return self.weights(q, k, sight) @ repeat_kv_heads(v, q)

    def draw_noise(self, q: Tensor, k: Tensor) -> Tensor | None:
        """The random numbers of this call for dropout or sampling, or None if the call is deterministic."""
        if not (self.training and (self.dropout or self.normalizer.is_stochastic)):
            return None
        return torch.rand(
            *q.shape[:3], k.size(2), device=q.device
        )  # float32: half precision has too few distinct values

    def with_noise(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        """A copy of the sight with the random numbers of this call, which `weights`, `attend` and the watcher share."""
        noise = self.draw_noise(q, k) if sight.noise is None else None
        return sight if noise is None else replace(sight, noise=noise)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        """Attend, and report the weights to the watcher if there is one; the output always comes from the fast path."""
        if 0 in (q.size(2), k.size(2)):
            return v.new_zeros(*q.shape[:3], v.size(-1))  # no queries or no keys
        if sight.document_ids is not None and not self.supports_packing:
            raise ValueError(
                f"{type(self).__name__} does not support packing: it cannot keep apart texts that share a row. "
                "Use one text per row (--task.packing none)."
            )
        sight = self.with_noise(q, k, sight)
        if self.watcher is not None:

            def rows(index: Tensor) -> Tensor:
                index = index.to(q.device)
                return self.weights(q[:, :, index], k, sight.select_queries(index))

            self.watcher(rows, (*q.shape[:3], *k.shape[2:-1]), v)
        return self.attend(q, k, v, sight)


def repeat_kv_heads(k: Tensor, q: Tensor) -> Tensor:
    """Repeat the key (or value) heads of grouped-query attention until there is one for each query head."""
    if k.size(1) == q.size(1):
        return k
    if q.size(1) % k.size(1):
        raise ValueError(
            f"{q.size(1)} query heads cannot share {k.size(1)} key heads evenly; use a number of key heads that divides it."
        )
    return k.repeat_interleave(q.size(1) // k.size(1), dim=1)
