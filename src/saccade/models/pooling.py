"""Pooling of token vectors into a sentence embedding, as defined by sentence-transformers.

>>> x = torch.tensor([[[1.0, 4.0], [3.0, 2.0], [9.0, 9.0]]])
>>> keep = torch.tensor([[True, True, False]])
>>> Pooling(("cls", "max"))(x, keep).tolist()
[[1.0, 4.0, 3.0, 4.0]]
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.parts.heads import FirstTokenPool, MeanPool

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {  # of dense layers, by their names in torch.nn
    "Identity": nn.Identity,
    "Tanh": nn.Tanh,
    "ReLU": nn.ReLU,
    "GELU": nn.GELU,
    "SiLU": nn.SiLU,
    "Sigmoid": nn.Sigmoid,
}


@dataclass(frozen=True, eq=False)
class Dense:
    """A linear layer and an activation on a sentence embedding; with `residual`, the input is added to the result."""

    weight: Tensor  # (out, in)
    bias: Tensor | None = None
    activation: str = "Tanh"
    residual: bool | Tensor = False  # a matrix (out, in) if the widths differ

    def __call__(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        out = ACTIVATIONS[self.activation]()(F.linear(x, self.weight.to(x.dtype), bias))
        if isinstance(self.residual, Tensor):
            return out + F.linear(x, self.residual.to(x.dtype))
        return out + x if self.residual else out


@dataclass(frozen=True)
class Normalize:
    """Scale a sentence embedding to unit length."""

    def __call__(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


@dataclass(frozen=True)
class Pooling:
    """Pooling modes, concatenated in their order, and the layers that follow them.

    Texts are truncated to `max_tokens` (max_seq_length), after lowercasing them if `lowercase`. `prompts` are prefixes by name;
    the one named `default_prompt` is used by default.
    """

    modes: tuple[str, ...] = ("mean",)
    layers: tuple[Dense | Normalize, ...] = ()
    max_tokens: int | None = None
    lowercase: bool = False
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str | None = None
    include_prompt: bool = True  # include the tokens of the prompt in the pooling
    similarity: str | None = None  # the published similarity function, kept for saving

    @property
    def prompt(self) -> str:
        """The default prompt, which precedes every text."""
        return "" if self.default_prompt is None else dict(self.prompts)[self.default_prompt]

    def output_width(self, width: int) -> int:
        """The width of sentence embeddings for token vectors of this width."""
        dense = [layer.weight.size(0) for layer in self.layers if isinstance(layer, Dense)]
        return dense[-1] if dense else len(self.modes) * width

    def __call__(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """Pool token vectors (B, L, W) with a padding mask (B, L) into embeddings (B, D)."""
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if keep is None else keep
        return self.apply_layers(torch.cat([POOLING_MODES[mode](x, mask) for mode in self.modes], dim=-1))

    def apply_layers(self, pooled: Tensor) -> Tensor:
        """The layers that follow the pooling, of vectors that are pooled already (B, D)."""
        for layer in self.layers:
            pooled = layer(pooled)
        return pooled


def _max(x: Tensor, keep: Tensor) -> Tensor:
    return x.masked_fill(~keep.unsqueeze(-1), -torch.inf).amax(1)


def _mean_sqrt(x: Tensor, keep: Tensor) -> Tensor:
    """The sum divided by the square root of the number of tokens."""
    return MeanPool()(x, keep) * keep.sum(1, keepdim=True).sqrt()


def _weighted_mean(x: Tensor, keep: Tensor) -> Tensor:
    """The mean weighted by position, counted from 1."""
    weights = (keep.cumsum(1) * keep).unsqueeze(-1).to(x.dtype)
    return (torch.where(keep.unsqueeze(-1), x, 0.0) * weights).sum(1) / weights.sum(1).clamp(min=1)


def _last(x: Tensor, keep: Tensor) -> Tensor:
    positions = torch.arange(keep.size(1), device=keep.device)
    return x[torch.arange(x.size(0), device=x.device), torch.where(keep, positions, 0).amax(1)]


POOLING_MODES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # in the order in which older files concatenate them
    "cls": FirstTokenPool(),
    "max": _max,
    "mean": MeanPool(),
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}
