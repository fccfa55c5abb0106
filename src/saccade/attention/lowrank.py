"""Low rank: n keys and values are mixed into r of each before attention, softmax(q·(Ek)/√d)(Fv).

Linformer (Wang et al. 2020, arXiv 2006.04768): O(n r) in place of O(n²). The weights on the tokens are softmax(·)F, which may be
negative and need not sum to one. All keys are mixed together, so neither a pattern nor a tilt of single pairs can be honoured.
"""

import math

import torch
from torch import Tensor, nn

from saccade.attention.dot import ScaledDot
from saccade.attention.fused import fused
from saccade.attention.mechanism import match
from saccade.attention.normaliser import Softmax
from saccade.attention.pattern import FULL
from saccade.attention.sight import Sight
from saccade.errors import ModelError


class LowRank(ScaledDot):
    """Linformer's attention for up to `length` tokens, mixed down to `rank`; each position has its column of E and F."""

    separates = False

    def __init__(self, length: int, rank: int = 64, *, dropout: float = 0.0):
        super().__init__(dropout=dropout)
        self.keys = nn.Parameter(torch.randn(rank, length) / math.sqrt(length))  # E
        self.values = nn.Parameter(torch.randn(rank, length) / math.sqrt(length))  # F

    def mixers(self, q: Tensor, k: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """E and F for these tokens, (B|1, 1, rank, K), zero where a token is padding."""
        self._refuse(k, sight)
        _, k_pos = sight.places(q, k)
        at = k_pos[:, 0, 0].clamp(min=0)  # (B|1, K)
        keep = torch.ones_like(at, dtype=torch.bool) if sight.keep is None else sight.keep
        mix = (
            torch.where(keep[:, None, None], x[:, at].transpose(0, 1)[:, None], 0.0) for x in (self.keys, self.values)
        )
        e, f = mix
        return e.to(k.dtype), f.to(k.dtype)

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        e, f = self.mixers(q, k, sight)
        mixed = self.normalise(self.scores(q, e @ match(self._clean(k, sight), q)), self._over(sight))
        return mixed @ f

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        e, f = self.mixers(q, k, sight)
        if sight.noise is not None or type(self.normaliser) is not Softmax:
            return super().attend(q, k, v, sight)
        k, v = self._clean(k, sight), self._clean(v, sight)
        return fused(q, e @ k, f @ v, self._over(sight))

    def chance(self, q: Tensor, k: Tensor) -> Tensor | None:
        return super().chance(q, self.keys[None, None])  # dropout falls on the mixed keys

    def _over(self, sight: Sight) -> Sight:
        return Sight(FULL, noise=sight.noise, cross=True)

    def _clean(self, x: Tensor, sight: Sight) -> Tensor:
        return x if sight.keep is None else torch.where(sight.keep[:, None, :, None], x, 0.0)

    def _refuse(self, k: Tensor, sight: Sight) -> None:
        if sight.pattern != FULL:
            raise ModelError(f"LowRank mixes all keys together, so it cannot honour {sight.pattern}; use ScaledDot.")
        if sight.bias is not None:
            raise ValueError(
                "LowRank mixes all keys together, so a bias on single pairs has no meaning; use ScaledDot."
            )
        if k.size(2) > self.keys.size(1):
            raise ValueError(
                f"This LowRank mixes at most {self.keys.size(1)} tokens and got {k.size(2)}; "
                "build it with a larger `length`, or shorten the text."
            )
