"""Without padding: the real tokens of a batch as one row of vectors, spread out only where they look at each other."""

from dataclasses import dataclass

from torch import Tensor

from saccade.attention import Sight


@dataclass
class UnpaddedSight(Sight):
    """A sight over tokens that were gathered from a padded batch, (N, W)."""

    @property
    def real_indices(self) -> Tensor:
        """Where the tokens stand in the padded batch, row after row, (N,)."""
        assert self.keep is not None, "without padding nothing is gathered"
        keep = self.keep
        return self.get_or_make("real_indices", lambda: keep.flatten().nonzero().squeeze(1))

    def unpad(self, x: Tensor) -> Tensor:
        """(B, L, W) to the real tokens, (N, W)."""
        return x.flatten(0, 1).index_select(0, self.real_indices)

    def pad(self, x: Tensor) -> Tensor:
        """(N, W) back to (B, L, W); padding repeats a neighbour, so that nothing in it can spoil a sum."""
        assert self.keep is not None
        numbers = self.get_or_make("padded_indices", lambda: (self.keep.flatten().cumsum(0) - 1).clamp(min=0))  # type: ignore[union-attr]
        return x.index_select(0, numbers).unflatten(0, self.keep.shape)
