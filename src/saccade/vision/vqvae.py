"""Pictures as words: an autoencoder whose middle is a grid of codes, each one of a few hundred.

The choice of a code has no gradient of its own. `Nearest` takes the nearest vector of a table and lets the gradient pass
straight through (van den Oord et al. 2017, arXiv 1711.00937). `Gumbel` scores all codes and mixes their vectors by a soft
draw that hardens as it cools (Jang et al. 2017, arXiv 1611.01144; Ramesh et al. 2021, arXiv 2102.12092).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

QuantizerOutput = tuple[Tensor, Tensor]  # vectors (B, rows, columns, W) and what the choice costs, ()


class VectorQuantizer(nn.Module):
    """The nearest vector of a table; `pull` is how strongly features are drawn to the vector they chose."""

    def __init__(self, codebook_size: int, width: int, *, commitment_weight: float = 0.25):
        super().__init__()
        self.table = nn.Embedding(codebook_size, width)
        self.commitment_weight = commitment_weight

    def assign_codes(self, x: Tensor) -> Tensor:
        """The code of each cell, (B, rows, columns)."""
        return torch.cdist(x.flatten(0, -2), self.table.weight).argmin(-1).view(x.shape[:-1])

    def forward(self, x: Tensor) -> QuantizerOutput:
        chosen = self.table(self.assign_codes(x))
        cost = F.mse_loss(chosen, x.detach()) + self.commitment_weight * F.mse_loss(x, chosen.detach())
        return x + (chosen - x).detach(), cost  # the value of the vector, the gradient of the feature

    @torch.no_grad()
    def reset_dead_codes(self, x: Tensor) -> int:
        """Move codes that none of these features chose to some of the features; says how many were idle.

        A code that is never chosen never learns. Whoever trains calls this now and then, with many pictures. Features that
        are far from their code are drawn most, or nearly all codes would go to what most pictures are full of.
        """
        cells, numbers = x.flatten(0, -2), self.assign_codes(x).flatten()
        idle = (numbers.bincount(minlength=len(self.table.weight)) == 0).nonzero().squeeze(1)
        if len(idle):
            far = (cells - self.table(numbers)).square().sum(-1) + 1e-12
            self.table.weight[idle] = cells[torch.multinomial(far, len(idle), replacement=True)]
        return len(idle)


class GumbelQuantizer(nn.Module):
    """A soft draw among all codes in training, the best one in evaluation.

    `heat` falls below one as training goes on, to a sixteenth in a long one: whoever trains sets it. `even` weighs the
    divergence from an even use of all codes.
    """

    def __init__(self, codebook_size: int, width: int, *, temperature: float = 1.0, kl_weight: float = 1e-3):
        super().__init__()
        self.table = nn.Embedding(codebook_size, width)
        self.score = nn.Linear(width, codebook_size)
        # features have variance one; scores that stand out from the noise of a draw keep codes apart from the start
        nn.init.normal_(self.score.weight, std=5 / math.sqrt(width))
        self.temperature, self.kl_weight = temperature, kl_weight

    def assign_codes(self, x: Tensor) -> Tensor:
        return self.score(x).argmax(-1)

    def forward(self, x: Tensor) -> QuantizerOutput:
        if not self.training:
            return self.table(self.assign_codes(x)), x.new_zeros(())
        scores = self.score(x)  # (B, rows, columns, codes)
        shares = F.gumbel_softmax(scores, tau=self.temperature, dim=-1)
        log = scores.log_softmax(-1)
        apart = (log.exp() * (log + math.log(scores.size(-1)))).sum(-1).mean()
        return shares @ self.table.weight, self.kl_weight * apart


class DiscreteAutoencoder(nn.Module):
    """Pixels in [0, 1] to codes and back; a code stands for a square of `cell` x `cell` pixels.

    >>> model = DiscreteAutoencoder(VectorQuantizer(64, 16), channels=3, cell_size=4).eval()
    >>> codes = model.encode(torch.rand(2, 3, 16, 24))
    >>> codes.shape, model.decode(codes).shape
    (torch.Size([2, 4, 6]), torch.Size([2, 3, 16, 24]))
    """

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
            raise ValueError(f"Each step halves the picture, so a cell is a power of two; got {cell_size}.")
        self.cell_size, self.choice = cell_size, quantizer
        width = quantizer.table.embedding_dim
        down = [nn.Conv2d(channels, hidden_width, 3, padding=1), nn.ReLU()]
        up = [nn.Conv2d(width, hidden_width, 3, padding=1), nn.ReLU()]
        for _ in range(halvings):
            down += [nn.Conv2d(hidden_width, hidden_width, 4, stride=2, padding=1), nn.ReLU()]
            up += [nn.ConvTranspose2d(hidden_width, hidden_width, 4, stride=2, padding=1), nn.ReLU()]
        # features as wide apart as the vectors of the table, or all of them would choose the same one
        self.down = nn.Sequential(*down, nn.Conv2d(hidden_width, width, 1), nn.BatchNorm2d(width, affine=False))
        self.up = nn.Sequential(*up, nn.Conv2d(hidden_width, channels, 1))

    def encode_features(self, pixels: Tensor) -> Tensor:
        """What the choice is made from, (B, rows / cell, columns / cell, W)."""
        rows, columns = pixels.shape[-2:]
        if rows % self.cell_size or columns % self.cell_size:
            raise ValueError(
                f"Squares of {self.cell_size} x {self.cell_size} do not tile a picture of {rows} x {columns}; "
                f"resize it to multiples of {self.cell_size}."
            )
        return self.down(pixels).movedim(1, -1)

    def encode(self, pixels: Tensor) -> Tensor:
        """(B, C, rows, columns) pixels to (B, rows / cell, columns / cell) codes."""
        return self.choice.assign_codes(self.encode_features(pixels))

    def decode(self, codes: Tensor) -> Tensor:
        """Codes back to pixels."""
        return self._decode_vectors(self.choice.table(codes))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The picture as it comes out, and the loss to learn from: the squared error and what the choice costs."""
        vectors, cost = self.choice(self.encode_features(pixels))
        out = self._decode_vectors(vectors)
        return out, F.mse_loss(out, pixels) + cost

    def _decode_vectors(self, vectors: Tensor) -> Tensor:
        return self.up(vectors.movedim(-1, 1)).sigmoid()
