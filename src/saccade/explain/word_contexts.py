"""Comparison of a word in two contexts, layer by layer: the similarity of its two vectors, and what it attends to in each.

for layer in compare_contexts(model, "the bank of the river", "the bank raised its rates", "bank"):
    print(layer)
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

WeightedWords = tuple[tuple[str, float], ...]  # words with their attention weights


@dataclass(frozen=True)
class LayerComparison:
    """A word after one layer: similarity and distance of its two vectors, and what it attends to most in each context."""

    layer: int  # 0: before the first layer
    cosine_similarity: float
    relative_distance: float  # Euclidean distance divided by the mean norm
    first_attended: WeightedWords = ()
    second_attended: WeightedWords = ()

    def __str__(self) -> str:
        first, second = (
            ", ".join(f"{name} {weight:.2f}" for name, weight in words)
            for words in (self.first_attended, self.second_attended)
        )
        attended = f"   attends to {first}   |   {second}" if self.first_attended or self.second_attended else ""
        similarity = f"cosine similarity {self.cosine_similarity:.3f}, relative distance {self.relative_distance:.2f}"
        return f"layer {self.layer}: {similarity}{attended}"


@dataclass(frozen=True, eq=False)
class WordTrace:
    """A word in one context: its vector before the first and after each layer, and what it attends to in each layer."""

    vectors: list[Tensor]
    attended_words: list[WeightedWords]


def compare_contexts(model: Model | str, first: str, second: str, word: str) -> list[LayerComparison]:
    """Compare a word that occurs in both texts, in all layers that encode the text."""
    traces = [trace_word(make_input(*open_with_task(model), text), word) for text in (first, second)]
    comparisons = []
    for layer, (a, b) in enumerate(zip(traces[0].vectors, traces[1].vectors, strict=True)):
        similarity = float(F.cosine_similarity(a, b, dim=0))
        distance = float((a - b).norm() / ((a.norm() + b.norm()) / 2).clamp(min=1e-9))
        words = [trace.attended_words for trace in traces]
        attended = [layers[layer - 1] if 0 < layer <= len(layers) else () for layers in words]
        comparisons.append(LayerComparison(layer, similarity, distance, *attended))
    return comparisons


def trace_word(look_input: LookInput, word: str) -> WordTrace:
    """The vectors of a word, as the mean over its tokens, and what it attends to, layer by layer."""
    positions = find_word(look_input, word)
    with eval_mode(look_input.model), _capture_layer_outputs(look_input.model) as outputs:
        _run_encoder(look_input)
    vectors = [x[0, positions].mean(0).float().cpu() for x in outputs]
    side = "encoder" if look_input.is_autoregressive and not look_input.continues_input else ""
    if look_input.is_autoregressive:  # only its input matters, so it generates nothing
        look_input = replace(look_input, target=() if look_input.continues_input else (0,))
    maps = [m for m in look_at(look_input).maps if m.kind == "self" and m.side == side]
    return WordTrace(vectors, [_most_attended(m, look_input, positions) for m in maps])


def find_word(look_input: LookInput, word: str) -> list[int]:
    """The positions of the tokens of a word."""
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
    """The words that a word attends to most, by the mean weight over the heads and over its tokens."""
    row = attention_map.mean[list(positions)].mean(0)[: len(look_input.input_axis)]
    axis, groups = look_input.input_axis.group_words(look_input.texts)
    sums = torch.stack([row[group].sum() for group in groups])
    largest = sums.topk(min(count, len(sums)))
    return tuple((axis.names[i], w) for i, w in zip(largest.indices.tolist(), largest.values.tolist(), strict=True))


def _run_encoder(look_input: LookInput) -> None:
    """One forward pass over the input only."""
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
    """Capture the input of the first layer that encodes the text, and the output of each of these layers."""
    outputs: list[Tensor] = []
    capabilities = model.capabilities
    paths = [path for path in capabilities.layers if capabilities.side_of(f"{path}.") in ("", "encoder")]
    layers = [layer for path in paths for layer in model.body.get_submodule(path).children()]
    if not layers:
        raise ModelError(f"{model.family.name} has no layers that encode a text.")

    def capture_input(_: nn.Module, args: tuple[Any, ...]) -> None:
        outputs.append(args[0])

    def capture_output(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        outputs.append(output)

    handles = [layer.register_forward_hook(capture_output) for layer in layers]
    handles.append(layers[0].register_forward_pre_hook(capture_input))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
