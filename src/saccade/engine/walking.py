"""The steps of a chain one after the other, by operators of their own: what chain.cpp is defined to compute."""

from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.engine import fallback, native
from saccade.engine.operands import kept
from saccade.engine.steps import ATTEND, GATE, RMS, TURN, Room, Step


def walk(steps: Sequence[Step], x: Tensor, rooms: Sequence[Room], turns: Tensor | None) -> Tensor:
    """The result that was made last; `turns` are needed where a step turns."""
    made: dict[int | None, Tensor] = {0: x}
    acts = list(native.ACTS)
    for step in steps:
        x, act = made[step.x], acts[step.act]
        if step.layer is not None:
            made[step.to] = step.layer(x, act, made.get(step.add))
        elif step.kind == ATTEND:
            made[step.to] = _look(x, step, rooms[step.room])
        elif step.kind == TURN:
            assert turns is not None, "checked before"
            made[step.to] = _turned(x, step, turns)
        elif step.kind == GATE:
            gate, up = x.chunk(2, dim=-1)
            made[step.to] = fallback.ACTS[act](gate) * up
        elif step.kind == RMS:
            made[step.to] = native.rms(x, step.tensors[0], step.number)
        else:
            made[step.to] = native.norm(x, step.tensors[0], (*step.tensors, None)[1], step.number)
    return made[max(step.to for step in steps)]


def _look(x: Tensor, step: Step, room: Room) -> Tensor:
    h, g = step.heads, step.groups
    parts = x.view(len(x), x.size(1) // step.columns, step.columns)  # (B, H or H + 2G, D)
    fresh = None if parts.size(1) == h else (parts[:, h : h + g], parts[:, h + g :])
    keys, values, lengths, keep = room.keys, room.values, room.lengths, room.keep
    if room.origin is not None:
        for memory, new in zip((keys, values), fresh or (), strict=False):
            fallback.write(memory, kept(new, memory.dtype), lengths)
        keys, values = (native.gather(memory, room.origin, memory.size(2)) for memory in (keys, values))
        fresh = None
    if room.share > 1:
        keys, values, lengths = (t.repeat_interleave(room.share, 0) for t in (keys, values, lengths))
        keep = None if keep is None else keep.repeat_interleave(room.share, 0)
    return native.attend(parts[:, :h], keys, values, lengths, step.number, keep, fresh).flatten(1)


def _turned(x: Tensor, step: Step, turns: Tensor) -> Tensor:
    size = step.heads * step.columns
    heads = x[:, :size].view(len(x), step.heads, step.columns)
    cosine, sine = turns[:, None].chunk(2, dim=-1)
    a, b = (heads[..., 0::2], heads[..., 1::2]) if step.act else heads.chunk(2, dim=-1)
    pair = a * cosine - b * sine, b * cosine + a * sine
    turned = torch.stack(pair, -1) if step.act else torch.cat(pair, -1)
    return torch.cat([turned.reshape(len(x), size), x[:, size:]], dim=1)
