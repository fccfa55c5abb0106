"""From scores to weights: a normaliser is a part, so any score goes with any of them.

Each takes scores and the mask of a `Sight` (0, a tilt, or -inf) and returns weights. A query that may see nothing gets
zero weights and finite gradients in all of them.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class Normalizer(nn.Module):
    """Scores and a mask in, weights out; `noise` is the chance of this call for those that draw."""

    is_stochastic = False

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must turn scores into weights")


class Softmax(Normalizer):
    """Shares in proportion to exp(score)."""

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = scores + mask
        blind = scores.detach().amax(-1, keepdim=True) == -math.inf
        return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


class SumNormalizer(Normalizer):
    """Shares in proportion to the score itself, a / Σa; what is not positive gets nothing."""

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = (scores + mask).clamp(min=0)
        total = scores.sum(-1, keepdim=True)
        return scores / total.masked_fill(total == 0, 1.0)


class Sparsemax(Normalizer):
    """The point of the simplex nearest to the scores: low ones get exactly zero (Martins & Astudillo 2016).

    >>> Sparsemax()(torch.tensor([[1.0, 0.75, -2.0]]), torch.zeros(1, 3))
    tensor([[0.6250, 0.3750, 0.0000]])
    """

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = scores + mask
        blind = (scores == -math.inf).all(-1, keepdim=True)
        scores = scores.masked_fill(blind, 0.0)
        scores = scores - scores.amax(-1, keepdim=True).detach()
        order = scores.sort(-1, descending=True).values
        # the largest n with 1 + n·z_n > z_1 + ... + z_n; hidden keys (-inf) stand last and never count
        hidden = order == -math.inf
        known = order.masked_fill(hidden, 0.0)
        count = torch.arange(1, scores.size(-1) + 1, device=scores.device)
        inside = (1 + count * known > known.cumsum(-1)) & ~hidden
        size = inside.sum(-1, keepdim=True)
        cut = (known.masked_fill(~inside, 0.0).sum(-1, keepdim=True) - 1) / size
        return (scores - cut).clamp(min=0).masked_fill(blind, 0.0)


class Hard(Normalizer):
    """All the weight on one key: in training drawn from the softmax, in evaluation the best.

    The draw cannot be differentiated, so it is trained by REINFORCE: see `saccade.attention.reinforce`.
    """

    is_stochastic = True
    recorder: Callable[[Tensor], None] | None = None

    def forward(self, scores: Tensor, mask: Tensor, noise: Tensor | None = None) -> Tensor:
        scores = scores + mask
        blind = (scores == -math.inf).all(-1, keepdim=True)
        scores = scores.masked_fill(blind, 0.0)
        # the largest of score + Gumbel noise is a draw from the softmax of the scores
        drawn = scores if noise is None else scores - (-noise.clamp(min=torch.finfo(noise.dtype).tiny).log()).log()
        at = drawn.argmax(-1, keepdim=True)
        # watching asks without gradients and is not a draw; in evaluation nothing is drawn
        if self.recorder is not None and noise is not None and scores.requires_grad:
            self.recorder(scores.log_softmax(-1).gather(-1, at).masked_fill(blind, 0.0).squeeze(-1))
        return torch.zeros_like(scores).scatter(-1, at, 1.0).masked_fill(blind, 0.0)
