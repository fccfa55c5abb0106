"""Spatial: attention over a grid of keys, e_ij = score(q, z_ij), such as the feature map of a picture.

Xu et al. 2015 (arXiv 1502.03044), with any score; a line of keys is a grid of one dimension.
"""

from dataclasses import replace

from torch import Tensor

from saccade.attention.mechanism import Mechanism
from saccade.attention.sight import Sight


class Spatial(Mechanism):
    """Any mechanism over keys (B, H, rows, columns, D) or (B, H, K, D); the weights keep the shape of the grid."""

    def __init__(self, mechanism: Mechanism):
        super().__init__(normaliser=mechanism.normaliser, dropout=mechanism.dropout)
        self.mechanism = mechanism

    def weights(self, q: Tensor, k: Tensor, sight: Sight) -> Tensor:
        weights = self.mechanism.weights(q, _line(k), _flat(sight))
        return weights.unflatten(-1, k.shape[2:-1])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        return self.mechanism.attend(q, _line(k), _line(v), _flat(sight))

    def chance(self, q: Tensor, k: Tensor) -> Tensor | None:
        return super().chance(q, _line(k))


def _line(x: Tensor) -> Tensor:
    return x.flatten(2, -2)


def _flat(sight: Sight) -> Sight:
    if sight.keep is None or sight.keep.dim() == 2:
        return sight
    return replace(sight, keep=sight.keep.flatten(1), made={})
