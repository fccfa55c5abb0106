"""Lessons on order: hide the future, and permute a sentence with and without positions."""

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
REPLACEMENT_WORD = "elephants"  # what takes the place of a word
ROUNDING_TOLERANCE = 1e-5  # of an output's length: what single precision leaves of sums that are taken in another order
POSITION_SCHEMES = tuple(entry.name for entry in POSITIONS if not entry.name.endswith("grid"))  # grids are for pictures


def compute_future(settings: dict[str, str]) -> LessonResult:
    """Where each word of a sentence looks, with the future open and hidden, and what a replaced word moves."""
    words, remark = split_words(settings["text"])
    at = min(int(float(settings["word"])), len(words)) - 1
    changed = [*words[:at], REPLACEMENT_WORD, *words[at + 1 :]]
    attention = build_seeded(lambda: Attention(WIDTH, 1))
    maps, changes = {}, {}
    for name, pattern in (("everything is seen", FULL), ("the future is hidden", CAUSAL)):
        with torch.no_grad():
            before, after = (attention(make_word_vectors(text, WIDTH), Sight(pattern))[0] for text in (words, changed))
        changes[name] = (after - before).norm(dim=-1)
        maps[name] = watch_weights(attention, make_word_vectors(words, WIDTH), Sight(pattern))[0]
    seen, hidden = (change > 1e-6 for change in changes.values())
    said = (
        f"Word {at + 1}, {words[at]!r}, is replaced by {REPLACEMENT_WORD!r}: {int(seen.sum())} of {len(words)} outputs move, "
        f"{int(seen[:at].sum())} of them before the word; with the future hidden {int(hidden.sum())} move, "
        f"{int(hidden[:at].sum())} before it.{remark}"
    )
    far = max(change.max().item() for change in changes.values())
    return LessonResult(
        said,
        [
            *(make_word_heatmap(f"who looks at whom: {name}", one, words, vmax=1.0) for name, one in maps.items()),
            *(
                BarChart(f"how far each output moves: {name}", words, one.tolist(), far)
                for name, one in changes.items()
            ),
        ],
        control_limits={"word": len(words)},
    )


@dataclass(frozen=True)
class OrderComparison:
    """What a layer makes of a sentence, and of the same words in another order: (L, W) each, and who went where."""

    words: list[str]
    order: list[int]  # the old place of each new word
    outputs_before: Tensor
    outputs_after: Tensor

    def output_distances(self) -> Tensor:
        """How far the output of each word is from what it was in the old order, (L,), in the new order."""
        return (self.outputs_after - self.outputs_before[self.order]).norm(dim=-1)


def make_orders(count: int) -> dict[str, list[int]]:
    """Three other orders of `count` words; swapped are the one in the middle and the last."""
    swapped = list(range(count))
    middle = (count - 1) // 2
    swapped[middle], swapped[-1] = swapped[-1], swapped[middle]
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    return {"two words swapped": swapped, "reversed": list(range(count))[::-1], "shuffled": shuffled}


def make_stack(scheme: str, max_positions: int = MAX_WORDS) -> Stack:
    """One layer of the library that sees order by this scheme, built for texts up to `longest`."""

    def make() -> Stack:
        place = get_position(scheme).make(WIDTH, HEADS, max_positions)
        width = WIDTH + place.extra_width
        return Stack([make_layer(Attention(width, HEADS), FeedForward(width, 2 * width), width=width)], FULL, place)

    return build_seeded(make)


def compare_orders(words: list[str], order: list[int], scheme: str) -> OrderComparison:
    """One layer over both orders."""
    stack, x = make_stack(scheme), make_word_vectors(words, WIDTH)
    with torch.no_grad():
        return OrderComparison(words, order, stack(x)[0], stack(x[:, order])[0])


def compute_permutation(settings: dict[str, str]) -> LessonResult:
    """Read a sentence in two orders, and compare what comes out."""
    words, remark = split_words(settings["text"])
    found = compare_orders(words, make_orders(len(words))[settings["order"]], settings["positions"])
    new = [words[i] for i in found.order]
    size = found.outputs_before.norm(dim=-1).mean().item()
    moved, far = (
        (found.output_distances() / size).tolist(),
        torch.cdist(found.outputs_before, found.outputs_after) / size,
    )
    apart = (found.outputs_after.mean(0) - found.outputs_before.mean(0)).norm().item() / size
    if new == words:
        seen = "nothing can move, since both orders are the same"
    elif max(moved) < ROUNDING_TOLERANCE:
        seen = (
            "the outputs are the old ones in the new order: no output differs by more than "
            f"{format_significant(max(moved), 1)} of its length, which is rounding, so nothing noticed that the words moved"
        )
        if settings["positions"] == "alibi":
            seen += "; ALiBi counts distances, which are the same from either end"
    else:
        seen = f"the outputs move by {sum(moved) / len(moved):.0%} of their length on average: the order is seen"
    moved = [value if value >= ROUNDING_TOLERANCE else 0.0 for value in moved]
    apart = apart if apart >= ROUNDING_TOLERANCE else 0.0
    said = (
        f"“{' '.join(words)}” against “{' '.join(new)}”, positions: {settings['positions']}. In the second reading "
        f"{seen}.{remark}"
    )
    places = [f"{i + 1} {word}" for i, word in enumerate(new)]
    return LessonResult(
        said,
        [
            Heatmap(
                "distance of every output before from every output after, in lengths of an output",
                far.tolist(),
                words,
                new,
            ),
            BarChart(
                "how far each word's output moved, as a share of its length", places, moved, max_value=max(1.0, *moved)
            ),
            BarChart("how far the mean of all outputs moved", ["mean"], [apart], max_value=1.0),
        ],
    )


LESSONS = (
    Lesson(
        name="future",
        title="Causal masking",
        description="A model that writes must not see what it has not written yet. So that a whole text can still be read at "
        "once in training, the scores of all later words are set to minus infinity, and softmax gives them nothing: the map is "
        "empty above its diagonal. What comes later then cannot change what came before. Replace a word and see whose "
        "output moves.",
        formula="weights = softmax(Q Kᵀ / √d + M),   Mᵢⱼ = 0 where j ≤ i, else -∞",
        code=(Causal, ScaledDot, Sight.mask),
        controls=(
            make_text_control(EXAMPLE_SENTENCE),
            Control("word", "The number of the word that is replaced", "range", "6", 1, MAX_WORDS, 1),
        ),
        compute=compute_future,
    ),
    Lesson(
        name="permutation",
        title="Attention is permutation-equivariant: why positions are needed",
        description="“All dogs are smart and some are dumb” and “All dogs are dumb and some are smart” have the same words. "
        "Attention asks how well a query matches each key, and never where the key stands, and the feed-forward part of a "
        "layer reads each word alone: permute the words, and the same outputs come out, permuted. That is right for a set "
        "and wrong for a sentence, so positions are added to the words, or turned into queries and keys, or into the scores.",
        formula="without positions: layer(P x) = P layer(x) for every permutation P",
        code=(Layer, Attention, FeedForward, Sinusoidal),
        controls=(
            make_text_control(EXAMPLE_SENTENCE),
            Control("order", "The second order", "choice", "two words swapped", choices=tuple(make_orders(2))),
            Control("positions", "How order is seen", "choice", "none", choices=POSITION_SCHEMES),
        ),
        compute=compute_permutation,
    ),
)
