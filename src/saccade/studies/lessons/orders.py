"""Lessons on order: hide the future, and permute a sentence with and without positions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import CAUSAL, FULL, Causal, ScaledDot, Sight
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, layer
from saccade.parts.multihead import Attention
from saccade.parts.position import POSITIONS, Sinusoidal, position
from saccade.parts.stack import Stack
from saccade.studies.lessons.lesson import Bars, Control, Lesson, Map, Shown, figure
from saccade.studies.lessons.sentences import DOGS, MOST, drawn, looked, read, squared, typed, vectors

WIDTH, HEADS = 16, 2
OTHER = "elephants"  # what takes the place of a word
ROUNDING = 1e-5  # of an output's length: what single precision leaves of sums that are taken in another order
SCHEMES = tuple(entry.name for entry in POSITIONS if not entry.name.startswith("grid"))  # grids are for pictures


def future(given: dict[str, str]) -> Shown:
    """Where each word of a sentence looks, with the future open and hidden, and what a replaced word moves."""
    words, remark = read(given["text"])
    at = min(int(float(given["word"])), len(words)) - 1
    changed = [*words[:at], OTHER, *words[at + 1 :]]
    attention = drawn(lambda: Attention(WIDTH, 1))
    maps, changes = {}, {}
    for name, pattern in (("everything is seen", FULL), ("the future is hidden", CAUSAL)):
        with torch.no_grad():
            before, after = (attention(vectors(text, WIDTH), Sight(pattern))[0] for text in (words, changed))
        changes[name] = (after - before).norm(dim=-1)
        maps[name] = looked(attention, vectors(words, WIDTH), Sight(pattern))[0]
    seen, hidden = (change > 1e-6 for change in changes.values())
    said = (
        f"Word {at + 1}, {words[at]!r}, is replaced by {OTHER!r}: {int(seen.sum())} of {len(words)} outputs move, "
        f"{int(seen[:at].sum())} of them before the word; with the future hidden {int(hidden.sum())} move, "
        f"{int(hidden[:at].sum())} before it.{remark}"
    )
    far = max(change.max().item() for change in changes.values())
    return Shown(
        said,
        [
            *(squared(f"who looks at whom: {name}", one, words, top=1.0) for name, one in maps.items()),
            *(Bars(f"how far each output moves: {name}", words, one.tolist(), far) for name, one in changes.items()),
        ],
        limits={"word": len(words)},
    )


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
    size = found.before.norm(dim=-1).mean().item()
    moved, far = (found.moved() / size).tolist(), torch.cdist(found.before, found.after) / size
    apart = (found.after.mean(0) - found.before.mean(0)).norm().item() / size
    if new == words:
        seen = "nothing can move, since both orders are the same"
    elif max(moved) < ROUNDING:
        seen = (
            "the outputs are the old ones in the new order: no output differs by more than "
            f"{figure(max(moved), 1)} of its length, which is rounding, so nothing noticed that the words moved"
        )
        if given["positions"] == "alibi":
            seen += "; ALiBi counts distances, which are the same from either end"
    else:
        seen = f"the outputs move by {sum(moved) / len(moved):.0%} of their length on average: the order is seen"
    moved = [value if value >= ROUNDING else 0.0 for value in moved]
    apart = apart if apart >= ROUNDING else 0.0
    said = (
        f"“{' '.join(words)}” against “{' '.join(new)}”, positions: {given['positions']}. In the second reading "
        f"{seen}.{remark}"
    )
    places = [f"{i + 1} {word}" for i, word in enumerate(new)]
    return Shown(
        said,
        [
            Map(
                "distance of every output before from every output after, in lengths of an output",
                far.tolist(),
                words,
                new,
            ),
            Bars("how far each word's output moved, as a share of its length", places, moved, top=max(1.0, *moved)),
            Bars("how far the mean of all outputs moved", ["mean"], [apart], top=1.0),
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
        formula="weights = softmax(Q Kᵀ / √d + M),   Mᵢⱼ = 0 where j ≤ i, else -∞",
        code=(Causal, ScaledDot, Sight.mask),
        controls=(typed(DOGS), Control("word", "The number of the word that is replaced", "range", "6", 1, MOST, 1)),
        draw=future,
    ),
    Lesson(
        name="permutation",
        title="Attention does not see order",
        said="“All dogs are smart and some are dumb” and “All dogs are dumb and some are smart” have the same words. "
        "Attention asks how well a query matches each key, and never where the key stands, and the feed-forward part of a "
        "layer reads each word alone: permute the words, and the same outputs come out, permuted. That is right for a set "
        "and wrong for a sentence, so positions are added to the words, or turned into queries and keys, or into the scores.",
        formula="without positions: layer(P x) = P layer(x) for every permutation P",
        code=(Layer, Attention, FeedForward, Sinusoidal),
        controls=(
            typed(DOGS),
            Control("order", "The second order", "choice", "two words swapped", choices=tuple(orders(2))),
            Control("positions", "How order is seen", "choice", "none", choices=SCHEMES),
        ),
        draw=permutation,
    ),
)
