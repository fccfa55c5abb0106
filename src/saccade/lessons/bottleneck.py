"""The lesson on the fixed-vector bottleneck: how many words a linear probe recovers from the last state, and from attention."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention import AttentionPool, Dot
from saccade.lessons.base import Control, Lesson, LessonResult, LineChart, Table, pluralize
from saccade.lessons.common import build_seeded, draw_normal
from saccade.parts.position import Sinusoidal
from saccade.parts.recurrent import Recurrent

VOCAB, MAX_WORDS = 8, 32
SENTENCE_COUNT, HELD_OUT_COUNT = 600, 200  # the last HELD_OUT_COUNT sentences test the probe
LENGTHS = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32)
ATTENTION_LENGTHS = (1, 8, 16, 32)  # its accuracy is nearly constant, so few points are enough
RIDGE_PENALTY = 1e-2
SHARPNESS = 8.0  # scale of the position vectors: how strongly a query prefers its own position


@dataclass(frozen=True)
class EncodedSentences:
    """Random sentences, and the state of a recurrent layer after each word."""

    tokens: Tensor  # token ids, (S, L)
    states: Tensor  # (S, L, U)


def encode_sentences(units: int) -> EncodedSentences:
    """Encode random sentences with an untrained GRU."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCAB, (SENTENCE_COUNT, MAX_WORDS), generator=generator)
    layer = build_seeded(lambda: Recurrent(VOCAB, units, "gru"))
    with torch.no_grad():
        return EncodedSentences(tokens, layer(draw_normal(1, VOCAB, VOCAB)[tokens]))


def probe_accuracy(states: Tensor, tokens: Tensor, held_out: int = HELD_OUT_COUNT) -> Tensor:
    """Accuracy of a linear probe (ridge regression) from `states` (S, U) to each of `tokens` (S, n) on `held_out` rows, (n,)."""
    x = F.pad(states, (0, 1), value=1.0)
    y = F.one_hot(tokens, VOCAB).flatten(1).float()  # (S, n·V)
    x_fit, y_fit = x[:-held_out], y[:-held_out]
    ridge = RIDGE_PENALTY * torch.eye(x.size(1), dtype=x.dtype)
    solution = torch.linalg.solve(x_fit.mT @ x_fit + ridge, x_fit.mT @ y_fit)
    predicted = (x[-held_out:] @ solution).unflatten(1, (-1, VOCAB)).argmax(-1)
    return (predicted == tokens[-held_out:]).float().mean(0)


def compute_contexts(states: Tensor) -> Tensor:
    """Context vectors for a query at each position, (S, n, U): the keys are position vectors, the values are the states."""
    positions = Sinusoidal(16, base=100.0).to_matrix(states.size(1)) * SHARPNESS
    contexts, _ = AttentionPool(Dot())(positions, positions.expand(len(states), -1, -1), states)
    return contexts


def probe_attention(encoded: EncodedSentences, length: int) -> float:
    """Accuracy of one linear probe, the same for all positions, from the context vectors of attention."""
    contexts, tokens = compute_contexts(encoded.states[:, :length]), encoded.tokens[:, :length]
    return probe_accuracy(contexts.flatten(0, 1), tokens.reshape(-1, 1), HELD_OUT_COUNT * length).item()


def compute_bottleneck(settings: dict[str, str]) -> LessonResult:
    """Accuracy of the probe by sentence length, from the last state and from attention over all states."""
    units, length = int(float(settings["units"])), int(float(settings["length"]))
    encoded = encode_sentences(units)
    lengths = sorted({*LENGTHS, length})
    by_position = {n: probe_accuracy(encoded.states[:, n - 1], encoded.tokens[:, :n]) for n in lengths}
    last_state = {n: accuracies.mean().item() for n, accuracies in by_position.items()}
    attention = probe_attention(encoded, length)
    lines = {
        "last state": [(float(n), accuracy) for n, accuracy in last_state.items()],
        "attention": [(float(n), probe_attention(encoded, n)) for n in sorted({*ATTENTION_LENGTHS, length})],
        "chance": [(1.0, 1 / VOCAB), (float(MAX_WORDS), 1 / VOCAB)],
    }
    points = [(float(i + 1), accuracy) for i, accuracy in enumerate(by_position[length].tolist())]
    ends = f"the first word in {points[0][1]:.0%} of the sentences, the last word in {points[-1][1]:.0%}"
    summary = (
        f"In sentences of {pluralize(length, 'word')}, a linear probe recovers {last_state[length]:.0%} of the words from one "
        f"vector of {units} numbers: {ends}. From attention over {pluralize(length, 'state')} it recovers {attention:.0%}."
    )
    rows = [[str(n), f"{accuracy:.0%}"] for n, accuracy in last_state.items() if n in LENGTHS[::2]]
    return LessonResult(
        summary,
        [
            LineChart("words recovered by the probe", "sentence length in words", "accuracy", lines),
            LineChart("from the last state, by word", "position of the word", "accuracy", {"last state": points}),
            Table(f"from one vector of {units} numbers", ["words", "accuracy"], rows),
        ],
    )


LESSONS = (
    Lesson(
        name="bottleneck",
        title="The fixed-vector bottleneck of sequence-to-sequence models",
        description="The first neural translation models encoded a sentence into one vector and generated the translation from "
        "that vector alone. Cho et al. (2014) showed that their quality drops on long sentences; Bahdanau, Cho and Bengio "
        "(2014) then let the decoder attend to all encoder states, anew for each word. Here an untrained recurrent layer "
        "encodes random sentences. A linear probe, fitted on some sentences and tested on others, predicts each word from the "
        "last state, or from the context vector of attention for the position of the word. Training makes better use of the "
        "vector, but cannot make it larger.",
        formula="one vector: c = h(n);   attention: c(t) = Σᵢ a(t, i) h(i)",
        code=(Recurrent, AttentionPool, probe_accuracy, compute_contexts),
        controls=(
            Control("units", "Size of the vector", "range", "32", 8, 96, 8),
            Control("length", "Sentence length in words", "range", "16", 1, MAX_WORDS, 1),
        ),
        compute=compute_bottleneck,
    ),
)
