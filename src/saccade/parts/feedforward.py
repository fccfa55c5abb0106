"""The position-wise feed-forward network (FFN, MLP) of a transformer layer, with an optional gate as in SwiGLU and GeGLU."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.parts.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # the approximation that GPT-2 was trained with
    "silu": F.silu,
    "tanh": torch.tanh,
}


class FeedForward(nn.Module):
    """down(activation(up(x))); with `gated`, down(activation(gate(x)) * up(x)) (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(
        self,
        width: int,
        ffn_width: int,
        activation: str = "gelu",
        *,
        gated: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"Unknown activation {activation!r}; known are {', '.join(ACTIVATIONS)}.")
        self.activation = activation
        self.up: nn.Linear = nn.Linear(width, ffn_width, bias=bias)
        self.gate: nn.Linear | None = nn.Linear(width, ffn_width, bias=bias) if gated else None
        self.down: nn.Linear = nn.Linear(ffn_width, width, bias=bias)
        self.dropout: nn.Dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.activation]
        hidden = activation(self.up(x)) if self.gate is None else activation(self.gate(x)) * self.up(x)
        return self.down(self.dropout(hidden))
