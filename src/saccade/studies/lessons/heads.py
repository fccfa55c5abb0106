"""The lesson on several heads: one layer of attention whose heads were set by hand, or drawn at random."""

from collections.abc import Callable

import torch
from torch import Tensor

from saccade.attention import FULL, Sight
from saccade.parts.multihead import Attention, Projections
from saccade.parts.position import Concatenated, Sinusoidal
from saccade.studies.lessons.lesson import Control, Lesson, Picture, Shown, Table
from saccade.studies.lessons.sentences import drawn, looked, read, squared, typed, vectors

PART = 16  # the width of a head, of a word's vector and of a position's, which stand side by side
SHARP = 40.0  # how much a head set by hand prefers what it looks for
WAVES = Sinusoidal(PART, base=100.0)

Setting = tuple[Tensor, Tensor, Tensor]  # query (D, W), its bias (D,), and key (D, W)


def place(matrix: Tensor) -> Tensor:
    """A projection that reads the position, (D, W)."""
    return torch.cat([torch.zeros(PART, PART), matrix.float()], dim=1)


def away(offset: int) -> Setting:
    """A head that looks `offset` positions on: the query is its own position, moved by the shift matrix."""
    return place(WAVES.shift(offset)) * SHARP, torch.zeros(PART), place(torch.eye(PART))


def first() -> Setting:
    """A head that looks at the first word, whoever asks: the query is a constant."""
    return torch.zeros(PART, 2 * PART), WAVES.barcode(1)[0] * SHARP, place(torch.eye(PART))


def same() -> Setting:
    """A head that looks for the word itself: query and key are the word's vector."""
    word = torch.cat([torch.eye(PART), torch.zeros(PART, PART)], dim=1)
    return word * 4, torch.zeros(PART), word


HEADS: dict[str, Callable[[], Setting]] = {
    "the word before": lambda: away(-1),
    "the word after": lambda: away(1),
    "the first word": first,
    "the same word": same,
}


def by_hand(attention: Attention) -> None:
    """Set queries and keys of all heads."""
    queries, biases, keys = zip(*(setting() for setting in HEADS.values()), strict=True)
    attention.query.weight.data = torch.cat(queries)
    attention.query.bias.data = torch.cat(biases)
    attention.key.weight.data = torch.cat(keys)


def draw(given: dict[str, str]) -> Shown:
    """Where each head looks, and where one head would look that did the work of all."""
    words, remark = read(given["text"])
    names, attention = (
        list(HEADS),
        drawn(lambda: Attention(2 * PART, len(HEADS), projections=Projections(head_width=PART))),
    )
    if given["heads"] == "set by hand":
        by_hand(attention)
    else:
        names = [f"head {number + 1}" for number in range(len(HEADS))]
    x = Concatenated(WAVES).place(vectors(words, PART), torch.arange(len(words))[None])
    weights = looked(attention, x, Sight(FULL))  # (H, L, L)
    at = min(2, len(words) - 1)
    best = weights.max(-1)
    seen = [
        f"{name}: {words[int(i)]!r} ({share:.0%})"
        for name, i, share in zip(names, best.indices[:, at], best.values[:, at], strict=True)
    ]
    mean = weights.mean(0)
    said = f"From {words[at]!r}: {', '.join(seen)}. The mean of the four gives at most {mean[at].max():.0%} to one word.{remark}"
    rows = [[word, *(words[i] for i in best.indices[:, row].tolist())] for row, word in enumerate(words)]
    maps: list[Picture] = [squared(name, one, words, 1.0) for name, one in zip(names, weights, strict=True)]
    table = Table("where each head looks most", ["from", *names], rows)
    return Shown(said, [*maps, squared("the mean of all heads", mean, words, 1.0), table])


LESSONS = (
    Lesson(
        name="heads",
        title="Several heads see several things",
        said="Which words should “like” look at in “Time flies like an arrow”? Its neighbours, for the grammar; time and "
        "arrow, for the sense. One softmax has one best place, and a mean of several wishes is none of them. So the layer "
        "looks several times at once, each head with queries and keys of its own. Here four heads were set by hand: two "
        "shift the position by a matrix, one always asks for the first, one compares words. At either end, where there is no "
        "word before or after, the nearest position wins, which is the word's own. Choose random heads to see how little "
        "they tell before training.",
        formula="headᵢ = attention(x Wᵢ_Q, x Wᵢ_K, x Wᵢ_V),   output = [head₁ … headₕ] W_O",
        code=(Attention, away, first, same),
        controls=(
            typed("Time flies like an arrow, fruit flies like a banana"),
            Control("heads", "How the heads came about", "choice", "set by hand", choices=("set by hand", "random")),
        ),
        draw=draw,
    ),
)
