"""Pictures as words: an autoencoder whose middle is a grid of codes, each one of a few hundred.

The choice of a code has no gradient of its own. `Nearest` takes the nearest vector of a table and lets the gradient pass
straight through (van den Oord et al. 2017, arXiv 1711.00937). `Gumbel` scores all codes and mixes their vectors by a soft
draw that hardens as it cools (Jang et al. 2017, arXiv 1611.01144; Ramesh et al. 2021, arXiv 2102.12092).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Chosen = tuple[Tensor, Tensor]  # vectors (B, rows, columns, W) and what the choice costs, ()


class Nearest(nn.Module):
    """The nearest vector of a table; `pull` is how strongly features are drawn to the vector they chose."""

    def __init__(self, codes: int, width: int, *, pull: float = 0.25):
        super().__init__()
        self.table = nn.Embedding(codes, width)
        self.pull = pull

    def numbers(self, x: Tensor) -> Tensor:
        """The code of each cell, (B, rows, columns)."""
        return torch.cdist(x.flatten(0, -2), self.table.weight).argmin(-1).view(x.shape[:-1])

    def forward(self, x: Tensor) -> Chosen:
        chosen = self.table(self.numbers(x))
        cost = F.mse_loss(chosen, x.detach()) + self.pull * F.mse_loss(x, chosen.detach())
        return x + (chosen - x).detach(), cost  # the value of the vector, the gradient of the feature

    @torch.no_grad()
    def revive(self, x: Tensor) -> int:
        """Move codes that none of these features chose to some of the features; says how many were idle.

        A code that is never chosen never learns. Whoever trains calls this now and then, with many pictures. Features that
        are far from their code are drawn most, or nearly all codes would go to what most pictures are full of.
        """
        cells, numbers = x.flatten(0, -2), self.numbers(x).flatten()
        idle = (numbers.bincount(minlength=len(self.table.weight)) == 0).nonzero().squeeze(1)
        if len(idle):
            far = (cells - self.table(numbers)).square().sum(-1) + 1e-12
            self.table.weight[idle] = cells[torch.multinomial(far, len(idle), replacement=True)]
        return len(idle)


class Gumbel(nn.Module):
    """A soft draw among all codes in training, the best one in evaluation.

    `heat` falls below one as training goes on, to a sixteenth in a long one: whoever trains sets it. `even` weighs the
    divergence from an even use of all codes.
    """

    def __init__(self, codes: int, width: int, *, heat: float = 1.0, even: float = 1e-3):
        super().__init__()
        self.table = nn.Embedding(codes, width)
        self.score = nn.Linear(width, codes)
        # features have variance one; scores that stand out from the noise of a draw keep codes apart from the start
        nn.init.normal_(self.score.weight, std=5 / math.sqrt(width))
        self.heat, self.even = heat, even

    def numbers(self, x: Tensor) -> Tensor:
        return self.score(x).argmax(-1)

    def forward(self, x: Tensor) -> Chosen:
        if not self.training:
            return self.table(self.numbers(x)), x.new_zeros(())
        scores = self.score(x)  # (B, rows, columns, codes)
        shares = F.gumbel_softmax(scores, tau=self.heat, dim=-1)
        log = scores.log_softmax(-1)
        apart = (log.exp() * (log + math.log(scores.size(-1)))).sum(-1).mean()
        return shares @ self.table.weight, self.even * apart


class Autoencoder(nn.Module):
    """Pixels in [0, 1] to codes and back; a code stands for a square of `cell` x `cell` pixels.

    >>> model = Autoencoder(Nearest(64, 16), channels=3, cell=4).eval()
    >>> codes = model.encode(torch.rand(2, 3, 16, 24))
    >>> codes.shape, model.decode(codes).shape
    (torch.Size([2, 4, 6]), torch.Size([2, 3, 16, 24]))
    """

    def __init__(self, choice: Nearest | Gumbel, *, channels: int = 3, cell: int = 4, inner: int = 64):
        super().__init__()
        halvings = cell.bit_length() - 1
        if 2**halvings != cell:
            raise ValueError(f"Each step halves the picture, so a cell is a power of two; got {cell}.")
        self.cell, self.choice = cell, choice
        width = choice.table.embedding_dim
        down = [nn.Conv2d(channels, inner, 3, padding=1), nn.ReLU()]
        up = [nn.Conv2d(width, inner, 3, padding=1), nn.ReLU()]
        for _ in range(halvings):
            down += [nn.Conv2d(inner, inner, 4, stride=2, padding=1), nn.ReLU()]
            up += [nn.ConvTranspose2d(inner, inner, 4, stride=2, padding=1), nn.ReLU()]
        # features as wide apart as the vectors of the table, or all of them would choose the same one
        self.down = nn.Sequential(*down, nn.Conv2d(inner, width, 1), nn.BatchNorm2d(width, affine=False))
        self.up = nn.Sequential(*up, nn.Conv2d(inner, channels, 1))

    def features(self, pixels: Tensor) -> Tensor:
        """What the choice is made from, (B, rows / cell, columns / cell, W)."""
        rows, columns = pixels.shape[-2:]
        if rows % self.cell or columns % self.cell:
            raise ValueError(
                f"Squares of {self.cell} x {self.cell} do not tile a picture of {rows} x {columns}; "
                f"resize it to multiples of {self.cell}."
            )
        return self.down(pixels).movedim(1, -1)

    def encode(self, pixels: Tensor) -> Tensor:
        """(B, C, rows, columns) pixels to (B, rows / cell, columns / cell) codes."""
        return self.choice.numbers(self.features(pixels))

    def decode(self, codes: Tensor) -> Tensor:
        """Codes back to pixels."""
        return self._pixels(self.choice.table(codes))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The picture as it comes out, and the loss to learn from: the squared error and what the choice costs."""
        vectors, cost = self.choice(self.features(pixels))
        out = self._pixels(vectors)
        return out, F.mse_loss(out, pixels) + cost

    def _pixels(self, vectors: Tensor) -> Tensor:
        return self.up(vectors.movedim(-1, 1)).sigmoid()
