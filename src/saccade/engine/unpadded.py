"""Unpadded batches: the real tokens as one flat sequence of vectors, padded again only inside attention."""

from dataclasses import dataclass

from torch import Tensor

from saccade.attention import Sight


@dataclass
class UnpaddedSight(Sight):
    """A `Sight` for the real tokens of a padded batch, stored without padding as (N, W)."""

    @property
    def real_indices(self) -> Tensor:
        """Indices of the real tokens in the flattened batch, (N,)."""
        assert self.keep is not None, "an unpadded sight needs a padding mask"
        keep = self.keep
        return self.get_or_make("real_indices", lambda: keep.flatten().nonzero().squeeze(1))

    def unpad(self, x: Tensor) -> Tensor:
        """Remove padding: (B, L, W) to (N, W)."""
        return x.flatten(0, 1).index_select(0, self.real_indices)

    def pad(self, x: Tensor) -> Tensor:
        """Restore padding: (N, W) to (B, L, W); padding repeats a neighbouring token, so that it stays finite."""
        assert self.keep is not None
        indices = self.get_or_make("padded_indices", lambda: (self.keep.flatten().cumsum(0) - 1).clamp(min=0))  # type: ignore[union-attr]
        return x.index_select(0, indices).unflatten(0, self.keep.shape)
