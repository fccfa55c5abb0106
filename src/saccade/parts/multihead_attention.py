"""Multi-head attention: self-attention and cross-attention with several heads, grouped-query attention, QK-norm.

Vaswani et al. 2017 (arXiv 1706.03762). The attention mechanism is an argument; this module projects queries, keys and values,
splits them into heads, and concatenates and projects the outputs of the heads.
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
    """The linear projections of multi-head attention: the width of a head, and which projections have a bias."""

    head_width: int | None = None  # width of queries and keys of one head; None: model width / heads
    value_width: int | None = None  # width of values of one head; None: `head_width`
    memory_width: int | None = None  # width of the sequence that keys and values are projected from; None: model width
    bias: bool = True  # bias of the query, key and value projections
    has_output_projection: bool = True  # False returns the concatenated heads
    output_bias: bool | None = None  # bias of the output projection; None: same as `bias`


class QKNorm(nn.Module):
    """QK-norm: normalizes queries and keys (B, H, L, D) before rotary embedding and scoring, so that scores stay bounded.

    A norm of width D is shared by all heads (Qwen3, Gemma 3); a `JointHeadNorm` normalizes all heads together (OLMo 2).
    Dehghani et al. 2023 (arXiv 2302.05442).
    """

    query: nn.Module
    key: nn.Module

    def __init__(self, query: nn.Module, key: nn.Module):
        super().__init__()
        self.query, self.key = query, key


class JointHeadNorm(nn.Module):
    """A norm over the concatenated vectors of all heads."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(self.norm(x.transpose(1, 2).flatten(2)), x.size(-1))  # (B, H, L, D)


class OutputGate(nn.Module):
    """Gated attention: a sigmoid gate on the output of each head, computed from the query token; one gate per head by default.

    Qiu et al. 2025 (arXiv 2505.06708).
    """

    def __init__(self, model_width: int, heads: int, width: int = 1, *, bias: bool = False):
        super().__init__()
        self.width = width
        self.score: nn.Linear = nn.Linear(model_width, heads * width, bias=bias)

    def forward(self, head_outputs: Tensor, x: Tensor) -> Tensor:
        """Gate `head_outputs` (B, H, Q, D) with the input tokens x (B, Q, W)."""
        return head_outputs * split_heads(self.score(x), self.width).sigmoid()


class Attention(nn.Module):
    """Multi-head attention with any mechanism: self-attention over x, or cross-attention to a `memory`.

    Fewer `kv_heads` than `heads` means grouped-query attention. Families also differ in the `projections`, in `qk_norm`, and
    in an output gate.
    """

    qk_norm: QKNorm | None
    gate: OutputGate | None

    kept_heads: tuple[int, ...] | None = None  # the original numbers of the remaining heads after pruning; None = all

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
        sizes = projections or Projections()
        if sizes.head_width is None and width % heads:
            raise ValueError(
                f"A width of {width} is not divisible by {heads} heads; choose another number or give `head_width`."
            )
        kv_heads = kv_heads or heads
        if heads % kv_heads:
            raise ValueError(f"{heads} heads cannot share {kv_heads} key heads evenly; choose a divisor of {heads}.")
        self.mechanism: Mechanism | ScaledDot = mechanism or ScaledDot()
        self.head_width: int = sizes.head_width or width // heads
        self.value_width: int = sizes.value_width or self.head_width
        memory_width = sizes.memory_width or width
        self.query: nn.Linear = nn.Linear(width, heads * self.head_width, bias=sizes.bias)
        if self.mechanism.ties_query_key:
            if memory_width != width or kv_heads != heads or qk_norm is not None:
                raise ValueError(
                    f"{type(self.mechanism).__name__} uses one vector as query and key, so it supports no memory of another "
                    "width, no grouped-query attention and no QK-norm."
                )
            self.key = self.query
        else:
            self.key: nn.Linear = nn.Linear(memory_width, kv_heads * self.head_width, bias=sizes.bias)
        self.value: nn.Linear = nn.Linear(memory_width, kv_heads * self.value_width, bias=sizes.bias)
        output_bias = sizes.bias if sizes.output_bias is None else sizes.output_bias
        self.output: nn.Linear | nn.Identity = (
            nn.Linear(heads * self.value_width, width, bias=output_bias)
            if sizes.has_output_projection
            else nn.Identity()
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
        """Self-attention of x (B, Q, W) over x and the KV cache in `state`, or cross-attention to `memory` (B, K, W)."""
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
        out = self.mechanism(q, k, v, select_head_bias(sight, self.kept_heads))  # (B, H, Q, D)
        if self.gate is not None:
            out = self.gate(out, x)
        return self.output(out.transpose(1, 2).flatten(2))

    def _project_keys(self, x: Tensor) -> Tensor:
        k = split_heads(self.key(x), self.head_width)  # (B, G, K, D)
        return k if self.qk_norm is None else normalize(self.qk_norm.key, k)

    def _project_memory(self, memory: Tensor, state: State | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory, (B, H, K, D); they are the same at every decoding step, so they are cached."""

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
    """A bias of the scores, restricted to some of the heads."""

    bias: Bias
    heads: tuple[int, ...]

    def __init__(self, bias: Bias, heads: tuple[int, ...]):
        self.bias, self.heads = bias, heads

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        if max(x.size(-3) if x.dim() > 2 else 1 for x in (q_pos, k_pos)) == 1:
            return self.bias(q_pos, k_pos)[..., list(self.heads), :, :]
        # positions differ between heads: each head takes its own
        positions = [
            [x[..., [i if x.size(-3) > 1 else 0], :, :] for x in (q_pos, k_pos)] for i in range(len(self.heads))
        ]
        biases = [self.bias(*pair)[..., [head], :, :] for head, pair in zip(self.heads, positions, strict=True)]
        return torch.cat(biases, dim=-3)

    def parameters(self) -> Iterable[nn.Parameter]:
        """The learned parameters of the bias."""
        return getattr(self.bias, "parameters", tuple)()


def select_head_bias(sight: Sight, kept_heads: tuple[int, ...] | None) -> Sight:
    """The sight of the heads that remain after pruning; the bias of a stack covers the original heads."""
    if kept_heads is None or sight.bias is None:
        return sight
    bias = HeadSubsetBias(sight.bias, kept_heads)
    return sight.get_or_make(("heads", kept_heads), lambda: replace(sight, bias=bias, cache={}))
