"""Out of vectors: what a task reads from a model. Each head takes (B, L, W) and answers with scores."""

import torch
from torch import Tensor, nn

from saccade.parts.dropout import Dropout


class MeanPool(nn.Module):
    """The mean over the real tokens."""

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is None:
            return x.mean(1)
        real = keep.unsqueeze(-1)
        return torch.where(real, x, 0.0).sum(1) / real.sum(1).clamp(min=1)


class FirstTokenPool(nn.Module):
    """The first real token: where BERT and ViT put their summary."""

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is None:
            return x[:, 0]
        return x[torch.arange(x.size(0), device=x.device), keep.int().argmax(1)]


class ClassificationHead(nn.Module):
    """One answer for the whole input: pool, and score the labels. `between` is what some models put in the middle."""

    def __init__(
        self,
        width: int,
        labels: int,
        *,
        pool: nn.Module | None = None,
        between: nn.Module | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.pool = pool or MeanPool()
        self.between = between or nn.Identity()
        self.dropout = Dropout(dropout)
        self.score = nn.Linear(width, labels)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.score(self.dropout(self.between(self.pool(x, keep))))  # (B, labels)


class TokenClassificationHead(nn.Module):
    """An answer for each token, (B, L, tags)."""

    def __init__(self, width: int, tags: int, *, dropout: float = 0.0):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.score = nn.Linear(width, tags)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.score(self.dropout(x))


class SpanHead(nn.Module):
    """Where an answer begins and where it ends, (B, L, 2); padding is out of the question."""

    def __init__(self, width: int, *, dropout: float = 0.0):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.score = nn.Linear(width, 2)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        scores = self.score(self.dropout(x))
        return scores if keep is None else scores.masked_fill(~keep.unsqueeze(-1), -torch.inf)


class LMHead(nn.Module):
    """A score for each word of the vocabulary, (B, L, V); with `tied` the words' own vectors do the scoring.

    `between` is what some models put in front, such as BERT's dense layer and norm.
    """

    def __init__(
        self,
        width: int,
        vocab: int,
        *,
        tied_embedding: nn.Embedding | None = None,
        between: nn.Module | None = None,
        bias: bool = False,
    ):
        super().__init__()
        self.between = between or nn.Identity()
        self.score = nn.Linear(width, vocab, bias=bias)
        if tied_embedding is not None:
            if tied_embedding.weight.shape != (vocab, width):
                raise ValueError(
                    "Tied weights need words as wide as the output: the words are "
                    f"{tuple(tied_embedding.weight.shape)}, the output "
                    f"is ({vocab}, {width}). Concatenated positions widen the output; add them, or do not tie."
                )
            self.score.weight = tied_embedding.weight

    @property
    def output_bias(self) -> Tensor | None:
        """What is added to the score of each word, whatever the vector."""
        return self.score.bias

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.score(self.between(x))
