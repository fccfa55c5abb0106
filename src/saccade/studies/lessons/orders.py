"""Lessons on order: hide the future, and permute a sentence with and without positions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import CAUSAL, FULL, Causal, ScaledDot, Sight
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import layer
from saccade.parts.multihead import Attention
from saccade.parts.position import POSITIONS, Sinusoidal, position
from saccade.parts.stack import Stack
from saccade.studies.lessons.lesson import Bars, Control, Lesson, Map, Shown
from saccade.studies.lessons.sentences import DOGS, MOST, drawn, looked, read, squared, typed, vectors

WIDTH, HEADS = 16, 2
OTHER = "elephants"  # what takes the place of a word


def future(given: dict[str, str]) -> Shown:
    """Where each word of a sentence looks, with the future open and hidden, and what a replaced word moves."""
    words, remark = read(given["text"])
    at = min(int(float(given["word"])), len(words)) - 1
    changed = [*words[:at], OTHER, *words[at + 1 :]]
    attention = drawn(lambda: Attention(WIDTH, 1))
    maps, bars, moved = [], [], {}
    for name, pattern in (("everything is seen", FULL), ("the future is hidden", CAUSAL)):
        with torch.no_grad():
            before, after = (attention(vectors(text, WIDTH), Sight(pattern))[0] for text in (words, changed))
        change = (after - before).norm(dim=-1)
        moved[name] = change > 1e-6
        weights = looked(attention, vectors(words, WIDTH), Sight(pattern))[0]
        maps.append(squared(f"who looks at whom: {name}", weights, words))
        bars.append(Bars(f"how far each output moves: {name}", words, change.tolist()))
    seen, hidden = moved.values()
    said = (
        f"With {words[at]!r} replaced by {OTHER!r}, {int(seen.sum())} of {len(words)} outputs move, {int(seen[:at].sum())} "
        f"of them before the word; with the future hidden {int(hidden.sum())} move, {int(hidden[:at].sum())} before it.{remark}"
    )
    return Shown(said, [*maps, *bars])


@dataclass(frozen=True)
class Readings:
    """What a layer makes of a sentence, and of the same words in another order: (L, W) each, and who went where."""

    words: list[str]
    order: list[int]  # the old place of each new word
    before: Tensor
    after: Tensor

    def moved(self) -> Tensor:
        """How far the output of each word is from what it was in the old order, (L,), in the new order."""
        return (self.after - self.before[self.order]).norm(dim=-1)


def orders(count: int) -> dict[str, list[int]]:
    """Three other orders of `count` words; swapped are the one in the middle and the last."""
    swapped = list(range(count))
    middle = (count - 1) // 2
    swapped[middle], swapped[-1] = swapped[-1], swapped[middle]
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    return {"two words swapped": swapped, "reversed": list(range(count))[::-1], "shuffled": shuffled}


def reader(scheme: str, longest: int = MOST) -> Stack:
    """One layer of the library that sees order by this scheme, built for texts up to `longest`."""

    def make() -> Stack:
        place = position(scheme).make(WIDTH, HEADS, longest)
        width = WIDTH + place.extra
        return Stack([layer(Attention(width, HEADS), FeedForward(width, 2 * width), width=width)], FULL, place)

    return drawn(make)


def readings(words: list[str], order: list[int], scheme: str) -> Readings:
    """One layer over both orders."""
    stack, x = reader(scheme), vectors(words, WIDTH)
    with torch.no_grad():
        return Readings(words, order, stack(x)[0], stack(x[:, order])[0])


def permutation(given: dict[str, str]) -> Shown:
    """Read a sentence in two orders, and compare what comes out."""
    words, remark = read(given["text"])
    found = readings(words, orders(len(words))[given["order"]], given["positions"])
    new = [words[i] for i in found.order]
    moved, far = found.moved(), torch.cdist(found.before, found.after)
    apart = (found.after.mean(0) - found.before.mean(0)).norm().item()
    share = moved.mean() / found.before.norm(dim=-1).mean()
    if moved.max() < 1e-4:
        seen = "the outputs are the old ones in the new order: nothing noticed that the words moved"
    else:
        seen = f"the outputs move by {share:.0%} of their length on average: the order is seen"
    said = (
        f"“{' '.join(words)}” against “{' '.join(new)}”, positions: {given['positions']}. In the second reading "
        f"{seen}.{remark}"
    )
    places = [f"{i + 1} {word}" for i, word in enumerate(new)]
    return Shown(
        said,
        [
            Map("distance of every output before from every output after", far.tolist(), words, new),
            Bars("how far each word's output moved", places, moved.tolist()),
            Bars("how far the mean of all outputs moved", ["mean"], [apart]),
        ],
    )


LESSONS = (
    Lesson(
        name="future",
        title="Hide the future",
        said="A model that writes must not see what it has not written yet. So that a whole text can still be read at once in "
        "training, the scores of all later words are set to minus infinity, and softmax gives them nothing: the map is "
        "empty above its diagonal. What comes later then cannot change what came before. Replace a word and see whose "
        "output moves.",
        formula="weights = softmax(q·kᵀ / √d + mask),   mask = 0 where key ≤ query, else -∞",
        code=(Causal, ScaledDot, Sight.mask),
        controls=(typed(DOGS), Control("word", "The number of the word that is replaced", "range", "6", 1, MOST, 1)),
        draw=future,
    ),
    Lesson(
        name="permutation",
        title="Attention does not see order",
        said="“All dogs are smart and some are dumb” and “All dogs are dumb and some are smart” have the same words. Attention "
        "asks how well a query matches each key, and never where the key stands: permute the words, and the same outputs "
        "come out, permuted. That is right for a set and wrong for a sentence, so positions are added to the words, or "
        "turned into queries and keys, or into the scores.",
        formula="attention(P x) = P attention(x) for every permutation P",
        code=(Attention, Sinusoidal),
        controls=(
            typed(DOGS),
            Control("order", "The second order", "choice", "two words swapped", choices=tuple(orders(2))),
            Control(
                "positions", "How order is seen", "choice", "none", choices=tuple(entry.name for entry in POSITIONS)
            ),
        ),
        draw=permutation,
    ),
)
