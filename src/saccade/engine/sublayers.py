"""The sublayers of a transformer in their fast form: fewer and larger products, and as few calls as a new token allows.

Each stands where the plain part stood and takes the same arguments, under the same names, so that states, searches and `watch`
notice nothing. Weights that are watched come from the mechanism itself, whatever computes the answer.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention import Dot, Mechanism, ScaledDot, Sight
from saccade.attention.normaliser import Softmax
from saccade.engine import native
from saccade.engine.memory import Memory
from saccade.engine.operands import kept
from saccade.engine.packing import PackedSight
from saccade.engine.quantise import Pack, Packed, joined
from saccade.engine.rooms import cleared
from saccade.parts.feedforward import ACTIVATIONS, FeedForward
from saccade.parts.layer import Sublayer
from saccade.parts.multihead import Attention, narrowed, split
from saccade.parts.norm import OffsetRMSNorm
from saccade.parts.position import Turn
from saccade.parts.state import State

TOGETHER = 128  # tokens of a batch that are read at a time: more take more memory, and no less time


@dataclass
class Now:
    """What all layers share while one new token a row is read."""

    memory: Memory
    lengths: Tensor  # (B,) of the texts, with the new token
    keep: Tensor | None = None  # (B, K)
    turn: Turn | None = None
    across: Tensor | None = None  # (B, K, W)
    across_keep: Tensor | None = None
    live: Tensor | None = None  # the rows that go on, (n,), where others have ended: these alone are multiplied
    made: dict[Hashable, Tensor] = field(default_factory=dict)

    def seen(self, room: int) -> Tensor | None:
        """`keep` as wide as a room, whose space is not seen."""
        if self.keep is not None and room not in self.made:
            self.made[room] = F.pad(self.keep, (0, room - self.keep.size(1)))
        return self.made.get(room)

    def all_rows(self, x: Tensor) -> Tensor:
        """What the rows that go on have made, among zeros for the others."""
        if self.live is None:
            return x
        return x.new_zeros(self.lengths.size(0), *x.shape[1:]).index_copy_(0, self.live, x)

    def live_rows(self, x: Tensor) -> Tensor:
        return x if self.live is None else x.index_select(0, self.live)

    def whole(self, length: int, rows: int) -> Tensor:
        """That length for so many rows."""
        if (length, rows) not in self.made:
            self.made[length, rows] = torch.full((rows,), length)
        return self.made[length, rows]


class Around(nn.Module):
    """The residual connection and the norm of a branch that adds to what it is given.

    `forward` takes (B, T, W) as the plain sublayer does; `next` takes one new token a row, (B, W).
    """

    def __init__(self, branch: "Looking | Across | Thinking", sublayer: Sublayer):
        super().__init__()
        self.branch, self.norm, self.norm_first = branch, fast_norm(sublayer.norm), sublayer.norm_first
        self.post_norm = None if sublayer.post_norm is None else fast_norm(sublayer.post_norm)

    def forward(self, x: Tensor, *args, **options) -> Tensor:
        if self.norm_first:
            return self.added(x, x, *args, **options)
        return self.norm(self.branch(x, *args, add=x, **options))

    def added(self, x: Tensor, to: Tensor, *args, **options) -> Tensor:
        """What a branch with its norm first makes of x, added `to` something: in a parallel layer, what its neighbour made."""
        x = self.norm(x)
        if self.post_norm is None:
            return self.branch(x, *args, add=to, **options)
        return to + self.post_norm(self.branch(x, *args, add=None, **options))

    def next(self, x: Tensor, now: Now, path: str) -> Tensor:
        if self.norm_first:
            return self.next_added(x, x, now, path)
        return self.norm.forward(self.branch.next(x, x, now, path))

    def next_added(self, x: Tensor, to: Tensor, now: Now, path: str) -> Tensor:
        """As `added`, for one new token a row."""
        x = self.norm.forward(x)
        if self.post_norm is None:
            return self.branch.next(x, to, now, path)
        return to + self.post_norm.forward(self.branch.next(x, None, now, path))


class Looking(nn.Module):
    """Self-attention: query, key and value in one product; a new token is written and looks back in one call."""

    def __init__(self, plain: Attention, pack: Pack):
        super().__init__()
        self.mechanism, self.head_width, self.kept = plain.mechanism, plain.head_width, plain.kept
        heads, key_heads = (linear(part).out_features // plain.head_width for part in (plain.query, plain.key))
        self.looks, self.sizes = heads + key_heads, (heads, key_heads, key_heads)
        self.joint = joined([linear(plain.query), linear(plain.key), linear(plain.value)], pack)
        self.output = alone(plain.output, pack)
        self.scale = scale_of(self.mechanism, self.head_width)
        self.qk_norm = plain.qk_norm

    def forward(
        self, x: Tensor, sight: Sight, *, add: Tensor | None, turn: Turn | None = None, state: State | None = None
    ) -> Tensor:
        joint = self.joint(x)
        heads = split(sight.spread(joint) if isinstance(sight, PackedSight) else joint, self.head_width)
        q, k, v = self._turned(self._normed(heads), turn).split(self.sizes, dim=1)  # (B, H or G, T, D)
        if state is not None:
            k, v = (state.append(name, kept(x, self.joint.keeps)).float() for name, x in (("key", k), ("value", v)))
        seen = self.mechanism(q, k, v, narrowed(sight, self.kept)).transpose(1, 2).flatten(2)
        return self.output(sight.gather(seen) if isinstance(sight, PackedSight) else seen, "none", add)

    def next(self, x: Tensor, add: Tensor | None, now: Now, path: str) -> Tensor:
        heads = now.all_rows(self.joint.forward(x)).unflatten(1, (-1, self.head_width))  # (B, H + 2G, D)
        if now.turn is not None or self.qk_norm is not None:
            heads = self._turned(self._normed(heads[:, :, None]), now.turn)[:, :, 0]
        q, k, v = heads.split(self.sizes, dim=1)
        shape = k[:, :, None].to(self.joint.keeps)
        keys = now.memory.reserve(f"{path}key", shape).whole
        values = now.memory.reserve(f"{path}value", shape).whole
        seen = native.attend(q, keys, values, now.lengths, self.scale, now.seen(keys.size(2)), (k, v))
        return self.output.forward(now.live_rows(seen.flatten(1)), "none", add)

    def _normed(self, heads: Tensor) -> Tensor:
        """Queries and keys normalized, each by its own norm, beside the values as they are; (B, H + 2G, T, D)."""
        if self.qk_norm is None:
            return heads
        q, k, v = heads.split(self.sizes, dim=1)
        return torch.cat([self.qk_norm.query(q), self.qk_norm.key(k), v], dim=1)

    def _turned(self, heads: Tensor, turn: Turn | None) -> Tensor:
        """Queries and keys turned together, beside the values as they are."""
        if turn is None:
            return heads
        return torch.cat([turn(heads[:, : self.looks]), heads[:, self.looks :]], dim=1)


class Across(nn.Module):
    """Attention to a memory, whose keys and values are made once, in one product."""

    def __init__(self, plain: Attention, pack: Pack):
        super().__init__()
        self.mechanism, self.head_width = plain.mechanism, plain.head_width
        self.query, self.output = alone(plain.query, pack), alone(plain.output, pack)
        self.joint = joined([linear(plain.key), linear(plain.value)], pack)
        self.scale = scale_of(self.mechanism, self.head_width)

    def forward(
        self, x: Tensor, sight: Sight, *, add: Tensor | None, memory: Tensor, state: State | None = None
    ) -> Tensor:
        q = split(self.query(x), self.head_width)  # (B, H, T, D)
        k, v = (x.float() for x in self._keys(memory, sight.keep, state))
        return self.output(self.mechanism(q, k, v, sight).transpose(1, 2).flatten(2), "none", add)

    def next(self, x: Tensor, add: Tensor | None, now: Now, path: str) -> Tensor:
        q = now.all_rows(self.query.forward(x)).unflatten(1, (-1, self.head_width))  # (B, H, D)
        k, v, group = self.few(now, path)
        keep = None if now.across_keep is None else now.across_keep[::group]
        if group > 1:  # rows with the same memory look as one row with more heads
            q = q.unflatten(0, (-1, group)).transpose(1, 2).flatten(1, 2)
        seen = native.attend(q, k, v, now.whole(k.size(2), len(k)), self.scale, keep)
        if group > 1:
            seen = seen.unflatten(1, (-1, group)).transpose(1, 2).flatten(0, 1)
        return self.output.forward(now.live_rows(seen.flatten(1)), "none", add)

    def few(self, now: Now, path: str) -> tuple[Tensor, Tensor, int]:
        """Keys and values with one row for all rows beside each other that share it, and how many do."""
        assert now.across is not None, "a layer that looks across is given a memory"
        state = now.memory.at(path[:-1])
        k, v = state.few("key"), state.few("value")
        made = self._made(now.across, now.across_keep, state) if k is None or v is None else laid(k, v)
        return *made, state.group("key")

    def _keys(self, memory: Tensor, keep: Tensor | None, state: State | None) -> tuple[Tensor, Tensor]:
        k, v = (None, None) if state is None else (state.get("key"), state.get("value"))
        return self._made(memory, keep, state) if k is None or v is None else laid(k, v)

    def _made(self, memory: Tensor, keep: Tensor | None, state: State | None) -> tuple[Tensor, Tensor]:
        """Keys and values (B, G, K, D) of what is real; a token's lie together, so that padding at an end takes no memory."""
        shape = (*memory.shape[:2], self.joint.out_features // (2 * self.head_width), self.head_width)  # (B, K, G, D)
        k, v = (cleared(shape, memory.new_empty(0, dtype=self.joint.keeps)) for _ in range(2))
        real = memory.new_ones((1, 1), dtype=torch.bool) if keep is None else keep
        for tokens in real.expand(shape[:2]).nonzero().split(TOGETHER):
            at = tuple(tokens.T)
            both = kept(self.joint(memory[at]), self.joint.keeps).unflatten(1, (-1, self.head_width))
            k[at], v[at] = both.chunk(2, dim=1)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        return (k, v) if state is None else (state.put("key", k, 2), state.put("value", v, 2))


class Thinking(nn.Module):
    """Feed-forward: a gate and what it multiplies are one product, and the activation is part of it where it can be."""

    def __init__(self, plain: FeedForward, pack: Pack):
        super().__init__()
        self.activation, self.gated = plain.activation, plain.gate is not None
        self.up = alone(plain.up, pack) if plain.gate is None else joined([plain.gate, plain.up], pack)
        self.down = alone(plain.down, pack)

    def forward(self, x: Tensor, *, add: Tensor | None) -> Tensor:
        if not self.gated:
            return self.down.forward(self.up.forward(x, self.activation), "none", add)
        gate, up = self.up.forward(x).chunk(2, dim=-1)
        return self.down.forward(ACTIVATIONS[self.activation](gate) * up, "none", add)

    def next(self, x: Tensor, add: Tensor | None, now: Now, path: str) -> Tensor:
        return self.forward(x, add=add)


class Norm(nn.Module):
    """Layer norm, or the root-mean-square norm, by our own operator."""

    def __init__(self, plain: nn.LayerNorm | nn.RMSNorm):
        super().__init__()
        self.weight = 1 + plain.weight.detach() if isinstance(plain, OffsetRMSNorm) else plain.weight
        self.bias = plain.bias if isinstance(plain, nn.LayerNorm) else None
        self.eps = torch.finfo(torch.float32).eps if plain.eps is None else plain.eps
        self.centred = isinstance(plain, nn.LayerNorm)

    def forward(self, x: Tensor) -> Tensor:
        if self.centred:
            return native.norm(x, self.weight, self.bias, self.eps)
        return native.rms(x, self.weight, self.eps)


NORMS = (nn.LayerNorm, nn.RMSNorm, OffsetRMSNorm)


def fast_norm(plain: nn.Module) -> nn.Module:
    """The same norm, by our own operator if it is a common one."""
    common = type(plain) in NORMS and isinstance(plain.weight, Tensor) and plain.weight.dim() == 1
    return Norm(plain) if common and native.ready() else plain  # type: ignore[arg-type]


def fast_sublayer(plain: Sublayer, pack: Pack, *, across: bool = False) -> nn.Module:
    """The fast form of a sublayer, or itself where its branch is an unusual one."""
    branch = plain.branch
    if not has_fast_form(plain, across=across):
        return plain
    if isinstance(branch, FeedForward):
        return Around(Thinking(branch, pack), plain)
    assert isinstance(branch, Attention), "it has a fast form"
    return Around(Across(branch, pack) if across else Looking(branch, pack), plain)


def has_fast_form(plain: Sublayer, *, across: bool = False) -> bool:
    """Whether the branch of a sublayer is a usual one."""
    branch = plain.branch
    if plain.post_norm is not None and not plain.norm_first:
        return False
    if type(branch) is not Attention:
        return type(branch) is FeedForward
    usual = not branch.mechanism.shared and branch.value_width == branch.head_width and branch.gate is None
    return usual and type(branch.output) is nn.Linear and not (across and branch.qk_norm is not None)


def scale_of(mechanism: Mechanism, width: int) -> float:
    """What the operator multiplies scores by; 0 where the mechanism is another than it computes."""
    if type(mechanism) not in (ScaledDot, Dot) or type(mechanism.normaliser) is not Softmax:
        return 0.0
    assert isinstance(mechanism, ScaledDot)
    return 1 / math.sqrt(width) if mechanism.scale is None else mechanism.scale


def dense(x: Tensor) -> Tensor:
    """A copy whose strides follow from its shape, also where an axis has one place only."""
    return x.clone(memory_format=torch.contiguous_format)


def laid(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values as the operator reads them: whoever pads or cuts a state may leave its tensors laid out otherwise."""
    return (k, v) if k.stride() == v.stride() and k.stride(3) == 1 else (dense(k), dense(v))


def alone(layer: nn.Module, pack: Pack) -> Packed:
    """One layer packed; weights that lie across, as GPT-2's do in their file, are copied in blocks, which joining does not do."""
    found = linear(layer)
    return pack(dense(found.weight.detach()), found.bias)


def linear(layer: nn.Module) -> nn.Linear:
    assert isinstance(layer, nn.Linear), f"a linear layer is needed; this is {type(layer).__name__}"
    return layer
