"""The lesson on multi-head attention: one layer whose heads were set by hand, or have random weights."""

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

HEAD_WIDTH = 16  # of a head, of a word vector and of a position vector, which are concatenated
SHARPNESS = 40.0  # scale of the queries of heads set by hand
SINUSOIDS = Sinusoidal(HEAD_WIDTH, base=100.0)

HeadWeights = tuple[Tensor, Tensor, Tensor]  # query (D, W), its bias (D,), and key (D, W)


def project_position(matrix: Tensor) -> Tensor:
    """A projection of the position vector by `matrix`, (D, W)."""
    return torch.cat([torch.zeros(HEAD_WIDTH, HEAD_WIDTH), matrix.float()], dim=1)


def make_offset_head(offset: int) -> HeadWeights:
    """A head that attends `offset` positions ahead: the query is the position vector times the shift matrix."""
    return (
        project_position(SINUSOIDS.make_shift_matrix(offset)) * SHARPNESS,
        torch.zeros(HEAD_WIDTH),
        project_position(torch.eye(HEAD_WIDTH)),
    )


def make_first_word_head() -> HeadWeights:
    """A head that always attends to the first word: the query is a constant."""
    return (
        torch.zeros(HEAD_WIDTH, 2 * HEAD_WIDTH),
        SINUSOIDS.to_matrix(1)[0] * SHARPNESS,
        project_position(torch.eye(HEAD_WIDTH)),
    )


def make_same_word_head() -> HeadWeights:
    """A head that attends to equal words: query and key are the word vector."""
    word = torch.cat([torch.eye(HEAD_WIDTH), torch.zeros(HEAD_WIDTH, HEAD_WIDTH)], dim=1)
    return word * 4, torch.zeros(HEAD_WIDTH), word


HEAD_MAKERS: dict[str, Callable[[], HeadWeights]] = {
    "previous word": lambda: make_offset_head(-1),
    "next word": lambda: make_offset_head(1),
    "first word": make_first_word_head,
    "same word": make_same_word_head,
}


def set_heads_by_hand(attention: Attention) -> None:
    """Set the query and key projections of all heads."""
    queries, biases, keys = zip(*(make_head() for make_head in HEAD_MAKERS.values()), strict=True)
    attention.query.weight.data = torch.cat(queries)
    attention.query.bias.data = torch.cat(biases)
    attention.key.weight.data = torch.cat(keys)


def compute_heads(settings: dict[str, str]) -> LessonResult:
    """The attention weights of each head, and their mean over heads."""
    words, remark = split_words(settings["text"])
    names, projections = list(HEAD_MAKERS), Projections(head_width=HEAD_WIDTH)
    attention = build_seeded(lambda: Attention(2 * HEAD_WIDTH, len(HEAD_MAKERS), projections=projections))
    if settings["heads"] == "set by hand":
        set_heads_by_hand(attention)
    else:
        names = [f"head {i + 1}" for i in range(len(HEAD_MAKERS))]
    x = ConcatPosition(SINUSOIDS).add_to_input(make_word_vectors(words, HEAD_WIDTH), torch.arange(len(words))[None])
    weights = watch_weights(attention, x, Sight(FULL))  # (H, L, L)
    query = min(2, len(words) - 1)
    best = weights.max(-1)
    peaks = [
        f"{name}: {words[int(i)]!r} ({weight:.0%})"
        for name, i, weight in zip(names, best.indices[:, query], best.values[:, query], strict=True)
    ]
    mean = weights.mean(0)
    summary = (
        f"Largest weights of the query {words[query]!r}: {', '.join(peaks)}. The mean of the four heads gives at most "
        f"{mean[query].max():.0%} to one word.{remark}"
    )
    rows = [[word, *(words[i] for i in best.indices[:, row].tolist())] for row, word in enumerate(words)]
    figures: list[Figure] = [
        make_word_heatmap(name, head, words, 1.0) for name, head in zip(names, weights, strict=True)
    ]
    table = Table("word with the largest weight in each head", ["query", *names], rows)
    return LessonResult(summary, [*figures, make_word_heatmap("mean of all heads", mean, words, 1.0), table])


LESSONS = (
    Lesson(
        name="heads",
        title="Multi-head attention",
        description="Which words should “like” attend to in “Time flies like an arrow”? To its neighbors, for the syntax; to "
        "time and arrow, for the meaning. A single attention function has to divide its weight among all of them, which "
        "blurs them. Multi-head attention therefore computes several attention functions in parallel: each head has its own "
        "queries, keys and values. The four heads here were set by hand: two shift the position by a matrix, one always "
        "attends to the first word, and one compares word vectors. The first word has no previous word and the last word no "
        "next word; there the nearest position gets the weight, which is that of the word itself. Choose random heads to see "
        "that heads have no such roles before training.",
        formula="headᵢ = attention(x Wᵢ_Q, x Wᵢ_K, x Wᵢ_V),   output = [head₁ … headₕ] W_O",
        code=(Attention, make_offset_head, make_first_word_head, make_same_word_head),
        controls=(
            make_text_control("Time flies like an arrow, fruit flies like a banana"),
            Control("heads", "Weights of the heads", "choice", "set by hand", choices=("set by hand", "random")),
        ),
        compute=compute_heads,
    ),
)
