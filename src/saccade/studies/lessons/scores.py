"""Lessons on scores and weights: why dot products are divided by √d, and what softmax makes of a score."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from saccade.attention import Dot, Hard, Mechanism, Normaliser, PlainSum, ScaledDot, Softmax, Sparsemax
from saccade.errors import UsageError
from saccade.studies.lessons.lesson import Bars, Control, Curves, Lesson, Shown, Table, figure
from saccade.studies.lessons.sentences import noise

DEGREES = {"q·k": Dot(), "q·k / √d": ScaledDot()}
NUMBERS = 2**22  # entries of all keys that are drawn at one width: 4,096 pairs at width 1,024
PAIRS = 2**15  # and never more than these
WIDTHS = tuple(4**i for i in range(6))


@lru_cache(maxsize=1)
def entries(keys: int) -> tuple[Tensor, Tensor]:
    """Normal numbers for the queries and for `keys` keys of each; every width cuts its own vectors out of the same."""
    return noise(0, NUMBERS // keys), noise(1, NUMBERS)


def random_scores(d: int, keys: int, mechanism: Mechanism) -> Tensor:
    """Scores of random queries of width d, each with random keys of its own, (Q, K)."""
    queries, others = entries(keys)
    count = min(NUMBERS // d, PAIRS) // keys
    q, k = queries[: count * d].view(count, 1, 1, d), others[: count * keys * d].view(count, 1, keys, d)
    return mechanism.scores(q, k)[:, 0, 0]


def slope(weights: Tensor) -> float:
    """How far a weight moves with its own score, on average: the diagonal of softmax's derivative, w (1 - w)."""
    return (weights * (1 - weights)).mean().item()


def here(lines: dict[str, list[tuple[float, float]]], at: float) -> list[tuple[float, float]]:
    """The points of all lines at one place, to be marked."""
    return [(x, y) for line in lines.values() for x, y in line if x == at]


def root(given: dict[str, str]) -> Shown:
    """Random queries and keys of growing width, with and without the root."""
    width, keys = int(float(given["width"])), int(float(given["keys"]))
    widths = sorted({*WIDTHS, width})
    every = {name: {d: random_scores(d, keys, how) for d in widths} for name, how in DEGREES.items()}
    bars, rows, tops = [], [], {}
    for name, found in every.items():
        mine = found[width]
        weights = mine.softmax(-1)
        tops[name] = weights.amax(-1).mean().item()
        bars.append(
            Bars(f"softmax of {name}, one query", [f"key {i + 1}" for i in range(keys)], weights[0].tolist(), top=1.0)
        )
        rows.append([name, figure(mine.var().item(), 3), f"{tops[name]:.1%}", figure(slope(weights))])
    said = (
        f"At d = {width} the scores q·k of {every['q·k'][width].numel():,} random pairs have a variance of "
        f"{figure(every['q·k'][width].var().item(), 3)}, and the best of {keys} keys takes {tops['q·k']:.0%} of the "
        f"attention on average; divided by √d it takes {tops['q·k / √d']:.0%}. Dots mark this width."
    )
    spread = {name: [(float(d), s.var().item()) for d, s in found.items()] for name, found in every.items()}
    steep = {name: [(float(d), slope(s.softmax(-1))) for d, s in found.items()] for name, found in every.items()}
    return Shown(
        said,
        [
            Curves("variance of the scores", "d", "variance", spread, here(spread, width), log_x=True, log_y=True),
            Curves(
                "how far a weight moves with its score",
                "d",
                "mean of w (1 - w)",
                steep,
                here(steep, width),
                log_x=True,
                log_y=True,
            ),
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
FORMULAS = {
    "softmax": "wᵢ = exp(sᵢ / T) / Σⱼ exp(sⱼ / T)",
    "sparsemax": "wᵢ = max(0, sᵢ / T - τ),   τ such that Σᵢ wᵢ = 1",
    "plain sum": "wᵢ = max(0, sᵢ) / Σⱼ max(0, sⱼ)",
    "hard": "wᵢ = 1 for the largest sᵢ, else 0",
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
        raise UsageError(f"'scores' is {text!r}; {needed}.") from None
    if not 1 <= len(found) <= MANY or not all(abs(number) <= LARGEST for number in found):
        raise UsageError(f"'scores' is {text!r}; {needed}.")
    return found


def entropy(weights: Tensor) -> float:
    """How many bits it takes to say which key was taken."""
    return torch.special.entr(weights).sum(-1).item() / math.log(2)


def told_of_weights(weights: Tensor, heat: float, kind: str) -> str:
    """The weights in words: the largest, how many are not zero, and how open the choice is."""
    count, used = len(weights), int((weights > 0).sum())
    if not used:
        return (
            "No score is positive, so the plain sum has nothing to share out: all weights are zero, at any temperature."
        )
    among = f"the only weight is {weights.max().item():.0%}"
    if count > 1:
        above = f"{used} of {count} {'is' if used == 1 else 'are'} above zero"
        among = f"the largest of {count} weights is {weights.max().item():.0%}, {above}"
    said = f"At temperature {heat:g} {among}, and the choice has {entropy(weights):.2f} of {math.log2(count):.2f} bits."
    if kind in ("plain sum", "hard"):
        said += f" The temperature changes nothing here: {CANCELS[kind]}."
    return said


CANCELS = {
    "plain sum": "it divides every score alike and cancels in their shares",
    "hard": "it does not change which score is the largest",
}


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
    marks = [(heat, weight) for weight in weights.tolist()]
    return Shown(
        told_of_weights(weights, heat, kind),
        [
            Bars(f"weights by {kind}", names, weights.tolist(), top=1.0),
            Curves("weights at every temperature; dots at T", "temperature", "weight", lines, marks, log_x=True),
        ],
        formula=FORMULAS[kind],
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
        "mean. Other rules make other shares: sparsemax gives exactly zero to scores that lie too far below the best, and to "
        "more of them the colder it is; the plain sum shares out the positive scores as they are; the hard choice takes the "
        "best key alone. These two do not depend on the temperature, and a choice has no gradient.",
        formula=FORMULAS["softmax"],
        code=(Softmax, Sparsemax, PlainSum, Hard),
        controls=(
            Control("scores", "The scores", "text", "2, 1, 0.5, -1"),
            Control("temperature", "T", "range", "1", 0.05, 10, 0.05),
            Control("weights", "How shares are made", "choice", "softmax", choices=tuple(NORMALISERS)),
        ),
        draw=temperature,
    ),
)
