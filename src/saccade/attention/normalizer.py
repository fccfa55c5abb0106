"""Normalizers turn attention scores into attention weights: softmax, sum, sparsemax, hard. Any score works with any of them.

Each takes scores and the additive mask of a `Sight` (0, a bias, or -inf) and returns weights. A query without visible keys
gets zero weights and finite gradients in all of them.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class Normalizer(nn.Module):
    """Maps scores and an additive mask to weights; stochastic normalizers sample from `noise`, uniform in [0, 1)."""

    is_stochastic = False

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define `forward`, which turns scores into weights")


class Softmax(Normalizer):
    """Softmax: weights proportional to exp(score)."""

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = scores + mask
        blind = scores.detach().amax(-1, keepdim=True) == -math.inf
        return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


class SumNormalizer(Normalizer):
    """ReLU, then division by the sum: weights proportional to the positive scores, a / Σa with a = max(0, score)."""

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = (scores + mask).clamp(min=0)
        total = scores.sum(-1, keepdim=True)
        return scores / total.masked_fill(total == 0, 1.0)


class Sparsemax(Normalizer):
    """Sparsemax: the projection of the scores onto the simplex, so low scores get exactly zero (Martins & Astudillo 2016).

    >>> Sparsemax()(torch.tensor([[1.0, 0.75, -2.0]]), torch.zeros(1, 3))
    tensor([[0.6250, 0.3750, 0.0000]])
    """

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = scores + mask
        blind = (scores == -math.inf).all(-1, keepdim=True)
        scores = scores.masked_fill(blind, 0.0)
        scores = scores - scores.amax(-1, keepdim=True).detach()
        order = scores.sort(-1, descending=True).values
        # the largest n with 1 + n·z_n > z_1 + ... + z_n; hidden keys (-inf) are sorted last and never count
        hidden = order == -math.inf
        finite = order.masked_fill(hidden, 0.0)
        count = torch.arange(1, scores.size(-1) + 1, device=scores.device)
        in_support = (1 + count * finite > finite.cumsum(-1)) & ~hidden
        size = in_support.sum(-1, keepdim=True)
        threshold = (finite.masked_fill(~in_support, 0.0).sum(-1, keepdim=True) - 1) / size
        return (scores - threshold).clamp(min=0).masked_fill(blind, 0.0)


class Hard(Normalizer):
    """Hard attention: all the weight on one key, sampled from the softmax in training, the argmax in evaluation.

    Sampling cannot be differentiated, so it is trained by REINFORCE: see `saccade.attention.reinforce`.
    """

    is_stochastic = True
    recorder: Callable[[Tensor], None] | None = None

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = scores + mask
        blind = (scores == -math.inf).all(-1, keepdim=True)
        scores = scores.masked_fill(blind, 0.0)
        # Gumbel-max trick: the argmax of score + Gumbel noise is a sample from the softmax of the scores
        perturbed = scores if noise is None else scores - (-noise.clamp(min=torch.finfo(noise.dtype).tiny).log()).log()
        at = perturbed.argmax(-1, keepdim=True)
        # no sample to record when weights are watched (no gradients) or in evaluation (no noise)
        if self.recorder is not None and noise is not None and scores.requires_grad:
            self.recorder(scores.log_softmax(-1).gather(-1, at).masked_fill(blind, 0.0).squeeze(-1))
        return torch.zeros_like(scores).scatter(-1, at, 1.0).masked_fill(blind, 0.0)
