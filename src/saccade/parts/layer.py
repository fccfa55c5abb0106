"""A transformer layer: self-attention, cross-attention and feed-forward, each with a residual connection and a norm.

A residual connection adds the output of a branch to its input, so gradients can bypass every branch; this is what makes
deep stacks trainable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from saccade.attention import Sight
from saccade.parts.dropout import Dropout
from saccade.parts.feedforward import FeedForward
from saccade.parts.multihead_attention import Attention
from saccade.parts.norm import normalize
from saccade.parts.position import Rotation
from saccade.parts.state import State


@dataclass
class LayerContext:
    """What the layers of one forward pass share: the sight, the rotary embedding, and the memory of cross-attention."""

    sight: Sight
    rotation: Rotation | None = None
    memory: Tensor | None = None
    memory_sight: Sight | None = None


class Sublayer(nn.Module):
    """A branch with residual connection and norm: pre-norm x + branch(norm(x)), or post-norm norm(x + branch(x)).

    A `post_norm` normalizes the output of the branch before the addition: x + post_norm(branch(norm(x))), as in Gemma 3.
    """

    branch: nn.Module
    norm: nn.Module
    norm_first: bool
    post_norm: nn.Module | None

    def __init__(
        self,
        branch: nn.Module,
        norm: nn.Module,
        *,
        norm_first: bool,
        post_norm: nn.Module | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.branch, self.norm, self.norm_first, self.post_norm = branch, norm, norm_first, post_norm
        self.dropout: nn.Dropout = Dropout(dropout)

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        if self.norm_first:
            return x + self._finish_branch(self.branch(self.norm(x), *args, **options))
        return self.norm(x + self._finish_branch(self.branch(x, *args, **options)))

    def compute_residual(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """The residual that a pre-norm sublayer adds to x."""
        return self._finish_branch(self.branch(self.norm(x), *args, **options))

    def _finish_branch(self, out: Tensor) -> Tensor:
        return self.dropout(out if self.post_norm is None else normalize(self.post_norm, out))


class Layer(nn.Module):
    """Self-attention, cross-attention to a memory in an encoder-decoder, then feed-forward."""

    attention: Sublayer
    across: Sublayer | None
    feedforward: Sublayer

    def __init__(self, attention: Sublayer, feedforward: Sublayer, cross_attention: Sublayer | None = None):
        super().__init__()
        self.attention, self.across, self.feedforward = attention, cross_attention, feedforward

    def forward(self, x: Tensor, context: LayerContext, state: State | None = None) -> Tensor:
        self_state = None if state is None else state.at("attention")
        x = self.attention(x, context.sight, rotation=context.rotation, state=self_state)
        if self.across is not None:
            if context.memory is None or context.memory_sight is None:
                raise ValueError("This layer has cross-attention but got no memory; pass `memory` to the stack.")
            cross_state = None if state is None else state.at("across")
            x = self.across(x, context.memory_sight, memory=context.memory, state=cross_state)
        return self.feedforward(x)


class ParallelLayer(Layer):
    """Parallel residuals: self-attention and feed-forward of the same input, x + attention(x) + feedforward(x).

    As in GPT-J and GPT-NeoX (Black et al. 2022, arXiv 2204.06745). Each sublayer has its own norm, or both share `norm` and
    have none themselves (`nn.Identity`).
    """

    def __init__(self, attention: Sublayer, feedforward: Sublayer, norm: nn.Module | None = None):
        super().__init__(attention, feedforward)
        if not (attention.norm_first and feedforward.norm_first):
            raise ValueError(
                "A parallel layer adds residuals to its input, so its sublayers need norm_first=True: norms come first."
            )
        self.norm: nn.Module | nn.Identity = norm or nn.Identity()

    def forward(self, x: Tensor, context: LayerContext, state: State | None = None) -> Tensor:
        self_state = None if state is None else state.at("attention")
        normed = self.norm(x)
        attended = self.attention.compute_residual(normed, context.sight, rotation=context.rotation, state=self_state)
        return x + attended + self.feedforward.compute_residual(normed)


def make_layer(
    attention: nn.Module,
    feedforward: FeedForward,
    cross_attention: Attention | None = None,
    *,
    width: int,
    norm_first: bool = True,
    norm: Callable[[int], nn.Module] = nn.LayerNorm,
    dropout: float = 0.0,
) -> Layer:
    """A standard transformer layer: each branch in a `Sublayer` with its own norm."""

    def wrap(branch: nn.Module) -> Sublayer:
        return Sublayer(branch, norm(width), norm_first=norm_first, dropout=dropout)

    return Layer(wrap(attention), wrap(feedforward), None if cross_attention is None else wrap(cross_attention))
