"""Multi-head attention: several independent looks at once, each in a subspace of its own, joined and projected.

Vaswani et al. 2017 (arXiv 1706.03762). The mechanism is a part; this file only projects, splits and joins.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from saccade.attention import Mechanism, ScaledDot, Sight
from saccade.attention.sight import Bias
from saccade.parts.norm import normalize
from saccade.parts.position import Rotation
from saccade.parts.state import State


@dataclass(frozen=True)
class Projections:
    """The linear layers of an attention: how wide the vectors of one head are, and which layers have a bias."""

    head_width: int | None = None  # of a query and a key; None: the width of the model divided by its heads
    value_width: int | None = None  # of a value; None: as wide as a key
    memory_width: int | None = None  # of what keys and values are made from; None: the width of the model
    bias: bool = True  # of query, key and value
    has_output_projection: bool = True  # False leaves the joined heads as they are
    output_bias: bool | None = None  # None: as `bias`


class QKNorm(nn.Module):
    """QK-norm: queries and keys (B, H, L, D) are normalized before they turn and meet, so that scores stay bounded.

    A norm of width D serves all heads alike (Qwen3, Gemma 3); in `JointHeadNorm` it is one over all heads together (OLMo 2).
    Dehghani et al. 2023 (arXiv 2302.05442).
    """

    def __init__(self, query: nn.Module, key: nn.Module):
        super().__init__()
        self.query, self.key = query, key


class JointHeadNorm(nn.Module):
    """A norm over the vectors of all heads together."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(self.norm(x.transpose(1, 2).flatten(2)), x.size(-1))  # (B, H, L, D)


class OutputGate(nn.Module):
    """A sigmoid gate on what the heads saw, read off the token that looks: for each column, or with `width` 1 for each head.

    Qiu et al. 2025 (arXiv 2505.06708).
    """

    def __init__(self, model_width: int, heads: int, width: int = 1, *, bias: bool = False):
        super().__init__()
        self.width = width
        self.score = nn.Linear(model_width, heads * width, bias=bias)

    def forward(self, head_outputs: Tensor, x: Tensor) -> Tensor:
        """seen (B, H, Q, D), by the tokens x (B, Q, W)."""
        return head_outputs * split_heads(self.score(x), self.width).sigmoid()


class Attention(nn.Module):
    """`heads` looks with any mechanism; self-attention over x, or cross-attention to a `memory` of another width.

    `kv_heads` fewer than heads share keys and values in groups. The other parts are what families differ in: the
    `projections`, norms of queries and keys, and an output gate.
    """

    kept_heads: tuple[int, ...] | None = None  # the heads that are left, where some were cut off after it was built

    def __init__(
        self,
        width: int,
        heads: int,
        mechanism: Mechanism | None = None,
        *,
        kv_heads: int | None = None,
        projections: Projections | None = None,
        qk_norm: QKNorm | None = None,
        gate: OutputGate | None = None,
    ):
        super().__init__()
        how = projections or Projections()
        if how.head_width is None and width % heads:
            raise ValueError(
                f"{heads} heads do not divide a width of {width}; choose another number or give `head_width`."
            )
        kv_heads = kv_heads or heads
        if heads % kv_heads:
            raise ValueError(f"{heads} heads cannot share {kv_heads} key heads evenly; choose a divisor of {heads}.")
        self.mechanism = mechanism or ScaledDot()
        self.head_width = how.head_width or width // heads
        self.value_width = how.value_width or self.head_width
        memory_width = how.memory_width or width
        self.query = nn.Linear(width, heads * self.head_width, bias=how.bias)
        if self.mechanism.ties_query_key:
            if memory_width != width or kv_heads != heads or qk_norm is not None:
                raise ValueError(
                    f"{type(self.mechanism).__name__} uses one vector as query and key: no memory, no groups, no norms."
                )
            self.key = self.query
        else:
            self.key = nn.Linear(memory_width, kv_heads * self.head_width, bias=how.bias)
        self.value = nn.Linear(memory_width, kv_heads * self.value_width, bias=how.bias)
        output_bias = how.bias if how.output_bias is None else how.output_bias
        self.output = (
            nn.Linear(heads * self.value_width, width, bias=output_bias) if how.has_output_projection else nn.Identity()
        )
        self.qk_norm, self.gate = qk_norm, gate

    def forward(
        self,
        x: Tensor,
        sight: Sight,
        *,
        memory: Tensor | None = None,
        rotation: Rotation | None = None,
        state: State | None = None,
    ) -> Tensor:
        """x (B, Q, W) looks at itself and what `state` remembers of it, or across at `memory` (B, K, W)."""
        q = split_heads(self.query(x), self.head_width)  # (B, H, Q, D)
        if self.qk_norm is not None:
            q = normalize(self.qk_norm.query, q)
        if memory is not None:
            k, v = self._project_memory(memory, state)
        else:
            k, v = self._project_keys(x), split_heads(self.value(x), self.value_width)
            if rotation is not None:
                q, k = rotation(q), rotation(k)
            if state is not None:
                k, v = state.append("key", k), state.append("value", v)
        seen = self.mechanism(q, k, v, select_head_bias(sight, self.kept_heads))
        if self.gate is not None:
            seen = self.gate(seen, x)
        return self.output(seen.transpose(1, 2).flatten(2))

    def _project_keys(self, x: Tensor) -> Tensor:
        k = split_heads(self.key(x), self.head_width)  # (B, G, K, D)
        return k if self.qk_norm is None else normalize(self.qk_norm.key, k)

    def _project_memory(self, memory: Tensor, state: State | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory, (B, H, K, D): the same at every step, hence made once."""

        def keys() -> Tensor:
            return self._project_keys(memory)

        def values() -> Tensor:
            return split_heads(self.value(memory), self.value_width)

        return (
            (keys(), values())
            if state is None
            else (state.get_or_make("key", keys), state.get_or_make("value", values))
        )


def split_heads(x: Tensor, width: int) -> Tensor:
    """(B, L, H·D) to (B, H, L, D)."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


class HeadSubsetBias:
    """A tilt of the scores for some heads only."""

    def __init__(self, bias: Bias, heads: tuple[int, ...]):
        self.bias, self.heads = bias, heads

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        if max(x.size(-3) if x.dim() > 2 else 1 for x in (q_pos, k_pos)) == 1:
            return self.bias(q_pos, k_pos)[..., list(self.heads), :, :]
        # positions that differ from head to head: each takes its own
        places = [[x[..., [i if x.size(-3) > 1 else 0], :, :] for x in (q_pos, k_pos)] for i in range(len(self.heads))]
        tilts = [self.bias(*both)[..., [head], :, :] for head, both in zip(self.heads, places, strict=True)]
        return torch.cat(tilts, dim=-3)

    def parameters(self) -> Iterable[nn.Parameter]:
        """Those that the tilt learns."""
        return getattr(self.bias, "parameters", tuple)()


def select_head_bias(sight: Sight, kept_heads: tuple[int, ...] | None) -> Sight:
    """What the heads that are left may see; the tilt of a stack is made for all of them."""
    if kept_heads is None or sight.bias is None:
        return sight
    tilt = HeadSubsetBias(sight.bias, kept_heads)
    return sight.get_or_make(("heads", kept_heads), lambda: replace(sight, bias=tilt, cache={}))
