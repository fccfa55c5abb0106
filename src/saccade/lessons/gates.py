"""Lessons on gates, which are attention a network makes over its own units or channels: LSTM, GRU, squeeze-and-excitation."""

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
    "opens": r"[(\[«“]",
    "closes": r"[)\]»”]",
    "denies": r"not|no|never|nothing|nobody|\w+n['’]t",
    "stops": r"[.,;:!?]",
}
UNIT_NAMES: tuple[str, ...] = ("inside brackets", "after a denial", "words so far")
FORMULAS = {
    "LSTM": "c(t) = forget ⊙ c(t-1) + input ⊙ tanh(…),   h(t) = output ⊙ tanh(c(t))",
    "GRU": "h(t) = update ⊙ h(t-1) + (1 - update) ⊙ tanh(W x + reset ⊙ (U h(t-1)))",
}
OPEN_BIAS, SHUT_BIAS = 6.0, -12.0  # a gate at its bias lets all pass; with this on top, nothing
COLOR_BANDWIDTH = (
    40  # how far apart two colours are, in steps of red, green and blue, of which one counts as much of the other
)
COUNTER_STEP = 0.1  # what the counter adds for each word


def make_word_features(words: list[str]) -> Tensor:
    """What the cell set by hand knows of each word, (1, L, 4): one where the word is of that kind."""
    kinds = [re.compile(kind, re.IGNORECASE) for kind in WORD_PATTERNS.values()]
    return torch.tensor([[float(kind.fullmatch(word) is not None) for kind in kinds] for word in words])[None]


def make_fixed_lstm() -> Recurrent:
    """An LSTM of three units with a purpose: two flags that are raised and lowered, and a counter shown at stops."""
    made = build_seeded(lambda: Recurrent(len(WORD_PATTERNS), len(UNIT_NAMES)))
    at = {name: number for number, name in enumerate(WORD_PATTERNS)}
    for weight in made.fused.parameters():
        weight.data.zero_()
    # rows of the four maps, each (units, features): write, keep, what to write, show
    write, keep, _, show = made.fused.weight_ih_l0.data.view(4, len(UNIT_NAMES), -1)
    biases = made.fused.bias_ih_l0.data.view(4, len(UNIT_NAMES))
    biases.copy_(
        torch.tensor(
            [
                [-OPEN_BIAS, -OPEN_BIAS, OPEN_BIAS],
                [OPEN_BIAS] * 3,
                [OPEN_BIAS, OPEN_BIAS, COUNTER_STEP],
                [OPEN_BIAS, OPEN_BIAS, -OPEN_BIAS],
            ]
        )
    )
    write[0, at["opens"]] = write[1, at["denies"]] = -SHUT_BIAS
    keep[0, at["closes"]] = keep[1, at["stops"]] = SHUT_BIAS
    keep[0, at["opens"]] = keep[1, at["denies"]] = SHUT_BIAS  # a flag that is up already is raised anew, not added to
    show[2, at["stops"]] = -SHUT_BIAS
    return made


def collect_memory(layer: Recurrent, x: Tensor) -> Tensor:
    """The memory after each word, (L, U): c of an LSTM, h of a GRU."""
    state, rows = State(), []
    with torch.no_grad():
        for t in range(x.size(1)):
            layer(x[:, t : t + 1], None, state)
            rows.append(state.get("c" if layer.state_count == 2 else "h"))
    return torch.cat([row for row in rows if row is not None])


def compute_gates(settings: dict[str, str]) -> LessonResult:
    """The gates and the memory of a recurrent layer over a sentence."""
    words, remark = split_words(settings["text"])
    if settings["cell"] == "LSTM set by hand":
        layer, x, units = make_fixed_lstm(), make_word_features(words), list(UNIT_NAMES)
    else:
        layer = build_seeded(lambda: Recurrent(16, 8, settings["cell"].split()[1].lower()))
        x, units = make_word_vectors(words, 16), [f"unit {number + 1}" for number in range(8)]
    maps, memory = watch_weights(layer, x), collect_memory(layer, x)  # (L, gates, U) and (L, U)
    means = ", ".join(
        f"{name} {share:.0%}" for name, share in zip(layer.gates, maps.mean((0, 2)).tolist(), strict=True)
    )
    said = f"On average the gates are open to: {means}."
    if settings["cell"] == "LSTM set by hand":
        held = [word for word, inside in zip(words, (memory[:, 0] > 0.5).tolist(), strict=True) if inside]
        said += f" The first unit holds its flag over “{' '.join(held)}”." if held else " No bracket is opened."
    pictures: list[Figure] = [
        Heatmap(f"{name} gate", maps[:, number].T.tolist(), units, words, 1.0)
        for number, name in enumerate(layer.gates)
    ]
    pictures.append(Heatmap("memory after each word", memory.T.tolist(), units, words))
    return LessonResult(said + remark, pictures, formula=FORMULAS["GRU" if "GRU" in settings["cell"] else "LSTM"])


def make_color_channels(image: np.ndarray) -> Tensor:
    """A channel for each colour of the table, (1, C, rows, columns): near one where a pixel has that colour."""
    pixels = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)
    colours = torch.tensor(list(COLORS.values()), dtype=torch.float32)[:, :, None, None]
    return torch.exp(-0.5 * (pixels - colours).square().sum(1) / COLOR_BANDWIDTH**2)[None]


def explain_similar_channels(unexpected: list[str], settings: dict[str, str]) -> str:
    """Why a channel passes whose colour is not in the picture: it answers a little to colours near its own."""
    said = ""
    for name in unexpected:
        near = {
            other: color_similarity(COLORS[name], COLORS[other]) for other in (settings["color"], settings["other"])
        }
        best = max(near, key=lambda other: near[other])
        said += (
            f" Nothing in the picture is {name}, but its channel answers with {near[best]:.0%} to {best}, which is near to it, "
            f"and the whole {best} shape is enough."
        )
    return said


def color_similarity(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """What a channel for one colour answers to a pixel of another: one for the same, and less the further they are apart."""
    return math.exp(-0.5 * sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / COLOR_BANDWIDTH**2)


def make_fixed_squeeze_excite(sharpness: float) -> SqueezeExcite:
    """Squeeze-and-excitation set by hand: a channel passes if it covers more than one part in fifty of the picture."""
    count = len(COLORS)
    made = build_seeded(lambda: SqueezeExcite(count, reduction=1))
    made.squeeze.weight.data = torch.eye(count) * 50
    made.excite.weight.data = torch.eye(count) * sharpness
    made.excite.bias.data.fill_(-sharpness)
    return made


def compute_squeeze(settings: dict[str, str]) -> LessonResult:
    """A picture of two shapes, what its channels are squeezed to, and what passes."""
    things = (
        SceneObject(settings["shape"], settings["color"], "", 9.5, 16.0),
        SceneObject("circle", settings["other"], "large ", 23.5, 16.0),
    )
    picture = render_scene(Scene(things))
    x = make_color_channels(picture)
    layer = make_fixed_squeeze_excite(float(settings["sharpness"]))
    with torch.no_grad():
        weights, out = layer.weights(x)[0], layer(x)[0]
    names, means = list(COLORS), x[0].mean((1, 2))
    at = names.index(settings["color"])
    passing = [name for name, weight in zip(names, weights.tolist(), strict=True) if weight > 0.5]
    said = (
        f"The channel {settings['color']!r} covers {means[at].item():.1%} of the picture and {weights[at].item():.0%} of it "
        f"passes; above one half {'pass' if len(passing) != 1 else 'passes'} {', '.join(passing) or 'none'}."
        f"{explain_similar_channels([name for name in passing if name not in (settings['color'], settings['other'])], settings)}"
    )
    side = [str(number) for number in range(IMAGE_SIZE)]
    return LessonResult(
        said,
        [
            Image("the picture", picture.tolist()),
            BarChart("squeezed: the mean of each channel", names, means.tolist()),
            BarChart("excited: how much of each channel passes", names, weights.tolist(), max_value=1.0),
            Heatmap(f"channel {settings['color']!r} as it comes", x[0, at].tolist(), side, side, 1.0),
            Heatmap(f"channel {settings['color']!r} after its weight", out[at].tolist(), side, side, 1.0),
        ],
    )


LESSONS = (
    Lesson(
        name="gates",
        title="The gates of an LSTM as attention",
        description="At every word an LSTM makes three maps over its own units, each number between zero and one: how much to "
        "write, how much to keep, how much to show. That is attention to memory instead of words. Three units here were set "
        "by hand: one remembers that a bracket is open, one that something was denied, until the next stop, and one counts "
        "words and shows the count at stops. A flag that is up already is raised anew and stays at one. Take a random cell "
        "to see how little is to be seen before training.",
        formula=FORMULAS["LSTM"],
        code=(lstm_cell, gru_cell, make_fixed_lstm),
        controls=(
            make_text_control("the film (which I had not seen before) was not bad at all, it was good."),
            Control(
                "cell",
                "Which cell reads",
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
        description="A convolutional network has many channels, and for a given picture some matter more. Squeeze each channel to its "
        "mean, let a small network make a weight between zero and one for each, and multiply: channels attend to each "
        "other, and to the whole picture at once. Here the channels are colours and the small network was set by hand to "
        "let pass what covers enough of the picture; a trained one finds its own reasons.",
        formula="z = mean(x),   s = sigmoid(W₂ relu(W₁ z)),   y = s ⊙ x",
        code=(SqueezeExcite, make_fixed_squeeze_excite),
        controls=(
            Control("shape", "The left shape", "choice", "square", choices=SHAPES),
            Control("color", "Its colour, and the channel that is shown", "choice", "red", choices=tuple(COLORS)),
            Control("other", "The colour of the circle", "choice", "blue", choices=tuple(COLORS)),
            Control("sharpness", "How sharply the small network decides", "range", "4", 0, 10, 0.5),
        ),
        compute=compute_squeeze,
    ),
)
