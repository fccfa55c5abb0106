"""One layer of a transformer: look, look across, think; each with a residual connection and a norm.

A residual connection adds a branch to its own input, so a gradient always has a straight way down past every branch:
that is why deep stacks train at all.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
    """What all layers of a pass share."""

    sight: Sight
    rotation: Rotation | None = None
    memory: Tensor | None = None
    memory_sight: Sight | None = None


class Sublayer(nn.Module):
    """A branch with its residual connection: x + branch(norm(x)), or the norm of the sum as first published.

    A `post_norm` is a norm of what the branch gives, before it is added: x + post_norm(branch(norm(x))), as in Gemma 3.
    """

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
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *args, **options) -> Tensor:
        if self.norm_first:
            return x + self._finish_branch(self.branch(self.norm(x), *args, **options))
        return self.norm(x + self._finish_branch(self.branch(x, *args, **options)))

    def compute_residual(self, x: Tensor, *args, **options) -> Tensor:
        """What a sublayer with its norm first adds to x."""
        return self._finish_branch(self.branch(self.norm(x), *args, **options))

    def _finish_branch(self, out: Tensor) -> Tensor:
        return self.dropout(out if self.post_norm is None else normalize(self.post_norm, out))


class Layer(nn.Module):
    """Self-attention, then attention across to a memory where there is one, then feed-forward."""

    def __init__(self, attention: Sublayer, feedforward: Sublayer, cross_attention: Sublayer | None = None):
        super().__init__()
        self.attention, self.across, self.feedforward = attention, cross_attention, feedforward

    def forward(self, x: Tensor, context: LayerContext, state: State | None = None) -> Tensor:
        own = None if state is None else state.at("attention")
        x = self.attention(x, context.sight, rotation=context.rotation, state=own)
        if self.across is not None:
            if context.memory is None or context.memory_sight is None:
                raise ValueError("This layer looks across to a memory, and none was given; pass `memory` to the stack.")
            there = None if state is None else state.at("across")
            x = self.across(x, context.memory_sight, memory=context.memory, state=there)
        return self.feedforward(x)


class ParallelLayer(Layer):
    """Self-attention and feed-forward side by side, from the same input: x + attention(x) + feedforward(x).

    As in GPT-J and GPT-NeoX (Black et al. 2022, arXiv 2204.06745). Each sublayer has a norm of its own, or both share `norm`
    and have none (`nn.Identity`).
    """

    def __init__(self, attention: Sublayer, feedforward: Sublayer, norm: nn.Module | None = None):
        super().__init__(attention, feedforward)
        if not (attention.norm_first and feedforward.norm_first):
            raise ValueError("The sublayers of a parallel layer add to its input, so their norms come first.")
        self.norm = norm or nn.Identity()

    def forward(self, x: Tensor, context: LayerContext, state: State | None = None) -> Tensor:
        own = None if state is None else state.at("attention")
        normed = self.norm(x)
        seen = self.attention.compute_residual(normed, context.sight, rotation=context.rotation, state=own)
        return x + seen + self.feedforward.compute_residual(normed)


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
    """The common layer: each part in a `Sublayer` with a norm of its own."""

    def around(branch: nn.Module) -> Sublayer:
        return Sublayer(branch, norm(width), norm_first=norm_first, dropout=dropout)

    return Layer(around(attention), around(feedforward), None if cross_attention is None else around(cross_attention))
