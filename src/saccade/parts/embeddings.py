"""Embeddings of tokens, segments and image patches."""

import math

from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """Token embeddings; with `scale_embeddings` multiplied by √width, as in Vaswani et al. 2017."""

    def __init__(self, vocab: int, width: int, *, scale_embeddings: bool = False):
        super().__init__()
        self.vectors: nn.Embedding = nn.Embedding(vocab, width)
        nn.init.normal_(self.vectors.weight, std=1 / math.sqrt(width) if scale_embeddings else 0.02)
        self.scale: float = math.sqrt(width) if scale_embeddings else 1.0

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = self.vectors(tokens)  # (B, L, W)
        return vectors if self.scale == 1.0 else vectors * self.scale


class SegmentEmbedding(nn.Module):
    """Segment embeddings (token types), added to the token embeddings: first or second sentence of a pair."""

    def __init__(self, segments: int, width: int):
        super().__init__()
        self.vectors: nn.Embedding = nn.Embedding(segments, width)
        nn.init.normal_(self.vectors.weight, std=0.02)

    def forward(self, x: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """x (B, L, W), segment ids (B, L); without segment ids, or with a single segment, all tokens are in the first."""
        first = segment_ids is None or self.vectors.num_embeddings == 1  # RoBERTa has a single segment, also for pairs
        return x + (self.vectors.weight[0] if first else self.vectors(segment_ids))


class PatchEmbedding(nn.Module):
    """Patch embeddings: an image as a sequence of projected square patches (Dosovitskiy et al. 2021, arXiv 2010.11929).

    >>> import torch
    >>> PatchEmbedding(16, 3, 64)(torch.zeros(2, 3, 32, 48)).shape
    torch.Size([2, 6, 64])
    """

    def __init__(self, patch_size: int, channels: int, width: int):
        super().__init__()
        self.patch_size = patch_size
        self.project: nn.Conv2d = nn.Conv2d(channels, width, patch_size, stride=patch_size)

    def forward(self, image: Tensor) -> Tensor:
        rows, columns = image.shape[-2:]
        if rows % self.patch_size or columns % self.patch_size:
            raise ValueError(
                f"Patches of {self.patch_size} x {self.patch_size} pixels do not tile an image of {rows} x {columns}; "
                f"resize it to multiples of {self.patch_size}."
            )
        return self.project(image).flatten(2).transpose(1, 2)  # (B, patches, W), row by row
