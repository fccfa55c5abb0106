"""The layers of a fast stack as one chain: all that one new token a row goes through, in a single call."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from saccade.engine import native
from saccade.engine.chain import Chain, Room
from saccade.engine.layers import FastParallelLayer
from saccade.engine.quantise import Packed, Tiles
from saccade.engine.sublayers import Across, Around, Looking, Norm, Now, Thinking
from saccade.parts.layer import Layer
from saccade.parts.position import PerLayer, Position, Rotary


class Unlinked(Exception):
    """A part has no place in a chain."""


def linked(layers: Sequence[Layer], position: Position) -> "Links | None":
    """The layers in one chain; None where one of them is of another kind than a chain can walk."""
    try:
        return Links(layers, position) if native.ready() and layers else None
    except Unlinked:
        return None


class Links:
    """A chain of layers, and the rooms of memory that it looks at in turn."""

    def __init__(self, layers: Sequence[Layer], position: Position) -> None:
        if not isinstance(position, Rotary) and type(position).turn is not Position.turn:
            raise Unlinked
        if isinstance(position, PerLayer) or (isinstance(position, Rotary) and position.partial):
            raise Unlinked
        self.rotary = position if isinstance(position, Rotary) else None
        self.looks: list[tuple[str, Looking | Across]] = []
        self.chain, x = Chain(_norm_of(layers[0].attention).weight.numel()), 0
        for number, layer in enumerate(layers):
            if isinstance(layer, FastParallelLayer):
                raise Unlinked
            for name, part in (("attention", layer.attention), ("across", layer.across), ("", layer.feedforward)):
                if part is not None:
                    x = self._around(x, f"{number}.{name}.", part)

    def _around(self, x: int, path: str, part: nn.Module) -> int:
        norm = _norm_of(part)
        assert isinstance(part, Around), "only what goes around a branch has a norm"
        if part.post_norm is not None:
            raise Unlinked
        if part.norm_first:
            return self._branch(self._norm(x, norm), x, path, part.branch)
        return self._norm(self._branch(x, x, path, part.branch), norm)

    def _norm(self, x: int, norm: Norm) -> int:
        if norm.centred:
            return self.chain.norm(x, norm.weight, norm.bias, norm.eps)
        return self.chain.rms(x, norm.weight, norm.eps)

    def _branch(self, x: int, add: int, path: str, branch: nn.Module) -> int:
        if isinstance(branch, Thinking):
            act = branch.activation
            if act not in native.ACTS:
                raise Unlinked
            up = self.chain.linear(x, _tiles(branch.up), "none" if branch.gated else act)
            return self.chain.linear(self.chain.gate(up, act) if branch.gated else up, _tiles(branch.down), add=add)
        if not isinstance(branch, Looking | Across) or not branch.scale:
            raise Unlinked
        room, width = len(self.looks), branch.head_width
        self.looks.append((path, branch))
        if isinstance(branch, Looking):
            if branch.qk_norm is not None:
                raise Unlinked
            heads, groups, _ = branch.sizes
            x = self.chain.linear(x, _tiles(branch.joint))
            if self.rotary is not None:
                x = self.chain.turn(x, branch.looks, width, neighbours=self.rotary.neighbours)
        else:
            heads, groups = _tiles(branch.query).rows // width, branch.joint.out_features // width // 2
            x = self.chain.linear(x, _tiles(branch.query))
        return self.chain.linear(
            self.chain.attend(x, heads, groups, width, branch.scale, room=room), _tiles(branch.output), add=add
        )

    def next(self, x: Tensor, now: Now) -> Tensor:
        """One new token a row through all layers, (B, W); every row goes on."""
        rooms = [self._room(path, branch, now, len(x)) for path, branch in self.looks]
        return self.chain(x, rooms, None if now.turn is None else self._turns(now, len(x)))

    def _room(self, path: str, branch: Looking | Across, now: Now, rows: int) -> Room:
        if isinstance(branch, Looking):
            shape = now.made.get("one")
            if shape is None or shape.size(1) != branch.sizes[1] or shape.size(3) != branch.head_width:
                sizes = (rows, branch.sizes[1], 1, branch.head_width)
                shape = now.made["one"] = torch.empty(sizes, dtype=branch.joint.keeps)
            key, value = (now.memory.extend(f"{path}{name}", shape) for name in ("key", "value"))
            return Room(key.whole, value.whole, now.lengths, now.seen(key.whole.size(2)), origin=key.origin)
        keys, values, group = branch.few(now, path)
        keep = None if now.across_keep is None else now.across_keep[::group]
        return Room(keys, values, now.whole(keys.size(2), len(keys)), keep, group)

    def _turns(self, now: Now, rows: int) -> Tensor:
        """The cosines beside the sines of the new token's angles, (B, D): what turning makes of the pairs (1, 0)."""
        assert self.rotary is not None, "what turns is a Rotary"
        assert now.turn is not None, "asked for only where something turns"
        width = self.rotary.waves.width
        axes = torch.zeros(width // 2, 2)
        axes[:, 0] = 1
        apart = self.rotary.neighbours
        turned: Any = now.turn((axes if apart else axes.T).reshape(1, 1, 1, width)).view(-1, width)
        turned = turned.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1) if apart else turned
        return turned.expand(rows, width)


def _norm_of(part: nn.Module) -> Norm:
    if not isinstance(part, Around) or not isinstance(part.norm, Norm):
        raise Unlinked
    return part.norm


def _tiles(layer: Packed) -> native.Packed:
    """The weights of a layer, if our own operator multiplies them."""
    if not isinstance(layer, Tiles):
        raise Unlinked
    return layer.weights
