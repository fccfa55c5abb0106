"""Lessons on gating as attention over units or channels: LSTM, GRU, and squeeze-and-excitation."""

import math
import re

import numpy as np
import torch
from torch import Tensor

from saccade.data.samples.shapes import COLORS, IMAGE_SIZE, SHAPES, Scene, SceneObject, render_scene
from saccade.lessons.base import BarChart, Control, Figure, Heatmap, Image, Lesson, LessonResult
from saccade.lessons.common import build_seeded, make_text_control, make_word_vectors, split_words, watch_weights
from saccade.parts.recurrent import Recurrent, gru_cell, lstm_cell
from saccade.parts.squeeze_excite import SqueezeExcite
from saccade.parts.state import State

WORD_PATTERNS = {
    "opening bracket": r"[(\[«“]",
    "closing bracket": r"[)\]»”]",
    "negation": r"not|no|never|nothing|nobody|\w+n['’]t",
    "punctuation": r"[.,;:!?]",
}
UNIT_NAMES: tuple[str, ...] = ("inside brackets", "after a negation", "word count")
FORMULAS = {
    "LSTM": "c(t) = forget ⊙ c(t-1) + input ⊙ tanh(…),   h(t) = output ⊙ tanh(c(t))",
    "GRU": "h(t) = update ⊙ h(t-1) + (1 - update) ⊙ tanh(W x + reset ⊙ (U h(t-1)))",
}
OPEN_BIAS, SHUT_BIAS = 6.0, -12.0  # the bias of an open gate; the term that closes it when added
COLOR_BANDWIDTH = 40  # standard deviation of the response of a color channel, in RGB steps
COUNTER_STEP = 0.1  # increment of the counter for each word


def make_word_features(words: list[str]) -> Tensor:
    """The input of the LSTM set by hand, (1, L, 4): one feature for each pattern, 1 if the word matches it."""
    patterns = [re.compile(pattern, re.IGNORECASE) for pattern in WORD_PATTERNS.values()]
    return torch.tensor([[float(pattern.fullmatch(word) is not None) for pattern in patterns] for word in words])[None]


def make_fixed_lstm() -> Recurrent:
    """An LSTM with three units: two flags that are set and cleared, and a counter that is output at punctuation."""
    lstm = build_seeded(lambda: Recurrent(len(WORD_PATTERNS), len(UNIT_NAMES)))
    opening, closing, negation, punctuation = range(len(WORD_PATTERNS))  # features
    brackets, negated, counter = range(len(UNIT_NAMES))  # units
    for weight in lstm.fused.parameters():
        weight.data.zero_()
    # weights of the input gate, the forget gate, the candidate and the output gate, each (units, features)
    input_gate, forget_gate, _, output_gate = lstm.fused.weight_ih_l0.data.view(4, len(UNIT_NAMES), -1)
    biases = [
        [-OPEN_BIAS, -OPEN_BIAS, OPEN_BIAS],
        [OPEN_BIAS, OPEN_BIAS, OPEN_BIAS],
        [OPEN_BIAS, OPEN_BIAS, COUNTER_STEP],
        [OPEN_BIAS, OPEN_BIAS, -OPEN_BIAS],
    ]
    lstm.fused.bias_ih_l0.data.view(4, len(UNIT_NAMES)).copy_(torch.tensor(biases))
    input_gate[brackets, opening] = input_gate[negated, negation] = -SHUT_BIAS
    forget_gate[brackets, closing] = forget_gate[negated, punctuation] = SHUT_BIAS
    # a flag that is already set is replaced, so that it stays at one
    forget_gate[brackets, opening] = forget_gate[negated, negation] = SHUT_BIAS
    output_gate[counter, punctuation] = -SHUT_BIAS
    return lstm


def collect_memory(layer: Recurrent, x: Tensor) -> Tensor:
    """The state after each word, (L, U): c of an LSTM, h of a GRU."""
    state, rows = State(), []
    with torch.no_grad():
        for t in range(x.size(1)):
            layer(x[:, t : t + 1], None, state)
            rows.append(state.get("c" if layer.state_count == 2 else "h"))
    return torch.cat([row for row in rows if row is not None])


def compute_gates(settings: dict[str, str]) -> LessonResult:
    """The gates and the state of a recurrent layer over a sentence."""
    words, remark = split_words(settings["text"])
    if settings["cell"] == "LSTM set by hand":
        layer, x, units = make_fixed_lstm(), make_word_features(words), list(UNIT_NAMES)
    else:
        layer = build_seeded(lambda: Recurrent(16, 8, settings["cell"].split()[1].lower()))
        x, units = make_word_vectors(words, 16), [f"unit {number + 1}" for number in range(8)]
    gates, memory = watch_weights(layer, x), collect_memory(layer, x)  # (L, gates, U) and (L, U)
    averages = zip(layer.gates, gates.mean((0, 2)).tolist(), strict=True)
    summary = f"Average activation of the gates: {', '.join(f'{name} {average:.0%}' for name, average in averages)}."
    if settings["cell"] == "LSTM set by hand":
        flagged = [word for word, flag in zip(words, memory[:, 0].tolist(), strict=True) if flag > 0.5]
        summary += (
            f" The flag of the first unit is set during “{' '.join(flagged)}”." if flagged else " No bracket is opened."
        )
    figures: list[Figure] = [
        Heatmap(f"{name} gate", gates[:, i].T.tolist(), units, words, 1.0) for i, name in enumerate(layer.gates)
    ]
    figures.append(Heatmap("state after each word", memory.T.tolist(), units, words))
    return LessonResult(summary + remark, figures, formula=FORMULAS["GRU" if "GRU" in settings["cell"] else "LSTM"])


def make_color_channels(image: np.ndarray) -> Tensor:
    """A channel for each color, (1, C, rows, columns): close to one where a pixel has that color."""
    pixels = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)
    colors = torch.tensor(list(COLORS.values()), dtype=torch.float32)[:, :, None, None]
    return torch.exp(-0.5 * (pixels - colors).square().sum(1) / COLOR_BANDWIDTH**2)[None]


def explain_similar_channels(unexpected: list[str], settings: dict[str, str]) -> str:
    """Why a channel has a large weight although its color is not in the image: it also responds to similar colors."""
    explanation = ""
    for name in unexpected:
        colors = (settings["color"], settings["other"])
        similarity = {color: color_similarity(COLORS[name], COLORS[color]) for color in colors}
        best = max(similarity, key=lambda color: similarity[color])
        explanation += (
            f" Nothing in the image is {name}, but its channel responds with {similarity[best]:.0%} to the similar color {best}, "
            f"and the {best} shape is large enough."
        )
    return explanation


def color_similarity(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """The response of the channel of one color to a pixel of another: a Gaussian of their distance, 1 if they are equal."""
    return math.exp(-0.5 * sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / COLOR_BANDWIDTH**2)


def make_fixed_squeeze_excite(sharpness: float) -> SqueezeExcite:
    """Squeeze-and-excitation set by hand: the weight of a channel is above 1/2 if its mean is above 1/50."""
    count = len(COLORS)
    layer = build_seeded(lambda: SqueezeExcite(count, reduction=1))
    layer.squeeze.weight.data = torch.eye(count) * 50
    layer.excite.weight.data = torch.eye(count) * sharpness
    layer.excite.bias.data.fill_(-sharpness)
    return layer


def compute_squeeze(settings: dict[str, str]) -> LessonResult:
    """Squeeze-and-excitation over the color channels of an image of two shapes."""
    objects = (
        SceneObject(settings["shape"], settings["color"], "", 9.5, 16.0),
        SceneObject("circle", settings["other"], "large ", 23.5, 16.0),
    )
    image = render_scene(Scene(objects))
    x = make_color_channels(image)
    layer = make_fixed_squeeze_excite(float(settings["sharpness"]))
    with torch.no_grad():
        weights, out = layer.weights(x)[0], layer(x)[0]
    names, means = list(COLORS), x[0].mean((1, 2))
    index = names.index(settings["color"])
    passing = [name for name, weight in zip(names, weights.tolist(), strict=True) if weight > 0.5]
    unexpected = [name for name in passing if name not in (settings["color"], settings["other"])]
    summary = (
        f"The channel {settings['color']!r} covers {means[index].item():.1%} of the image and gets a weight of "
        f"{weights[index].item():.0%}. Channels with a weight above one half: {', '.join(passing) or 'none'}."
        f"{explain_similar_channels(unexpected, settings)}"
    )
    pixels = [str(i) for i in range(IMAGE_SIZE)]
    return LessonResult(
        summary,
        [
            Image("image", image.tolist()),
            BarChart("squeeze: mean of each channel", names, means.tolist()),
            BarChart("excitation: weight of each channel", names, weights.tolist(), max_value=1.0),
            Heatmap(f"channel {settings['color']!r} before weighting", x[0, index].tolist(), pixels, pixels, 1.0),
            Heatmap(f"channel {settings['color']!r} after weighting", out[index].tolist(), pixels, pixels, 1.0),
        ],
    )


LESSONS = (
    Lesson(
        name="gates",
        title="The gates of an LSTM as attention",
        description="At every word an LSTM computes three gates over its units, with values between zero and one: the input "
        "gate says how much to write, the forget gate how much to keep, and the output gate how much to output. This is "
        "attention over memory cells instead of words. The three units here were set by hand: one remembers that a bracket is "
        "open, one remembers a negation until the next punctuation mark, and one counts words and outputs the count at "
        "punctuation marks. A flag that is already set stays at one when it is set again. Choose a random cell to see that "
        "gates have no such meaning before training.",
        formula=FORMULAS["LSTM"],
        code=(lstm_cell, gru_cell, make_fixed_lstm),
        controls=(
            make_text_control("the film (which I had not seen before) was not bad at all, it was good."),
            Control(
                "cell",
                "Recurrent cell",
                "choice",
                "LSTM set by hand",
                choices=("LSTM set by hand", "random LSTM", "random GRU"),
            ),
        ),
        compute=compute_gates,
    ),
    Lesson(
        name="squeeze",
        title="Channel attention: squeeze-and-excitation",
        description="A convolutional network has many channels, and some matter more than others for a given image. "
        "Squeeze-and-excitation reduces each channel to its mean, computes a weight between zero and one for each channel "
        "with a small network, and multiplies the channels by their weights: self-attention over channels, based on the "
        "whole image. Here the channels are colors, and the small network was set by hand to pass the colors that cover "
        "enough of the image; a trained network learns its own criteria.",
        formula="z = mean(x),   s = sigmoid(W₂ relu(W₁ z)),   y = s ⊙ x",
        code=(SqueezeExcite, make_fixed_squeeze_excite),
        controls=(
            Control("shape", "Left shape", "choice", "square", choices=SHAPES),
            Control("color", "Color of the left shape, and the channel shown", "choice", "red", choices=tuple(COLORS)),
            Control("other", "Color of the circle", "choice", "blue", choices=tuple(COLORS)),
            Control("sharpness", "Sharpness of the small network", "range", "4", 0, 10, 0.5),
        ),
        compute=compute_squeeze,
    ),
)
