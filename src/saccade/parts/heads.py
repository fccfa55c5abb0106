"""Task heads: classification, token classification, span and language modeling heads. Each maps (B, L, W) to logits."""

import torch
from torch import Tensor, nn

from saccade.parts.dropout import Dropout


class MeanPool(nn.Module):
    """Mean pooling over the real tokens."""

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is None:
            return x.mean(1)
        real = keep.unsqueeze(-1)
        return torch.where(real, x, 0.0).sum(1) / real.sum(1).clamp(min=1)


class FirstTokenPool(nn.Module):
    """Pooling by the first real token, the [CLS] token of BERT and ViT."""

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is None:
            return x[:, 0]
        return x[torch.arange(x.size(0), device=x.device), keep.int().argmax(1)]


class ClassificationHead(nn.Module):
    """Sequence classification (or regression): pooling, then a linear layer, (B, labels).

    `between` is an optional module between the two, such as BERT's pooler.
    """

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
        self.pool: nn.Module | MeanPool = pool or MeanPool()
        self.between: nn.Module | nn.Identity = between or nn.Identity()
        self.dropout: nn.Dropout = Dropout(dropout)
        self.score: nn.Linear = nn.Linear(width, labels)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.score(self.dropout(self.between(self.pool(x, keep))))  # (B, labels)


class TokenClassificationHead(nn.Module):
    """Token classification: logits for each token, (B, L, tags)."""

    def __init__(self, width: int, tags: int, *, dropout: float = 0.0):
        super().__init__()
        self.dropout: nn.Dropout = Dropout(dropout)
        self.score: nn.Linear = nn.Linear(width, tags)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.score(self.dropout(x))


class SpanHead(nn.Module):
    """Extractive question answering: start and end logits of each token, (B, L, 2); -inf for padding."""

    def __init__(self, width: int, *, dropout: float = 0.0):
        super().__init__()
        self.dropout: nn.Dropout = Dropout(dropout)
        self.score: nn.Linear = nn.Linear(width, 2)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        scores = self.score(self.dropout(x))
        return scores if keep is None else scores.masked_fill(~keep.unsqueeze(-1), -torch.inf)


class LMHead(nn.Module):
    """Language modeling head: logits over the vocabulary, (B, L, V).

    `tied_embedding` shares the weights of the token embeddings (weight tying); `between` is an optional module in front, such as
    BERT's dense layer and norm.
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
        self.between: nn.Module | nn.Identity = between or nn.Identity()
        self.score: nn.Linear = nn.Linear(width, vocab, bias=bias)
        if tied_embedding is not None:
            if tied_embedding.weight.shape != (vocab, width):
                raise ValueError(
                    f"Tied weights need embeddings of the shape of the output layer, ({vocab}, {width}); got "
                    f"{tuple(tied_embedding.weight.shape)}. Concatenated positions widen the output; add the positions "
                    "instead, or do not tie."
                )
            self.score.weight = tied_embedding.weight

    @property
    def output_bias(self) -> Tensor | None:
        """The bias of the output layer, one number per token of the vocabulary, or None."""
        return self.score.bias

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.score(self.between(x))
