"""Lessons on word order: causal masking, and permutations of a sentence with and without positions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import CAUSAL, FULL, Causal, ScaledDot, Sight
from saccade.lessons.base import BarChart, Control, Heatmap, Lesson, LessonResult, format_significant
from saccade.lessons.common import (
    EXAMPLE_SENTENCE,
    MAX_WORDS,
    build_seeded,
    make_text_control,
    make_word_heatmap,
    make_word_vectors,
    split_words,
    watch_weights,
)
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import POSITIONS, Sinusoidal, get_position
from saccade.parts.stack import Stack

WIDTH, HEADS = 16, 2
REPLACEMENT_WORD = "elephants"  # replaces the chosen word
ROUNDING_TOLERANCE = 1e-5  # relative to the output norm: rounding errors of sums in another order, in single precision
POSITION_SCHEMES = tuple(entry.name for entry in POSITIONS if not entry.name.endswith("grid"))  # grids are for images


def compute_future(settings: dict[str, str]) -> LessonResult:
    """Attention weights with and without a causal mask, and the outputs that change when a word is replaced."""
    words, remark = split_words(settings["text"])
    index = min(int(float(settings["word"])), len(words)) - 1
    replaced = [*words[:index], REPLACEMENT_WORD, *words[index + 1 :]]
    attention = build_seeded(lambda: Attention(WIDTH, 1))
    weights, changes = {}, {}
    for name, pattern in (("no mask", FULL), ("causal mask", CAUSAL)):
        with torch.no_grad():
            before, after = (attention(make_word_vectors(text, WIDTH), Sight(pattern))[0] for text in (words, replaced))
        changes[name] = (after - before).norm(dim=-1)
        weights[name] = watch_weights(attention, make_word_vectors(words, WIDTH), Sight(pattern))[0]
    unmasked, masked = (change > 1e-6 for change in changes.values())
    summary = (
        f"Word {index + 1}, {words[index]!r}, is replaced by {REPLACEMENT_WORD!r}. Without a mask, {int(unmasked.sum())} of "
        f"{len(words)} outputs change, {int(unmasked[:index].sum())} of them before the word; with the causal mask, "
        f"{int(masked.sum())} of {len(words)} change, {int(masked[:index].sum())} of them before the word.{remark}"
    )
    largest = max(change.max().item() for change in changes.values())
    return LessonResult(
        summary,
        [
            *(make_word_heatmap(f"attention weights, {name}", one, words, vmax=1.0) for name, one in weights.items()),
            *(
                BarChart(f"change of each output, {name}", words, one.tolist(), largest)
                for name, one in changes.items()
            ),
        ],
        control_limits={"word": len(words)},
    )


@dataclass(frozen=True)
class OrderComparison:
    """The outputs of a layer for a sentence and for the same words in another order, (L, W) each."""

    words: list[str]
    order: list[int]  # the old index of each word in the new order
    outputs_before: Tensor
    outputs_after: Tensor

    def output_distances(self) -> Tensor:
        """The distance of each word's output from its output in the old order, (L,), in the new order."""
        return (self.outputs_after - self.outputs_before[self.order]).norm(dim=-1)


def make_orders(count: int) -> dict[str, list[int]]:
    """Three other orders of `count` words; the swap exchanges the middle word and the last one."""
    swapped = list(range(count))
    middle = (count - 1) // 2
    swapped[middle], swapped[-1] = swapped[-1], swapped[middle]
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    return {"two words swapped": swapped, "reversed": list(range(count))[::-1], "shuffled": shuffled}


def make_stack(scheme: str, max_positions: int = MAX_WORDS) -> Stack:
    """One encoder layer with this position scheme, built for texts of up to `max_positions` words."""

    def make() -> Stack:
        position = get_position(scheme).make(WIDTH, HEADS, max_positions)
        width = WIDTH + position.extra_width
        return Stack([make_layer(Attention(width, HEADS), FeedForward(width, 2 * width), width=width)], FULL, position)

    return build_seeded(make)


def compare_orders(words: list[str], order: list[int], scheme: str) -> OrderComparison:
    """Run one layer on both orders."""
    stack, x = make_stack(scheme), make_word_vectors(words, WIDTH)
    with torch.no_grad():
        return OrderComparison(words, order, stack(x)[0], stack(x[:, order])[0])


def compute_permutation(settings: dict[str, str]) -> LessonResult:
    """Compare the outputs of a layer for two orders of a sentence."""
    words, remark = split_words(settings["text"])
    orders = compare_orders(words, make_orders(len(words))[settings["order"]], settings["positions"])
    permuted = [words[i] for i in orders.order]
    norm = orders.outputs_before.norm(dim=-1).mean().item()
    changes = (orders.output_distances() / norm).tolist()
    distances = torch.cdist(orders.outputs_before, orders.outputs_after) / norm
    mean_change = (orders.outputs_after.mean(0) - orders.outputs_before.mean(0)).norm().item() / norm
    if permuted == words:
        verdict = "Both orders are the same, so nothing changes"
    elif max(changes) < ROUNDING_TOLERANCE:
        verdict = (
            f"The outputs are the same, permuted: none changes by more than {format_significant(max(changes), 1)} of its norm, "
            "which is rounding error, so the layer does not see the word order"
        )
        if settings["positions"] == "alibi":
            verdict += "; ALiBi depends on distances, which reversing does not change"
    else:
        average = sum(changes) / len(changes)
        verdict = f"The outputs change by {average:.0%} of their norm on average: the layer sees the word order"
    changes = [value if value >= ROUNDING_TOLERANCE else 0.0 for value in changes]
    mean_change = mean_change if mean_change >= ROUNDING_TOLERANCE else 0.0
    first, second = f"“{' '.join(words)}”", f"“{' '.join(permuted)}”"
    summary = f"First order: {first}; second order: {second}; positions: {settings['positions']}. {verdict}.{remark}"
    numbered = [f"{i + 1} {word}" for i, word in enumerate(permuted)]
    title = "distance between outputs, relative to their norm: rows in the first order, columns in the second"
    end = max(1.0, *changes)
    return LessonResult(
        summary,
        [
            Heatmap(title, distances.tolist(), words, permuted),
            BarChart("change of each word's output, relative to its norm", numbered, changes, max_value=end),
            BarChart("change of the mean of all outputs", ["mean"], [mean_change], max_value=1.0),
        ],
    )


LESSONS = (
    Lesson(
        name="future",
        title="Causal masking",
        description="A model that generates text must not attend to words that it has not generated yet. To train it on all "
        "positions of a text in parallel, causal masking sets the scores of all later words to minus infinity, so softmax "
        "gives them a weight of zero: the weight matrix is zero above its diagonal. A later word then cannot change the "
        "output of an earlier one. Replace a word to see which outputs change.",
        formula="weights = softmax(Q Kᵀ / √d + M),   Mᵢⱼ = 0 where j ≤ i, else -∞",
        code=(Causal, ScaledDot, Sight.mask),
        controls=(
            make_text_control(EXAMPLE_SENTENCE),
            Control("word", "Position of the word to replace", "range", "6", 1, MAX_WORDS, 1),
        ),
        compute=compute_future,
    ),
    Lesson(
        name="permutation",
        title="Attention is permutation-equivariant: why positions are needed",
        description="“All dogs are smart and some are dumb” and “All dogs are dumb and some are smart” have the same words. The "
        "score of a query and a key does not depend on their positions, and the feed-forward network processes each word "
        "separately: if the words are permuted, the outputs are the same, permuted. That is right for a set and wrong for a "
        "sentence. Position schemes therefore add position vectors to the word vectors, rotate queries and keys, or add a "
        "bias to the scores.",
        formula="without positions: layer(P x) = P layer(x) for every permutation P",
        code=(Layer, Attention, FeedForward, Sinusoidal),
        controls=(
            make_text_control(EXAMPLE_SENTENCE),
            Control("order", "Second order", "choice", "two words swapped", choices=tuple(make_orders(2))),
            Control("positions", "Position scheme", "choice", "none", choices=POSITION_SCHEMES),
        ),
        compute=compute_permutation,
    ),
)
