"""The lesson on several heads: one layer of attention whose heads were set by hand, or drawn at random."""

from collections.abc import Callable

import torch
from torch import Tensor

from saccade.attention import FULL, Sight
from saccade.lessons.base import Control, Figure, Lesson, LessonResult, Table
from saccade.lessons.common import (
    build_seeded,
    make_text_control,
    make_word_heatmap,
    make_word_vectors,
    split_words,
    watch_weights,
)
from saccade.parts.multihead_attention import Attention, Projections
from saccade.parts.position import ConcatPosition, Sinusoidal

HEAD_WIDTH = 16  # the width of a head, of a word's vector and of a position's, which stand side by side
SHARPNESS = 40.0  # how much a head set by hand prefers what it looks for
SINUSOIDS = Sinusoidal(HEAD_WIDTH, base=100.0)

HeadWeights = tuple[Tensor, Tensor, Tensor]  # query (D, W), its bias (D,), and key (D, W)


def project_position(matrix: Tensor) -> Tensor:
    """A projection that reads the position, (D, W)."""
    return torch.cat([torch.zeros(HEAD_WIDTH, HEAD_WIDTH), matrix.float()], dim=1)


def make_offset_head(offset: int) -> HeadWeights:
    """A head that looks `offset` positions on: the query is its own position, moved by the shift matrix."""
    return (
        project_position(SINUSOIDS.make_shift_matrix(offset)) * SHARPNESS,
        torch.zeros(HEAD_WIDTH),
        project_position(torch.eye(HEAD_WIDTH)),
    )


def make_first_word_head() -> HeadWeights:
    """A head that looks at the first word, whoever asks: the query is a constant."""
    return (
        torch.zeros(HEAD_WIDTH, 2 * HEAD_WIDTH),
        SINUSOIDS.to_matrix(1)[0] * SHARPNESS,
        project_position(torch.eye(HEAD_WIDTH)),
    )


def make_same_word_head() -> HeadWeights:
    """A head that looks for the word itself: query and key are the word's vector."""
    word = torch.cat([torch.eye(HEAD_WIDTH), torch.zeros(HEAD_WIDTH, HEAD_WIDTH)], dim=1)
    return word * 4, torch.zeros(HEAD_WIDTH), word


HEAD_MAKERS: dict[str, Callable[[], HeadWeights]] = {
    "the word before": lambda: make_offset_head(-1),
    "the word after": lambda: make_offset_head(1),
    "the first word": make_first_word_head,
    "the same word": make_same_word_head,
}


def set_heads_by_hand(attention: Attention) -> None:
    """Set queries and keys of all heads."""
    queries, biases, keys = zip(*(setting() for setting in HEAD_MAKERS.values()), strict=True)
    attention.query.weight.data = torch.cat(queries)
    attention.query.bias.data = torch.cat(biases)
    attention.key.weight.data = torch.cat(keys)


def compute_heads(settings: dict[str, str]) -> LessonResult:
    """Where each head looks, and where one head would look that did the work of all."""
    words, remark = split_words(settings["text"])
    names, attention = (
        list(HEAD_MAKERS),
        build_seeded(
            lambda: Attention(2 * HEAD_WIDTH, len(HEAD_MAKERS), projections=Projections(head_width=HEAD_WIDTH))
        ),
    )
    if settings["heads"] == "set by hand":
        set_heads_by_hand(attention)
    else:
        names = [f"head {number + 1}" for number in range(len(HEAD_MAKERS))]
    x = ConcatPosition(SINUSOIDS).add_to_input(make_word_vectors(words, HEAD_WIDTH), torch.arange(len(words))[None])
    weights = watch_weights(attention, x, Sight(FULL))  # (H, L, L)
    at = min(2, len(words) - 1)
    best = weights.max(-1)
    seen = [
        f"{name}: {words[int(i)]!r} ({share:.0%})"
        for name, i, share in zip(names, best.indices[:, at], best.values[:, at], strict=True)
    ]
    mean = weights.mean(0)
    said = f"From {words[at]!r}: {', '.join(seen)}. The mean of the four gives at most {mean[at].max():.0%} to one word.{remark}"
    rows = [[word, *(words[i] for i in best.indices[:, row].tolist())] for row, word in enumerate(words)]
    maps: list[Figure] = [make_word_heatmap(name, one, words, 1.0) for name, one in zip(names, weights, strict=True)]
    table = Table("where each head looks most", ["from", *names], rows)
    return LessonResult(said, [*maps, make_word_heatmap("the mean of all heads", mean, words, 1.0), table])


LESSONS = (
    Lesson(
        name="heads",
        title="Multi-head attention",
        description="Which words should “like” look at in “Time flies like an arrow”? Its neighbours, for the grammar; time and "
        "arrow, for the sense. One softmax has one best place, and a mean of several wishes is none of them. So the layer "
        "looks several times at once, each head with queries and keys of its own. Here four heads were set by hand: two "
        "shift the position by a matrix, one always asks for the first, one compares words. At either end, where there is no "
        "word before or after, the nearest position wins, which is the word's own. Choose random heads to see how little "
        "they tell before training.",
        formula="headᵢ = attention(x Wᵢ_Q, x Wᵢ_K, x Wᵢ_V),   output = [head₁ … headₕ] W_O",
        code=(Attention, make_offset_head, make_first_word_head, make_same_word_head),
        controls=(
            make_text_control("Time flies like an arrow, fruit flies like a banana"),
            Control("heads", "How the heads came about", "choice", "set by hand", choices=("set by hand", "random")),
        ),
        compute=compute_heads,
    ),
)
