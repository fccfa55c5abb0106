"""The same word in two contexts: how its vector moves apart, layer by layer, and where it looks in each.

for step in contexts(model, "the bank of the river", "the bank raised its rates", "bank"):
    print(step)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention.table import nearest
from saccade.data import Text
from saccade.errors import ModelError, UsageError
from saccade.explain.inputs import Asked, ask, opened
from saccade.explain.look import look_at, still
from saccade.explain.looks import Seen
from saccade.models.model import Model

Links = tuple[tuple[str, float], ...]  # words, and how much of them is taken


@dataclass(frozen=True)
class Step:
    """After one layer: how alike the two vectors are, how far apart, and what the word looks at most in each context."""

    layer: int  # 0 is before the first
    alike: float  # cosine
    apart: float  # by the mean length of the two
    first: Links = ()
    second: Links = ()

    def __str__(self) -> str:
        said = [", ".join(f"{name} {weight:.2f}" for name, weight in links) for links in (self.first, self.second)]
        looks = f"   looks at {said[0]}   |   {said[1]}" if self.first or self.second else ""
        return f"layer {self.layer}: cosine {self.alike:.3f}, apart {self.apart:.2f}{looks}"


@dataclass(frozen=True, eq=False)
class Traced:
    """One word in one context: its vector before and after each layer, and its rows of attention."""

    vectors: list[Tensor]
    rows: list[Links]


def contexts(model: Model | str, first: str, second: str, word: str) -> list[Step]:
    """Follow a word that stands in both texts through the layers that read it."""
    one, other = (traced(ask(*opened(model), text), word) for text in (first, second))
    steps = []
    for layer, (a, b) in enumerate(zip(one.vectors, other.vectors, strict=True)):
        alike = float(F.cosine_similarity(a, b, dim=0))
        apart = float((a - b).norm() / ((a.norm() + b.norm()) / 2).clamp(min=1e-9))
        looks = [rows[layer - 1] if 0 < layer <= len(rows) else () for rows in (one.rows, other.rows)]
        steps.append(Step(layer, alike, apart, *looks))
    return steps


def traced(asked: Asked, word: str) -> Traced:
    """The word's vectors (the mean over its tokens) and where it looks, layer by layer."""
    numbers = find(asked, word)
    with still(asked.model), _seen(asked.model) as outputs:
        _read(asked)
    vectors = [x[0, numbers].mean(0).float().cpu() for x in outputs]
    side = "encoder" if asked.writes and not asked.alone else ""
    if asked.writes:  # what it reads is asked about, so it need not write
        asked = replace(asked, target=() if asked.alone else (0,))
    maps = [m for m in look_at(asked).maps if m.kind == "self" and m.side == side]
    return Traced(vectors, [_most(m, asked, numbers) for m in maps])


def find(asked: Asked, word: str) -> list[int]:
    """The tokens of a word, or an error with the words that there are."""
    axis, groups = asked.read.words(asked.texts)
    names = [_plain(name) for name in axis.names]
    if _plain(word) not in names:
        raise UsageError(f"There is no word {word!r} in {asked.texts[0]!r}; {nearest(word, names)}")
    return groups[names.index(_plain(word))]


def _plain(word: str) -> str:
    return word.strip(" .,;:!?\"'()").lower()


def _most(seen: Seen, asked: Asked, numbers: Sequence[int], count: int = 3) -> Links:
    """What the word looks at most, in words, the mean over the heads and over its tokens."""
    row = seen.mean[list(numbers)].mean(0)[: len(asked.read)]
    axis, groups = asked.read.words(asked.texts)
    sums = torch.stack([row[group].sum() for group in groups])
    best = sums.topk(min(count, len(sums)))
    return tuple((axis.names[i], w) for i, w in zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _read(asked: Asked) -> None:
    """One pass over what is read, and nothing more."""
    model = asked.model
    batch = asked.batch.to(next(model.parameters()).device)
    if not asked.writes:
        model.body(batch)
        return
    state, first = model.start(batch)
    if asked.alone:
        model.autoregressive.think(Text(first.tokens), state)


@contextmanager
def _seen(model: Model) -> Iterator[list[Tensor]]:
    """What goes into the first layer that reads, and what comes out of each."""
    found: list[Tensor] = []
    capabilities = model.capabilities
    reading = [path for path in capabilities.layers if capabilities.side_of(f"{path}.") in ("", "encoder")]
    layers = [layer for path in reading for layer in model.body.get_submodule(path).children()]
    if not layers:
        raise ModelError(f"{model.family.name} has no layers that read a text.")

    def enters(_: nn.Module, given: tuple[Any, ...]) -> None:
        found.append(given[0])

    def leaves(_: nn.Module, __: tuple[Any, ...], out: Tensor) -> None:
        found.append(out)

    placed = [layers[0].register_forward_pre_hook(enters), *(layer.register_forward_hook(leaves) for layer in layers)]
    try:
        yield found
    finally:
        for handle in placed:
            handle.remove()
