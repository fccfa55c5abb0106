"""The lesson on one vector for a whole sentence: how many words can be read back from it, and from attention."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention import AttentionPool, Dot
from saccade.lessons.base import Control, Lesson, LessonResult, LineChart, Table, pluralize
from saccade.lessons.common import build_seeded, draw_normal
from saccade.parts.position import Sinusoidal
from saccade.parts.recurrent import Recurrent

VOCAB, MAX_WORDS, SENTENCE_COUNT, HELD_OUT_COUNT = (
    8,
    32,
    600,
    200,
)  # the last `HELD` sentences are not fitted, only read back
LENGTHS = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32)
ATTENTION_LENGTHS = (1, 8, 16, 32)  # attention is flat, so it needs fewer points
RIDGE_PENALTY = 1e-2
SHARPNESS = 8.0  # how much a query prefers its own position


@dataclass(frozen=True)
class EncodedSentences:
    """Random sentences, and what a recurrent layer has made of them after each word."""

    tokens: Tensor  # (S, L), numbers of words
    states: Tensor  # (S, L, U)


def encode_sentences(units: int) -> EncodedSentences:
    """Let a GRU that was never trained read random sentences."""
    random = torch.Generator().manual_seed(0)
    words = torch.randint(VOCAB, (SENTENCE_COUNT, MAX_WORDS), generator=random)
    layer = build_seeded(lambda: Recurrent(VOCAB, units, "gru"))
    with torch.no_grad():
        return EncodedSentences(words, layer(draw_normal(1, VOCAB, VOCAB)[words]))


def probe_accuracy(states: Tensor, tokens: Tensor, held_out: int = HELD_OUT_COUNT) -> Tensor:
    """How often a linear map of `seen` (S, U) tells each of the `words` (S, n), in the last `held` rows, which it never saw."""
    x = F.pad(states, (0, 1), value=1.0)
    y = F.one_hot(tokens, VOCAB).flatten(1).float()  # (S, n·V)
    fit, gold = x[:-held_out], y[:-held_out]
    solved = torch.linalg.solve(fit.mT @ fit + RIDGE_PENALTY * torch.eye(fit.size(1), dtype=fit.dtype), fit.mT @ gold)
    said = (x[-held_out:] @ solved).unflatten(1, (-1, VOCAB)).argmax(-1)
    return (said == tokens[-held_out:]).float().mean(0)


def compute_contexts(states: Tensor) -> Tensor:
    """What attention brings back when each position is asked for, (S, n, U): the keys are positions, the values states."""
    place = Sinusoidal(16, base=100.0).to_matrix(states.size(1)) * SHARPNESS
    answers, _ = AttentionPool(Dot())(place, place.expand(len(states), -1, -1), states)
    return answers


def probe_attention(encoded: EncodedSentences, length: int) -> float:
    """The share of words read back from the contexts, by one linear map for all positions."""
    found, words = compute_contexts(encoded.states[:, :length]), encoded.tokens[:, :length]
    return probe_accuracy(found.flatten(0, 1), words.reshape(-1, 1), HELD_OUT_COUNT * length).item()


def compute_bottleneck(settings: dict[str, str]) -> LessonResult:
    """Words read back by length, from the last state and from attention over all states."""
    units, length = int(float(settings["units"])), int(float(settings["length"]))
    seen = encode_sentences(units)
    lengths = sorted({*LENGTHS, length})
    each = {n: probe_accuracy(seen.states[:, n - 1], seen.tokens[:, :n]) for n in lengths}
    last = {n: shares.mean().item() for n, shares in each.items()}
    attention = probe_attention(seen, length)
    lines = {
        "last state": [(float(n), share) for n, share in last.items()],
        "attention": [(float(n), probe_attention(seen, n)) for n in sorted({*ATTENTION_LENGTHS, length})],
        "guessing": [(1.0, 1 / VOCAB), (float(MAX_WORDS), 1 / VOCAB)],
    }
    places = [(float(place + 1), share) for place, share in enumerate(each[length].tolist())]
    ends = f"the first in {places[0][1]:.0%} of the sentences, the last in {places[-1][1]:.0%}"
    said = (
        f"In sentences of {pluralize(length, 'word')}, {last[length]:.0%} of the words can be read back from one vector of {units} "
        f"numbers: {ends}. With attention over the {pluralize(length, 'state')} it is {attention:.0%}."
    )
    rows = [[str(n), f"{share:.0%}"] for n, share in last.items() if n in LENGTHS[::2]]
    return LessonResult(
        said,
        [
            LineChart("words read back", "words of the sentence", "share that is right", lines),
            LineChart(
                "from the last state, word by word", "place of the word", "share that is right", {"last state": places}
            ),
            Table(f"from one vector of {units} numbers", ["words", "read back"], rows),
        ],
    )


LESSONS = (
    Lesson(
        name="bottleneck",
        title="The fixed-vector bottleneck of sequence-to-sequence models",
        description="The first neural translators read a sentence into one vector and wrote from that alone. Cho et al. showed in 2014 "
        "that they fail on long sentences; Bahdanau, Cho and Bengio then let the writer look at all states of the reader, "
        "anew for each word. Here a recurrent layer "
        "reads random sentences, and a linear map, fitted on some and tried on others, tells the words: from the last "
        "state, or from what attention brings back when their positions are asked for. Training packs a vector better; it "
        "does not make it longer.",
        formula="one vector: c = h(n);   attention: c(t) = Σᵢ a(t, i) h(i)",
        code=(Recurrent, AttentionPool, probe_accuracy, compute_contexts),
        controls=(
            Control("units", "Numbers of the vector", "range", "32", 8, 96, 8),
            Control("length", "Words of the sentence", "range", "16", 1, MAX_WORDS, 1),
        ),
        compute=compute_bottleneck,
    ),
)
