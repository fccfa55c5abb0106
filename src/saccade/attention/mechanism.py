"""What attention is: weights over keys, and their sum over values.

`weights` defines a mechanism and is written to be read. `attend` is how we hurry and must equal `weights @ v`; one
contract test checks that for every mechanism, and `watch` can show the weights of any of them.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from saccade.attention.normaliser import Normaliser, Softmax
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
    separates = True  # whether texts that share a row are kept apart, as `Sight.allows` does
    shared = False  # whether query and key of a token are one vector: whoever projects then makes one

    def __init__(self, *, normaliser: Normaliser | None = None, dropout: float = 0.0):
        super().__init__()
        self.normaliser = normaliser or Softmax()
        self.dropout = dropout
        if dropout and self.normaliser.random:
            raise ValueError(f"{type(normaliser).__name__} draws one key, so there is nothing to drop; use dropout=0.")

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """How well each query matches each key, (B, H, Q, K)."""
        raise NotImplementedError(f"{type(self).__name__} must define `scores`, or `weights` and `attend`")

    def normalise(self, scores: Tensor, sight: Sight) -> Tensor:
        """Scores to weights, with the dropout of this call where there is one."""
        mask = sight.mask(scores, scores.mT)
        if self.normaliser.random and sight.looking is not None:  # padding draws nothing
            mask = mask.masked_fill(~sight.looking[:, None, :, None], -math.inf)
        weights = self.normaliser(scores, mask, sight.noise)
        if self.training and self.dropout and sight.noise is not None:
            weights = weights * (sight.noise >= self.dropout) / (1 - self.dropout)
        return weights

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        """The definition: how much each query takes from each key, (B, H, Q, K)."""
        return self.normalise(self.scores(q, match(k, q)), sight)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        """`weights @ v`, (B, H, Q, D); override it to be fast."""
        return self.weights(q, k, sight) @ match(v, q)

    def chance(self, q: Tensor, k: Tensor) -> Tensor | None:
        """The random numbers of this call, or None where nothing is left to chance."""
        if not (self.training and (self.dropout or self.normaliser.random)):
            return None
        return torch.rand(
            *q.shape[:3], k.size(2), device=q.device
        )  # single precision: half has too few numbers to draw

    def drawn(self, q: Tensor, k: Tensor, sight: Sight) -> Sight:
        """The sight with the chance of this call in it: drawn once, for definition, fast path and watcher alike."""
        noise = self.chance(q, k) if sight.noise is None else None
        return sight if noise is None else replace(sight, noise=noise)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        """The only place that knows about watching: the answer is the fast path's, watched or not."""
        if 0 in (q.size(2), k.size(2)):
            return v.new_zeros(*q.shape[:3], v.size(-1))  # nobody looks, or there is nothing to look at
        if sight.parts is not None and not self.separates:
            raise ValueError(
                f"{type(self).__name__} cannot keep apart texts that share a row; give it one text a row (--task.texts alone)."
            )
        sight = self.drawn(q, k, sight)
        if self.watcher is not None:

            def rows(index: Tensor) -> Tensor:
                index = index.to(q.device)
                return self.weights(q[:, :, index], k, sight.rows(index))

            self.watcher(rows, (*q.shape[:3], *k.shape[2:-1]), v)
        return self.attend(q, k, v, sight)


def match(k: Tensor, q: Tensor) -> Tensor:
    """Repeat grouped key heads until there is one for each query head."""
    if k.size(1) == q.size(1):
        return k
    if q.size(1) % k.size(1):
        raise ValueError(f"{q.size(1)} query heads cannot share {k.size(1)} key heads evenly; use a divisor.")
    return k.repeat_interleave(q.size(1) // k.size(1), dim=1)
