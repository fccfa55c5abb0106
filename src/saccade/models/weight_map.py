"""Weight maps from published tensor names to saccade's names and back: one dictionary per family, used in both directions.

An entry maps a module (with its weight and bias) or a single tensor; `{}` stands for a number. If the published layout differs,
the value is an invertible `WeightTransform`. Nothing is guessed from shapes: unmapped names and missing parameters are errors
that list them.

>>> names = {"h.{}.attn.c_attn": Split("layers.{}.", "query", "key", "value", transposed=True), "wte": "words"}
>>> theirs = {"wte.weight": torch.zeros(5, 2), "h.0.attn.c_attn.weight": torch.arange(12.0).view(2, 6)}
>>> ours = to_ours(theirs, names).tensors
>>> list(ours)
['words.weight', 'layers.0.query.weight', 'layers.0.key.weight', 'layers.0.value.weight']
>>> ours["layers.0.key.weight"].tolist()
[[2.0, 8.0], [3.0, 9.0]]
>>> back = to_theirs(ours, names)
>>> all(torch.equal(back[name], theirs[name]) for name in theirs)
True
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from saccade.errors import ModelError


@dataclass(frozen=True)
class WeightTransform:
    """The same tensor under another name."""

    our_name: str

    def our_names(self) -> tuple[str, ...]:
        """Saccade's names for one published tensor."""
        return (self.our_name,)

    def to_ours(self, x: Tensor) -> list[Tensor]:
        """From a published tensor to saccade's tensors, one for each of `our_names`."""
        return [x]

    def to_theirs(self, xs: list[Tensor]) -> Tensor:
        """From saccade's tensors to the published one."""
        return xs[0]


@dataclass(frozen=True)
class Transpose(WeightTransform):
    """A matrix stored as (in, out)."""

    def to_ours(self, x: Tensor) -> list[Tensor]:
        return [x.T if x.dim() == 2 else x]

    def to_theirs(self, xs: list[Tensor]) -> Tensor:
        return xs[0].T if xs[0].dim() == 2 else xs[0]


class Split(WeightTransform):
    """Several matrices stored as one concatenated matrix: `Split("attention.", "query", "key", "value")`."""

    def __init__(self, our_name: str, *suffixes: str, transposed: bool = False):
        super().__init__(our_name)
        object.__setattr__(self, "suffixes", suffixes)
        object.__setattr__(self, "transposed", transposed)

    suffixes: tuple[str, ...]
    transposed: bool

    def our_names(self) -> tuple[str, ...]:
        return tuple(self.our_name + suffix for suffix in self.suffixes)

    def to_ours(self, x: Tensor) -> list[Tensor]:
        return list((x.T if self.transposed and x.dim() == 2 else x).chunk(len(self.suffixes)))

    def to_theirs(self, xs: list[Tensor]) -> Tensor:
        joined = torch.cat(xs)
        return joined.T if self.transposed and joined.dim() == 2 else joined


@dataclass(frozen=True)
class RotaryPermutation(WeightTransform):
    """Reorders rows of query or key for rotary positions: published pairs are neighbours, saccade's are halves."""

    heads: int

    def to_ours(self, x: Tensor) -> list[Tensor]:
        return [x.unflatten(0, (self.heads, -1, 2)).transpose(1, 2).flatten(0, 2)]

    def to_theirs(self, xs: list[Tensor]) -> Tensor:
        return xs[0].unflatten(0, (self.heads, 2, -1)).transpose(1, 2).flatten(0, 2)


class SplitHeads(Split):
    """Queries, keys and values stored as one matrix, interleaved by head: query, key, value of the first head, and so on.

    >>> step = SplitHeads("branch.", "query", "key", "value", heads=2)
    >>> [x.tolist() for x in step.to_ours(torch.arange(6.0))]
    [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    """

    heads: int

    def __init__(self, our_name: str, *suffixes: str, heads: int):
        super().__init__(our_name, *suffixes)
        object.__setattr__(self, "heads", heads)

    def to_ours(self, x: Tensor) -> list[Tensor]:
        return [piece.flatten(0, 1) for piece in x.unflatten(0, (self.heads, len(self.suffixes), -1)).unbind(1)]

    def to_theirs(self, xs: list[Tensor]) -> Tensor:
        return torch.stack([x.unflatten(0, (self.heads, -1)) for x in xs], dim=1).flatten(0, 2)


@dataclass(frozen=True)
class AddedAxis(WeightTransform):
    """A vector stored as a matrix of one row."""

    def to_ours(self, x: Tensor) -> list[Tensor]:
        return [x.squeeze(0)]

    def to_theirs(self, xs: list[Tensor]) -> Tensor:
        return xs[0].unsqueeze(0)


WeightMap = Mapping[str, str | WeightTransform]


@dataclass
class MappedTensors:
    """The result of renaming published tensors."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    unmapped: list[str] = field(default_factory=list)  # published names without an entry
    sources: dict[str, str] = field(default_factory=dict)  # saccade's name -> published name


def to_ours(tensors: Mapping[str, Tensor], weight_map: WeightMap) -> MappedTensors:
    """Rename and reshape published tensors; those without an entry are listed in `unmapped`."""
    entries = [(_name_regex(theirs), _as_transform(ours)) for theirs, ours in weight_map.items()]
    mapped = MappedTensors()
    for name, tensor in tensors.items():
        for pattern, transform in entries:
            match = pattern.fullmatch(name)
            if match is None:
                continue
            *numbers, leaf = match.groups()
            for ours, piece in zip(transform.our_names(), transform.to_ours(tensor), strict=True):
                our_name = _fill_numbers(ours, numbers) + (leaf or "")
                mapped.tensors[our_name], mapped.sources[our_name] = piece, name
            break
        else:
            mapped.unmapped.append(name)
    return mapped


def is_mapped(name: str, weight_map: WeightMap) -> bool:
    """Whether a weight map has an entry for a published name."""
    return any(_name_regex(theirs).fullmatch(name) for theirs in weight_map)


def to_theirs(tensors: Mapping[str, Tensor], weight_map: WeightMap) -> dict[str, Tensor]:
    """The inverse of `to_ours`; a tensor without an entry is an error."""
    entries = [(theirs, _as_transform(ours)) for theirs, ours in weight_map.items()]
    out: dict[str, Tensor] = {}
    unknown = []
    for name in tensors:
        for theirs, transform in entries:
            first, *others = transform.our_names()
            match = _name_regex(first).fullmatch(name)
            if match is not None:
                *numbers, leaf = match.groups()
                siblings = [tensors[_fill_numbers(other, numbers) + (leaf or "")] for other in others]
                out[_fill_numbers(theirs, numbers) + (leaf or "")] = transform.to_theirs(
                    [tensors[name], *siblings]
                ).contiguous()
                break
            if any(_name_regex(other).fullmatch(name) for other in others):
                break  # written with the first name of its entry
        else:
            unknown.append(name)
    if unknown:
        raise ModelError(f"No published names for {', '.join(unknown[:8])}; add them to the family's weight map.")
    return out


def _as_transform(ours: str | WeightTransform) -> WeightTransform:
    return WeightTransform(ours) if isinstance(ours, str) else ours


def _name_regex(template: str) -> re.Pattern[str]:
    """A pattern for names with numbers in place of `{}` and an optional suffix (weight, bias)."""
    return re.compile(re.escape(template).replace(r"\{\}", r"(\d+)") + r"(\.(?:weight|bias))?")


def _fill_numbers(template: str, numbers: list[str]) -> str:
    for number in numbers:
        template = template.replace("{}", number, 1)
    return template
