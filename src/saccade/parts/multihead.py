"""Multi-head attention: several independent looks at once, each in a subspace of its own, joined and projected.

Vaswani et al. 2017 (arXiv 1706.03762). The mechanism is a part; this file only projects, splits and joins.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from saccade.attention import Mechanism, ScaledDot, Sight
from saccade.attention.sight import Bias
from saccade.parts.position import Turn
from saccade.parts.state import State


class Attention(nn.Module):
    """`heads` looks with any mechanism; self-attention over x, or across to a `memory` of another width.

    `key_heads` fewer than heads share keys and values in groups; `head_width` and `value_width` (of one head) are free;
    `output=False` leaves the joined heads as they are, without the last projection.
    """

    kept: tuple[int, ...] | None = None  # the heads that are left, where some were cut off after it was built

    def __init__(
        self,
        width: int,
        heads: int,
        mechanism: Mechanism | None = None,
        *,
        key_heads: int | None = None,
        head_width: int | None = None,
        value_width: int | None = None,
        memory_width: int | None = None,
        bias: bool = True,
        output: bool = True,
    ):
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(
                f"{heads} heads do not divide a width of {width}; choose another number or give `head_width`."
            )
        key_heads = key_heads or heads
        if heads % key_heads:
            raise ValueError(f"{heads} heads cannot share {key_heads} key heads evenly; choose a divisor of {heads}.")
        head_width = head_width or width // heads
        value_width = value_width or head_width
        memory_width = memory_width or width
        self.mechanism = mechanism or ScaledDot()
        self.head_width, self.value_width = head_width, value_width
        self.query = nn.Linear(width, heads * head_width, bias=bias)
        if self.mechanism.shared:
            if memory_width != width or key_heads != heads:
                raise ValueError(
                    f"{type(self.mechanism).__name__} uses one vector as query and key: no memory, no groups."
                )
            self.key = self.query
        else:
            self.key = nn.Linear(memory_width, key_heads * head_width, bias=bias)
        self.value = nn.Linear(memory_width, key_heads * value_width, bias=bias)
        self.output = nn.Linear(heads * value_width, width, bias=bias) if output else nn.Identity()

    def forward(
        self,
        x: Tensor,
        sight: Sight,
        *,
        memory: Tensor | None = None,
        turn: Turn | None = None,
        state: State | None = None,
    ) -> Tensor:
        """x (B, Q, W) looks at itself and what `state` remembers of it, or across at `memory` (B, K, W)."""
        q = split(self.query(x), self.head_width)  # (B, H, Q, D)
        if memory is not None:
            k, v = self._across(memory, state)
        else:
            k, v = split(self.key(x), self.head_width), split(self.value(x), self.value_width)
            if turn is not None:
                q, k = turn(q), turn(k)
            if state is not None:
                k, v = state.append("key", k), state.append("value", v)
        return self.output(self.mechanism(q, k, v, narrowed(sight, self.kept)).transpose(1, 2).flatten(2))

    def _across(self, memory: Tensor, state: State | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory, (B, H, K, D): the same at every step, hence made once."""

        def keys() -> Tensor:
            return split(self.key(memory), self.head_width)

        def values() -> Tensor:
            return split(self.value(memory), self.value_width)

        return (keys(), values()) if state is None else (state.once("key", keys), state.once("value", values))


def split(x: Tensor, width: int) -> Tensor:
    """(B, L, H·D) to (B, H, L, D)."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


class Chosen:
    """A tilt of the scores for some heads only."""

    def __init__(self, tilt: Bias, heads: tuple[int, ...]):
        self.tilt, self.heads = tilt, heads

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        if max(x.size(-3) if x.dim() > 2 else 1 for x in (q_pos, k_pos)) == 1:
            return self.tilt(q_pos, k_pos)[..., list(self.heads), :, :]
        # positions that differ from head to head: each takes its own
        places = [[x[..., [i if x.size(-3) > 1 else 0], :, :] for x in (q_pos, k_pos)] for i in range(len(self.heads))]
        tilts = [self.tilt(*both)[..., [head], :, :] for head, both in zip(self.heads, places, strict=True)]
        return torch.cat(tilts, dim=-3)

    def parameters(self) -> Iterable[nn.Parameter]:
        """Those that the tilt learns."""
        return getattr(self.tilt, "parameters", tuple)()


def narrowed(sight: Sight, kept: tuple[int, ...] | None) -> Sight:
    """What the heads that are left may see; the tilt of a stack is made for all of them."""
    if kept is None or sight.bias is None:
        return sight
    tilt = Chosen(sight.bias, kept)
    return sight.once(("heads", kept), lambda: replace(sight, bias=tilt, made={}))
