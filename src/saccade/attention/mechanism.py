"""What attention is: weights over keys, and their sum over values.

`weights` defines a mechanism and is written to be read. `attend` is how we hurry and must equal `weights @ v`; one
contract test checks that for every mechanism, and `watch` can show the weights of any of them.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from saccade.attention.normalizer import Normalizer, Softmax
from saccade.attention.sight import Sight

Watcher = Callable[..., None]
"""Called with a function (row numbers -> weights of those rows), the shape of all weights, and the values if there are any."""


class Mechanism(nn.Module):
    """One way to look: q (B, H, Q, D) and k (B, H, K, D) give weights (B, H, Q, K).

    k and v may have fewer heads than q; each then serves a group of query heads. `dropout` on the weights applies in
    training only; it switches the fused kernel off, so it is 0 by default.
    """

    watcher: Watcher | None = None
    axes: tuple[str, ...] = ("batch", "head", "query", "key")
    supports_packing = True  # whether texts that share a row are kept apart, as `Sight.allows` does
    ties_query_key = False  # whether query and key of a token are one vector: whoever projects then makes one

    def __init__(self, *, normalizer: Normalizer | None = None, dropout: float = 0.0):
        super().__init__()
        self.normalizer = normalizer or Softmax()
        self.dropout = dropout
        if dropout and self.normalizer.is_stochastic:
            raise ValueError(f"{type(normalizer).__name__} draws one key, so there is nothing to drop; use dropout=0.")

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """How well each query matches each key, (B, H, Q, K)."""
        raise NotImplementedError(f"{type(self).__name__} must define `scores`, or `weights` and `attend`")

    def normalize(self, scores: Tensor, sight: Sight) -> Tensor:
        """Scores to weights, with the dropout of this call where there is one."""
        mask = sight.mask(scores, scores.mT)
        if self.normalizer.is_stochastic and sight.real_queries is not None:  # padding draws nothing
            mask = mask.masked_fill(~sight.real_queries[:, None, :, None], -math.inf)
        weights = self.normalizer(scores, mask, sight.noise)
        if self.training and self.dropout and sight.noise is not None:
            weights = weights * (sight.noise >= self.dropout) / (1 - self.dropout)
        return weights

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        """The definition: how much each query takes from each key, (B, H, Q, K)."""
        return self.normalize(self.scores(q, repeat_kv_heads(k, q)), sight)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        """`weights @ v`, (B, H, Q, D); override it to be fast."""
        return self.weights(q, k, sight) @ repeat_kv_heads(v, q)

    def draw_noise(self, q: Tensor, k: Tensor) -> Tensor | None:
        """The random numbers of this call, or None where nothing is left to chance."""
        if not (self.training and (self.dropout or self.normalizer.is_stochastic)):
            return None
        return torch.rand(
            *q.shape[:3], k.size(2), device=q.device
        )  # single precision: half has too few numbers to draw

    def with_noise(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        """The sight with the chance of this call in it: drawn once, for definition, fast path and watcher alike."""
        noise = self.draw_noise(q, k) if sight.noise is None else None
        return sight if noise is None else replace(sight, noise=noise)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        """The only place that knows about watching: the answer is the fast path's, watched or not."""
        if 0 in (q.size(2), k.size(2)):
            return v.new_zeros(*q.shape[:3], v.size(-1))  # nobody looks, or there is nothing to look at
        if sight.document_ids is not None and not self.supports_packing:
            raise ValueError(
                f"{type(self).__name__} cannot keep apart texts that share a row; give it one text a row (--task.packing none)."
            )
        sight = self.with_noise(q, k, sight)
        if self.watcher is not None:

            def rows(index: Tensor) -> Tensor:
                index = index.to(q.device)
                return self.weights(q[:, :, index], k, sight.select_queries(index))

            self.watcher(rows, (*q.shape[:3], *k.shape[2:-1]), v)
        return self.attend(q, k, v, sight)


def repeat_kv_heads(k: Tensor, q: Tensor) -> Tensor:
    """Repeat grouped key heads until there is one for each query head."""
    if k.size(1) == q.size(1):
        return k
    if q.size(1) % k.size(1):
        raise ValueError(f"{q.size(1)} query heads cannot share {k.size(1)} key heads evenly; use a divisor.")
    return k.repeat_interleave(q.size(1) // k.size(1), dim=1)
