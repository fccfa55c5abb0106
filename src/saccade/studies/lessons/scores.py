"""Lessons on scores and weights: why dot products are divided by √d, and what softmax makes of a score."""

import math

import torch
from torch import Tensor

from saccade.attention import Dot, Hard, Normaliser, PlainSum, ScaledDot, Softmax, Sparsemax
from saccade.studies.lessons.lesson import Bars, Control, Curves, Lesson, Shown, Table
from saccade.studies.lessons.sentences import noise

DEGREES = {"q·k": Dot(), "q·k / √d": ScaledDot()}
QUERIES = 64


def slope(weights: Tensor) -> float:
    """How far a weight moves with its own score, on average: the diagonal of softmax's derivative, w (1 - w)."""
    return (weights * (1 - weights)).mean().item()


def root(given: dict[str, str]) -> Shown:
    """Random queries and keys of growing width, with and without the root."""
    width, keys = int(float(given["width"])), int(float(given["keys"]))

    def scores(d: int, name: str) -> Tensor:
        q, k = noise(d, QUERIES, d), noise(d + 1, keys, d)
        return DEGREES[name].scores(q[None, None], k[None, None])[0, 0]  # (Q, K)

    widths = sorted({2**i for i in range(11)} | {width})
    every = {name: {d: scores(d, name) for d in widths} for name in DEGREES}
    bars, rows, tops = [], [], {}
    for name, found in every.items():
        mine = found[width]
        weights = mine.softmax(-1)
        tops[name] = weights.amax(-1).mean().item()
        bars.append(Bars(f"softmax of {name}, one query", [f"key {i + 1}" for i in range(keys)], weights[0].tolist()))
        rows.append([name, f"{mine.var().item():.3g}", f"{tops[name]:.1%}", f"{slope(weights):.2g}"])
    said = (
        f"At d = {width} the scores q·k have a variance of {every['q·k'][width].var().item():.3g}, and the best of {keys} keys "
        f"takes {tops['q·k']:.0%} of the attention; divided by √d it takes {tops['q·k / √d']:.0%}."
    )
    spread = {name: [(float(d), s.var().item()) for d, s in found.items()] for name, found in every.items()}
    steep = {name: [(float(d), slope(s.softmax(-1))) for d, s in found.items()] for name, found in every.items()}
    return Shown(
        said,
        [
            Curves("variance of the scores", "d", "variance", spread, log_x=True, log_y=True),
            Curves("how far a weight moves with its score", "d", "mean of w (1 - w)", steep, log_x=True, log_y=True),
            *bars,
            Table(f"at d = {width}", ["score", "variance", "largest weight", "mean of w (1 - w)"], rows),
        ],
    )


NORMALISERS: dict[str, Normaliser] = {
    "softmax": Softmax(),
    "sparsemax": Sparsemax(),
    "plain sum": PlainSum(),
    "hard": Hard(),
}
LARGEST, MANY = 100.0, 12


def numbers(text: str) -> list[float]:
    """The scores that the reader typed.

    >>> numbers("2, 1 -0.5")
    [2.0, 1.0, -0.5]
    """
    needed = f"type 1 to {MANY} numbers between -{LARGEST:g} and {LARGEST:g}, with commas between them"
    try:
        found = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise ValueError(f"'scores' is {text!r}; {needed}.") from None
    if not 1 <= len(found) <= MANY or not all(abs(number) <= LARGEST for number in found):
        raise ValueError(f"'scores' is {text!r}; {needed}.")
    return found


def entropy(weights: Tensor) -> float:
    """How many bits it takes to say which key was taken."""
    return torch.special.entr(weights).sum(-1).item() / math.log(2)


def temperature(given: dict[str, str]) -> Shown:
    """Weights of a few scores at one temperature, and at all."""
    scores, heat, kind = torch.tensor(numbers(given["scores"])), float(given["temperature"]), given["weights"]

    def weigh(t: float) -> Tensor:
        return NORMALISERS[kind]((scores / t)[None], torch.zeros(1, len(scores)))[0]

    weights = weigh(heat)
    heats = [0.05 * 200 ** (i / 40) for i in range(41)]
    every = [weigh(t).tolist() for t in heats]
    names = [f"{i + 1}: {score:g}" for i, score in enumerate(scores.tolist())]
    lines = {
        name: list(zip(heats, column, strict=True))
        for name, column in zip(names, zip(*every, strict=True), strict=True)
    }
    used = int((weights > 0).sum())
    said = (
        f"At temperature {heat:g} the largest of {len(names)} weights is {weights.max().item():.0%}, {used} of them are not "
        f"zero, and the choice has {entropy(weights):.2f} of {math.log2(len(names)):.2f} bits."
    )
    return Shown(
        said,
        [
            Bars(f"weights by {kind}", names, weights.tolist()),
            Curves("weights at every temperature", "temperature", "weight", lines, log_x=True),
        ],
    )


LESSONS = (
    Lesson(
        name="root",
        title="Why the scores are divided by √d",
        said="A dot product is a sum of d terms. If the entries of q and k have variance one, the sum has variance d, so wide "
        "vectors have large scores, and softmax of large scores gives nearly everything to one key. There it is flat: a "
        "score that moves a little moves no weight, and nothing is learned. Divided by √d, the variance is one at any "
        "width.",
        formula="Var(q·k) = d,   Var(q·k / √d) = 1,   ∂wᵢ/∂sᵢ = wᵢ (1 - wᵢ)",
        code=(Dot, ScaledDot),
        controls=(
            Control("width", "d, the width of queries and keys", "range", "64", 1, 1024, 1),
            Control("keys", "How many keys there are", "range", "8", 2, 16, 1),
        ),
        draw=root,
    ),
    Lesson(
        name="temperature",
        title="From scores to weights",
        said="Softmax makes shares of scores: none negative, and together one. Divide the scores by a temperature first, and "
        "you turn between two ends: cold, the best key takes all, as in a dictionary; hot, all keys count alike, as in a "
        "mean. Other rules make other shares: sparsemax leaves most of them at zero, the plain sum takes positive scores "
        "as they are, and the hard choice takes one key, which has no gradient.",
        formula="wᵢ = exp(sᵢ / T) / Σⱼ exp(sⱼ / T)",
        code=(Softmax, Sparsemax, PlainSum, Hard),
        controls=(
            Control("scores", "The scores", "text", "2, 1, 0.5, -1"),
            Control("temperature", "T", "range", "1", 0.05, 10, 0.05),
            Control("weights", "How shares are made", "choice", "softmax", choices=tuple(NORMALISERS)),
        ),
        draw=temperature,
    ),
)
