"""The same numbers in another layout: slices, transposed axes, addresses that are no multiple of four."""

import random

import torch
from torch import Tensor


def lay_out(chance: random.Random, x: Tensor, *, misalign: bool = True) -> Tensor:
    """An equal tensor that lies somewhere else, maybe with gaps; the last axis stays in one piece half of the time."""
    ways = [lambda x, _: x.clone(), cut_out, squeeze_in] + [transpose] * (x.dim() > 1) + [shift] * misalign
    return chance.choice(ways)(x, chance)


def cut_out(x: Tensor, chance: random.Random, axes: int | None = None) -> Tensor:
    """A slice of a larger tensor, whose other numbers must be neither read nor written; of all axes or the first few."""
    larger = [n + chance.randrange(3) if axis < (axes or x.dim()) else n for axis, n in enumerate(x.shape)]
    starts = [chance.randint(0, more - n) for more, n in zip(larger, x.shape, strict=True)]
    whole = filled(larger, x)
    part = whole[tuple(slice(start, start + n) for start, n in zip(starts, x.shape, strict=True))]
    return part.copy_(x)


def squeeze_in(x: Tensor, chance: random.Random) -> Tensor:
    """One of several numbers that lie side by side, so that no two neighbours touch."""
    return filled([*x.shape, 2], x)[..., chance.randrange(2)].copy_(x)


def transpose(x: Tensor, chance: random.Random) -> Tensor:
    one, two = chance.sample(range(x.dim()), 2)
    return x.transpose(one, two).contiguous().transpose(one, two)


def shift(x: Tensor, chance: random.Random) -> Tensor:
    """At an odd address, as a tensor over somebody's bytes may be."""
    if not x.numel():
        return x.clone()
    size, by = x.element_size(), chance.choice((1, 2, 3))
    there = torch.frombuffer(bytearray(x.numel() * size + by), dtype=x.dtype, offset=by).view(x.shape)
    return there.copy_(x)


def filled(shape: list[int], like: Tensor) -> Tensor:
    """Something that would spoil a result: NaN, or the largest whole number."""
    kind = like.dtype
    if kind.is_floating_point:
        return torch.full(shape, float("nan"), dtype=kind)
    return torch.full(shape, True if kind is torch.bool else torch.iinfo(kind).max, dtype=kind)


def twin(x: Tensor) -> Tensor:
    """A copy with all that lies around it, in the same layout."""
    return torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone(), x.storage_offset(), x.shape, x.stride())


def same_storage(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors and all that lies around them are equal, byte for byte."""
    first, second = (torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()) for x in (one, two))
    return first.equal(second)
