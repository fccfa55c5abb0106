"""VQ-VAE: an autoencoder whose bottleneck is a grid of discrete codes (image tokens) from a codebook of a few hundred.

The choice of a code has no gradient. `VectorQuantizer` takes the nearest codebook vector and uses the straight-through
gradient (van den Oord et al. 2017, arXiv 1711.00937). `GumbelQuantizer` scores all codes and mixes their vectors with
Gumbel-softmax weights, which approach one-hot as the temperature falls (Jang et al. 2017, arXiv 1611.01144; Ramesh et al.
2021, arXiv 2102.12092).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

QuantizerOutput = tuple[Tensor, Tensor]  # codebook vectors (B, rows, columns, W) and the quantization loss, ()


class VectorQuantizer(nn.Module):
    """Quantize each feature to the nearest codebook vector; `commitment_weight` weighs the loss of the features' distance."""

    def __init__(self, codebook_size: int, width: int, *, commitment_weight: float = 0.25):
        super().__init__()
        self.table: nn.Embedding = nn.Embedding(codebook_size, width)
        self.commitment_weight = commitment_weight

    def assign_codes(self, x: Tensor) -> Tensor:
        """The code of each grid cell, (B, rows, columns)."""
        return torch.cdist(x.flatten(0, -2), self.table.weight).argmin(-1).view(x.shape[:-1])

    def forward(self, x: Tensor) -> QuantizerOutput:
        chosen = self.table(self.assign_codes(x))
        loss = F.mse_loss(chosen, x.detach()) + self.commitment_weight * F.mse_loss(x, chosen.detach())
        return x + (chosen - x).detach(), loss  # straight-through: the codebook vector's value, the feature's gradient

    @torch.no_grad()
    def reset_dead_codes(self, x: Tensor) -> int:
        """Move dead codes, which no feature of `x` is assigned to, onto sampled features; returns how many were dead.

        An unused code gets no gradient, so the training loop calls this now and then, with many images. Features are sampled
        by their squared distance from their code; uniform sampling would move nearly all codes to the most common content.
        """
        features, codes = x.flatten(0, -2), self.assign_codes(x).flatten()
        dead = (codes.bincount(minlength=len(self.table.weight)) == 0).nonzero().squeeze(1)
        if len(dead):
            distances = (features - self.table(codes)).square().sum(-1) + 1e-12
            self.table.weight[dead] = features[torch.multinomial(distances, len(dead), replacement=True)]
        return len(dead)


class GumbelQuantizer(nn.Module):
    """Gumbel-softmax over all codes in training, argmax in evaluation.

    The training loop lowers `temperature` below one, to 1/16 in a long run. `kl_weight` weighs the KL divergence of the code
    distribution from a uniform one.
    """

    temperature: float
    kl_weight: float

    def __init__(self, codebook_size: int, width: int, *, temperature: float = 1.0, kl_weight: float = 1e-3):
        super().__init__()
        self.table: nn.Embedding = nn.Embedding(codebook_size, width)
        self.score: nn.Linear = nn.Linear(width, codebook_size)
        # features have variance one; scores well above the Gumbel noise keep codes distinct from the start
        nn.init.normal_(self.score.weight, std=5 / math.sqrt(width))
        self.temperature, self.kl_weight = temperature, kl_weight

    def assign_codes(self, x: Tensor) -> Tensor:
        return self.score(x).argmax(-1)

    def forward(self, x: Tensor) -> QuantizerOutput:
        if not self.training:
            return self.table(self.assign_codes(x)), x.new_zeros(())
        scores = self.score(x)  # (B, rows, columns, codes)
        weights = F.gumbel_softmax(scores, tau=self.temperature, dim=-1)
        log_probs = scores.log_softmax(-1)
        divergence = (log_probs.exp() * (log_probs + math.log(scores.size(-1)))).sum(-1).mean()
        return weights @ self.table.weight, self.kl_weight * divergence


class DiscreteAutoencoder(nn.Module):
    """Encode pixels in [0, 1] as discrete codes and decode them; a code stands for `cell_size` x `cell_size` pixels.

    >>> model = DiscreteAutoencoder(VectorQuantizer(64, 16), channels=3, cell_size=4).eval()
    >>> codes = model.encode(torch.rand(2, 3, 16, 24))
    >>> codes.shape, model.decode(codes).shape
    (torch.Size([2, 4, 6]), torch.Size([2, 3, 16, 24]))
    """

    cell_size: int
    choice: VectorQuantizer | GumbelQuantizer

    def __init__(
        self,
        quantizer: VectorQuantizer | GumbelQuantizer,
        *,
        channels: int = 3,
        cell_size: int = 4,
        hidden_width: int = 64,
    ):
        super().__init__()
        halvings = cell_size.bit_length() - 1
        if 2**halvings != cell_size:
            raise ValueError(f"Each stage halves the image, so cell_size must be a power of two; got {cell_size}.")
        self.cell_size, self.choice = cell_size, quantizer
        width = quantizer.table.embedding_dim
        down = [nn.Conv2d(channels, hidden_width, 3, padding=1), nn.ReLU()]
        up = [nn.Conv2d(width, hidden_width, 3, padding=1), nn.ReLU()]
        for _ in range(halvings):
            down += [nn.Conv2d(hidden_width, hidden_width, 4, stride=2, padding=1), nn.ReLU()]
            up += [nn.ConvTranspose2d(hidden_width, hidden_width, 4, stride=2, padding=1), nn.ReLU()]
        # batch norm spreads features as widely as the codebook vectors; otherwise all of them would get the same code
        self.down: nn.Sequential = nn.Sequential(
            *down, nn.Conv2d(hidden_width, width, 1), nn.BatchNorm2d(width, affine=False)
        )
        self.up: nn.Sequential = nn.Sequential(*up, nn.Conv2d(hidden_width, channels, 1))

    def encode_features(self, pixels: Tensor) -> Tensor:
        """The features before quantization, (B, rows / cell_size, columns / cell_size, W)."""
        rows, columns = pixels.shape[-2:]
        if rows % self.cell_size or columns % self.cell_size:
            raise ValueError(
                f"Cells of {self.cell_size} x {self.cell_size} pixels do not tile an image of {rows} x {columns}; "
                f"resize it to multiples of {self.cell_size}."
            )
        return self.down(pixels).movedim(1, -1)

    def encode(self, pixels: Tensor) -> Tensor:
        """Encode pixels (B, C, rows, columns) as codes (B, rows / cell_size, columns / cell_size)."""
        return self.choice.assign_codes(self.encode_features(pixels))

    def decode(self, codes: Tensor) -> Tensor:
        """Decode codes to pixels."""
        return self._decode_vectors(self.choice.table(codes))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Reconstruct the image; also returns the training loss, the mean squared error plus the quantization loss."""
        vectors, loss = self.choice(self.encode_features(pixels))
        out = self._decode_vectors(vectors)
        return out, F.mse_loss(out, pixels) + loss

    def _decode_vectors(self, vectors: Tensor) -> Tensor:
        return self.up(vectors.movedim(-1, 1)).sigmoid()
