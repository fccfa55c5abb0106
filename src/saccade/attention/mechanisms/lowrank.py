"""Low-rank attention (Linformer): n keys and values are projected to r of each before attention, softmax(q·(Ek)/√d)(Fv).

Wang et al. 2020 (arXiv 2006.04768): O(n r) instead of O(n²). The weights on the tokens are softmax(·)F, which may be negative
and need not sum to one. All keys are mixed together, so neither an attention pattern nor a bias is supported.
"""

import math

import torch
from torch import Tensor, nn

from saccade.attention.mechanism import repeat_kv_heads
from saccade.attention.mechanisms.dot import ScaledDot
from saccade.attention.normalizer import Softmax
from saccade.attention.pattern import FULL
from saccade.attention.sdpa import sdpa
from saccade.attention.sight import Sight
from saccade.errors import ModelError


class LowRank(ScaledDot):
    """Linformer's attention for up to `max_positions` tokens, projected to `rank`; E and F have a column per position."""

    supports_packing = False

    def __init__(self, max_positions: int, rank: int = 64, *, dropout: float = 0.0):
        super().__init__(dropout=dropout)
        self.keys: nn.Parameter = nn.Parameter(torch.randn(rank, max_positions) / math.sqrt(max_positions))  # E
        self.values: nn.Parameter = nn.Parameter(torch.randn(rank, max_positions) / math.sqrt(max_positions))  # F

    def make_projections(self, q: Tensor, k: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """The projections E and F for these tokens, (B|1, 1, rank, K), zero for padding."""
        self._check_sight(k, sight)
        _, k_pos = sight.broadcast_positions(q, k)
        at = k_pos[:, 0, 0].clamp(min=0)  # (B|1, K)
        keep = torch.ones_like(at, dtype=torch.bool) if sight.keep is None else sight.keep
        mix = (
            torch.where(keep[:, None, None], x[:, at].transpose(0, 1)[:, None], 0.0) for x in (self.keys, self.values)
        )
        e, f = mix
        return e.to(k.dtype), f.to(k.dtype)

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        e, f = self.make_projections(q, k, sight)
        mixed = self.normalize(
            self.scores(q, e @ repeat_kv_heads(self._zero_padding(k, sight), q)), self._projected_sight(sight)
        )
        return mixed @ f

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        e, f = self.make_projections(q, k, sight)
        if sight.noise is not None or type(self.normalizer) is not Softmax:
            return super().attend(q, k, v, sight)
        k, v = self._zero_padding(k, sight), self._zero_padding(v, sight)
        return sdpa(q, e @ k, f @ v, self._projected_sight(sight))

    def draw_noise(self, q: Tensor, k: Tensor) -> Tensor | None:
        return super().draw_noise(q, self.keys[None, None])  # dropout applies to the projected keys

    def _projected_sight(self, sight: Sight) -> Sight:
        return Sight(FULL, noise=sight.noise, cross=True)

    def _zero_padding(self, x: Tensor, sight: Sight) -> Tensor:
        return x if sight.keep is None else torch.where(sight.keep[:, None, :, None], x, 0.0)

    def _check_sight(self, k: Tensor, sight: Sight) -> None:
        if sight.pattern != FULL:
            raise ModelError(f"LowRank mixes all keys together, so it does not support {sight.pattern}; use ScaledDot.")
        if sight.bias is not None:
            raise ValueError(
                "LowRank mixes all keys together, so it does not support a bias on pairs of tokens; use ScaledDot."
            )
        if k.size(2) > self.keys.size(1):
            raise ValueError(
                f"This LowRank supports at most {self.keys.size(1)} tokens; got {k.size(2)}. "
                "Build it with a larger `max_positions`, or shorten the text."
            )
