"""Lessons on gates, which are attention a network makes over its own units or channels: LSTM, GRU, squeeze-and-excitation."""

import math
import re

import numpy as np
import torch
from torch import Tensor

from saccade.data.samples.pictures import COLOURS, SHAPES, SIDE, Scene, Thing, paint
from saccade.parts.recurrent import Recurrent, gru_cell, lstm_cell
from saccade.parts.squeeze import SqueezeExcite
from saccade.parts.state import State
from saccade.studies.lessons.lesson import Bars, Control, Image, Lesson, Map, Picture, Shown
from saccade.studies.lessons.sentences import drawn, looked, read, typed, vectors

FEATURES = {
    "opens": r"[(\[«“]",
    "closes": r"[)\]»”]",
    "denies": r"not|no|never|nothing|nobody|\w+n['’]t",
    "stops": r"[.,;:!?]",
}
UNITS: tuple[str, ...] = ("inside brackets", "after a denial", "words so far")
FORMULAS = {
    "LSTM": "c(t) = forget ⊙ c(t-1) + input ⊙ tanh(…),   h(t) = output ⊙ tanh(c(t))",
    "GRU": "h(t) = update ⊙ h(t-1) + (1 - update) ⊙ tanh(W x + reset ⊙ (U h(t-1)))",
}
OPEN, SHUT = 6.0, -12.0  # a gate at its bias lets all pass; with this on top, nothing
NEAR = 40  # how far apart two colours are, in steps of red, green and blue, of which one counts as much of the other
STEP = 0.1  # what the counter adds for each word


def features(words: list[str]) -> Tensor:
    """What the cell set by hand knows of each word, (1, L, 4): one where the word is of that kind."""
    kinds = [re.compile(kind, re.IGNORECASE) for kind in FEATURES.values()]
    return torch.tensor([[float(kind.fullmatch(word) is not None) for kind in kinds] for word in words])[None]


def by_hand() -> Recurrent:
    """An LSTM of three units with a purpose: two flags that are raised and lowered, and a counter shown at stops."""
    made = drawn(lambda: Recurrent(len(FEATURES), len(UNITS)))
    at = {name: number for number, name in enumerate(FEATURES)}
    for weight in made.fused.parameters():
        weight.data.zero_()
    # rows of the four maps, each (units, features): write, keep, what to write, show
    write, keep, _, show = made.fused.weight_ih_l0.data.view(4, len(UNITS), -1)
    biases = made.fused.bias_ih_l0.data.view(4, len(UNITS))
    biases.copy_(torch.tensor([[-OPEN, -OPEN, OPEN], [OPEN] * 3, [OPEN, OPEN, STEP], [OPEN, OPEN, -OPEN]]))
    write[0, at["opens"]] = write[1, at["denies"]] = -SHUT
    keep[0, at["closes"]] = keep[1, at["stops"]] = SHUT
    keep[0, at["opens"]] = keep[1, at["denies"]] = SHUT  # a flag that is up already is raised anew, not added to
    show[2, at["stops"]] = -SHUT
    return made


def remembered(layer: Recurrent, x: Tensor) -> Tensor:
    """The memory after each word, (L, U): c of an LSTM, h of a GRU."""
    state, rows = State(), []
    with torch.no_grad():
        for t in range(x.size(1)):
            layer(x[:, t : t + 1], None, state)
            rows.append(state.get("c" if layer.parts == 2 else "h"))
    return torch.cat([row for row in rows if row is not None])


def gates(given: dict[str, str]) -> Shown:
    """The gates and the memory of a recurrent layer over a sentence."""
    words, remark = read(given["text"])
    if given["cell"] == "LSTM set by hand":
        layer, x, units = by_hand(), features(words), list(UNITS)
    else:
        layer = drawn(lambda: Recurrent(16, 8, given["cell"].split()[1].lower()))
        x, units = vectors(words, 16), [f"unit {number + 1}" for number in range(8)]
    maps, memory = looked(layer, x), remembered(layer, x)  # (L, gates, U) and (L, U)
    means = ", ".join(
        f"{name} {share:.0%}" for name, share in zip(layer.gates, maps.mean((0, 2)).tolist(), strict=True)
    )
    said = f"On average the gates are open to: {means}."
    if given["cell"] == "LSTM set by hand":
        held = [word for word, inside in zip(words, (memory[:, 0] > 0.5).tolist(), strict=True) if inside]
        said += f" The first unit holds its flag over “{' '.join(held)}”." if held else " No bracket is opened."
    pictures: list[Picture] = [
        Map(f"{name} gate", maps[:, number].T.tolist(), units, words, 1.0) for number, name in enumerate(layer.gates)
    ]
    pictures.append(Map("memory after each word", memory.T.tolist(), units, words))
    return Shown(said + remark, pictures, formula=FORMULAS["GRU" if "GRU" in given["cell"] else "LSTM"])


def channels(picture: np.ndarray) -> Tensor:
    """A channel for each colour of the table, (1, C, rows, columns): near one where a pixel has that colour."""
    pixels = torch.from_numpy(picture.astype(np.float32)).permute(2, 0, 1)
    colours = torch.tensor(list(COLOURS.values()), dtype=torch.float32)[:, :, None, None]
    return torch.exp(-0.5 * (pixels - colours).square().sum(1) / NEAR**2)[None]


def alike(extra: list[str], given: dict[str, str]) -> str:
    """Why a channel passes whose colour is not in the picture: it answers a little to colours near its own."""
    said = ""
    for name in extra:
        near = {other: likeness(COLOURS[name], COLOURS[other]) for other in (given["colour"], given["other"])}
        best = max(near, key=lambda other: near[other])
        said += (
            f" Nothing in the picture is {name}, but its channel answers with {near[best]:.0%} to {best}, which is near to it, "
            f"and the whole {best} shape is enough."
        )
    return said


def likeness(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """What a channel for one colour answers to a pixel of another: one for the same, and less the further they are apart."""
    return math.exp(-0.5 * sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / NEAR**2)


def excited(sharpness: float) -> SqueezeExcite:
    """Squeeze-and-excitation set by hand: a channel passes if it covers more than one part in fifty of the picture."""
    count = len(COLOURS)
    made = drawn(lambda: SqueezeExcite(count, reduction=1))
    made.squeeze.weight.data = torch.eye(count) * 50
    made.excite.weight.data = torch.eye(count) * sharpness
    made.excite.bias.data.fill_(-sharpness)
    return made


def squeeze(given: dict[str, str]) -> Shown:
    """A picture of two shapes, what its channels are squeezed to, and what passes."""
    things = (
        Thing(given["shape"], given["colour"], "", 9.5, 16.0),
        Thing("circle", given["other"], "large ", 23.5, 16.0),
    )
    picture = paint(Scene(things))
    x = channels(picture)
    layer = excited(float(given["sharpness"]))
    with torch.no_grad():
        weights, out = layer.weights(x)[0], layer(x)[0]
    names, means = list(COLOURS), x[0].mean((1, 2))
    at = names.index(given["colour"])
    passing = [name for name, weight in zip(names, weights.tolist(), strict=True) if weight > 0.5]
    said = (
        f"The channel {given['colour']!r} covers {means[at].item():.1%} of the picture and {weights[at].item():.0%} of it "
        f"passes; above one half {'pass' if len(passing) != 1 else 'passes'} {', '.join(passing) or 'none'}."
        f"{alike([name for name in passing if name not in (given['colour'], given['other'])], given)}"
    )
    side = [str(number) for number in range(SIDE)]
    return Shown(
        said,
        [
            Image("the picture", picture.tolist()),
            Bars("squeezed: the mean of each channel", names, means.tolist()),
            Bars("excited: how much of each channel passes", names, weights.tolist(), top=1.0),
            Map(f"channel {given['colour']!r} as it comes", x[0, at].tolist(), side, side, 1.0),
            Map(f"channel {given['colour']!r} after its weight", out[at].tolist(), side, side, 1.0),
        ],
    )


LESSONS = (
    Lesson(
        name="gates",
        title="The gates of an LSTM are attention too",
        said="At every word an LSTM makes three maps over its own units, each number between zero and one: how much to "
        "write, how much to keep, how much to show. That is attention to memory instead of words. Three units here were set "
        "by hand: one remembers that a bracket is open, one that something was denied, until the next stop, and one counts "
        "words and shows the count at stops. A flag that is up already is raised anew and stays at one. Take a random cell "
        "to see how little is to be seen before training.",
        formula=FORMULAS["LSTM"],
        code=(lstm_cell, gru_cell, by_hand),
        controls=(
            typed("the film (which I had not seen before) was not bad at all, it was good."),
            Control(
                "cell",
                "Which cell reads",
                "choice",
                "LSTM set by hand",
                choices=("LSTM set by hand", "random LSTM", "random GRU"),
            ),
        ),
        draw=gates,
    ),
    Lesson(
        name="squeeze",
        title="Attention over channels: squeeze and excite",
        said="A convolutional network has many channels, and for a given picture some matter more. Squeeze each channel to its "
        "mean, let a small network make a weight between zero and one for each, and multiply: channels attend to each "
        "other, and to the whole picture at once. Here the channels are colours and the small network was set by hand to "
        "let pass what covers enough of the picture; a trained one finds its own reasons.",
        formula="z = mean(x),   s = sigmoid(W₂ relu(W₁ z)),   y = s ⊙ x",
        code=(SqueezeExcite, excited),
        controls=(
            Control("shape", "The left shape", "choice", "square", choices=SHAPES),
            Control("colour", "Its colour, and the channel that is shown", "choice", "red", choices=tuple(COLOURS)),
            Control("other", "The colour of the circle", "choice", "blue", choices=tuple(COLOURS)),
            Control("sharpness", "How sharply the small network decides", "range", "4", 0, 10, 0.5),
        ),
        draw=squeeze,
    ),
)
