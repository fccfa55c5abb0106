"""Spatial attention: attention over a grid of keys, e_ij = score(q, z_ij), such as the feature map of an image.

Xu et al. 2015 (arXiv 1502.03044), with any mechanism; a sequence of keys is a grid of one dimension.
"""

from dataclasses import replace

from torch import Tensor

from saccade.attention.mechanism import Mechanism
from saccade.attention.sight import Sight


class Spatial(Mechanism):
    """Any mechanism over keys (B, H, rows, columns, D) or (B, H, K, D); the weights keep the shape of the grid."""

    def __init__(self, mechanism: Mechanism):
        super().__init__(normalizer=mechanism.normalizer, dropout=mechanism.dropout)
        self.mechanism = mechanism

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        weights = self.mechanism.weights(q, _flatten_grid(k), _flatten_keep(sight))
        return weights.unflatten(-1, k.shape[2:-1])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        return self.mechanism.attend(q, _flatten_grid(k), _flatten_grid(v), _flatten_keep(sight))

    def draw_noise(self, q: Tensor, k: Tensor) -> Tensor | None:
        return super().draw_noise(q, _flatten_grid(k))


def _flatten_grid(x: Tensor) -> Tensor:
    return x.flatten(2, -2)


def _flatten_keep(sight: Sight) -> Sight:
    if sight.keep is None or sight.keep.dim() == 2:
        return sight
    return replace(sight, keep=sight.keep.flatten(1), cache={})
