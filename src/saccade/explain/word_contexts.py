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

from saccade.data import Text
from saccade.errors import ModelError, UsageError
from saccade.explain.inputs import LookInput, make_input, open_with_task
from saccade.explain.look import eval_mode, look_at
from saccade.explain.maps import AttentionMap
from saccade.models.model import Model
from saccade.suggest import suggest

WeightedWords = tuple[tuple[str, float], ...]  # words, and how much of them is taken


@dataclass(frozen=True)
class LayerComparison:
    """After one layer: how alike the two vectors are, how far apart, and what the word looks at most in each context."""

    layer: int  # 0 is before the first
    cosine_similarity: float  # cosine
    relative_distance: float  # by the mean length of the two
    first_attended: WeightedWords = ()
    second_attended: WeightedWords = ()

    def __str__(self) -> str:
        said = [
            ", ".join(f"{name} {weight:.2f}" for name, weight in links)
            for links in (self.first_attended, self.second_attended)
        ]
        looks = f"   looks at {said[0]}   |   {said[1]}" if self.first_attended or self.second_attended else ""
        return f"layer {self.layer}: cosine {self.cosine_similarity:.3f}, apart {self.relative_distance:.2f}{looks}"


@dataclass(frozen=True, eq=False)
class WordTrace:
    """One word in one context: its vector before and after each layer, and its rows of attention."""

    vectors: list[Tensor]
    attended_words: list[WeightedWords]


def compare_contexts(model: Model | str, first: str, second: str, word: str) -> list[LayerComparison]:
    """Follow a word that stands in both texts through the layers that read it."""
    one, other = (trace_word(make_input(*open_with_task(model), text), word) for text in (first, second))
    steps = []
    for layer, (a, b) in enumerate(zip(one.vectors, other.vectors, strict=True)):
        alike = float(F.cosine_similarity(a, b, dim=0))
        apart = float((a - b).norm() / ((a.norm() + b.norm()) / 2).clamp(min=1e-9))
        looks = [
            rows[layer - 1] if 0 < layer <= len(rows) else () for rows in (one.attended_words, other.attended_words)
        ]
        steps.append(LayerComparison(layer, alike, apart, *looks))
    return steps


def trace_word(look_input: LookInput, word: str) -> WordTrace:
    """The word's vectors (the mean over its tokens) and where it looks, layer by layer."""
    numbers = find_word(look_input, word)
    with eval_mode(look_input.model), _capture_layer_outputs(look_input.model) as outputs:
        _run_encoder(look_input)
    vectors = [x[0, numbers].mean(0).float().cpu() for x in outputs]
    side = "encoder" if look_input.is_autoregressive and not look_input.continues_input else ""
    if look_input.is_autoregressive:  # what it reads is asked about, so it need not write
        look_input = replace(look_input, target=() if look_input.continues_input else (0,))
    maps = [m for m in look_at(look_input).maps if m.kind == "self" and m.side == side]
    return WordTrace(vectors, [_most_attended(m, look_input, numbers) for m in maps])


def find_word(look_input: LookInput, word: str) -> list[int]:
    """The tokens of a word, or an error with the words that there are."""
    axis, groups = look_input.input_axis.group_words(look_input.texts)
    names = [_normalize_word(name) for name in axis.names]
    if _normalize_word(word) not in names:
        raise UsageError(f"There is no word {word!r} in {look_input.texts[0]!r}; {suggest(word, names)}")
    return groups[names.index(_normalize_word(word))]


def _normalize_word(word: str) -> str:
    return word.strip(" .,;:!?\"'()").lower()


def _most_attended(
    attention_map: AttentionMap, look_input: LookInput, positions: Sequence[int], count: int = 3
) -> WeightedWords:
    """What the word looks at most, in words, the mean over the heads and over its tokens."""
    row = attention_map.mean[list(positions)].mean(0)[: len(look_input.input_axis)]
    axis, groups = look_input.input_axis.group_words(look_input.texts)
    sums = torch.stack([row[group].sum() for group in groups])
    best = sums.topk(min(count, len(sums)))
    return tuple((axis.names[i], w) for i, w in zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _run_encoder(look_input: LookInput) -> None:
    """One pass over what is read, and nothing more."""
    model = look_input.model
    batch = look_input.batch.to(next(model.parameters()).device)
    if not look_input.is_autoregressive:
        model.body(batch)
        return
    state, first = model.start(batch)
    if look_input.continues_input:
        model.autoregressive_body.hidden_states(Text(first.tokens), state)


@contextmanager
def _capture_layer_outputs(model: Model) -> Iterator[list[Tensor]]:
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
