"""Lessons on scores and weights: why dot products are divided by √d, and what softmax makes of a score."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from saccade.attention import Dot, Hard, Mechanism, Normalizer, ScaledDot, Softmax, Sparsemax, SumNormalizer
from saccade.errors import UsageError
from saccade.lessons.base import BarChart, Control, Lesson, LessonResult, LineChart, Table, format_significant
from saccade.lessons.common import draw_normal

SCORE_MECHANISMS = {"q·k": Dot(), "q·k / √d": ScaledDot()}
MAX_ENTRIES = 2**22  # entries of all keys that are drawn at one width: 4,096 pairs at width 1,024
MAX_PAIRS = 2**15  # and never more than these
WIDTHS = tuple(4**i for i in range(6))


@lru_cache(maxsize=1)
def draw_entries(keys: int) -> tuple[Tensor, Tensor]:
    """Normal numbers for the queries and for `keys` keys of each; every width cuts its own vectors out of the same."""
    return draw_normal(0, MAX_ENTRIES // keys), draw_normal(1, MAX_ENTRIES)


def draw_scores(d: int, keys: int, mechanism: Mechanism) -> Tensor:
    """Scores of random queries of width d, each with random keys of its own, (Q, K)."""
    queries, others = draw_entries(keys)
    count = min(MAX_ENTRIES // d, MAX_PAIRS) // keys
    q, k = queries[: count * d].view(count, 1, 1, d), others[: count * keys * d].view(count, 1, keys, d)
    return mechanism.scores(q, k)[:, 0, 0]


def mean_softmax_slope(weights: Tensor) -> float:
    """How far a weight moves with its own score, on average: the diagonal of softmax's derivative, w (1 - w)."""
    return (weights * (1 - weights)).mean().item()


def points_at(lines: dict[str, list[tuple[float, float]]], at: float) -> list[tuple[float, float]]:
    """The points of all lines at one place, to be marked."""
    return [(x, y) for line in lines.values() for x, y in line if x == at]


def compute_scaling(settings: dict[str, str]) -> LessonResult:
    """Random queries and keys of growing width, with and without the root."""
    width, keys = int(float(settings["width"])), int(float(settings["keys"]))
    widths = sorted({*WIDTHS, width})
    every = {name: {d: draw_scores(d, keys, how) for d in widths} for name, how in SCORE_MECHANISMS.items()}
    bars, rows, tops = [], [], {}
    for name, found in every.items():
        mine = found[width]
        weights = mine.softmax(-1)
        tops[name] = weights.amax(-1).mean().item()
        bars.append(
            BarChart(
                f"softmax of {name}, one query",
                [f"key {i + 1}" for i in range(keys)],
                weights[0].tolist(),
                max_value=1.0,
            )
        )
        rows.append(
            [
                name,
                format_significant(mine.var().item(), 3),
                f"{tops[name]:.1%}",
                format_significant(mean_softmax_slope(weights)),
            ]
        )
    said = (
        f"At d = {width} the scores q·k of {every['q·k'][width].numel():,} random pairs have a variance of "
        f"{format_significant(every['q·k'][width].var().item(), 3)}, and the best of {keys} keys takes {tops['q·k']:.0%} of the "
        f"attention on average; divided by √d it takes {tops['q·k / √d']:.0%}. Dots mark this width."
    )
    spread = {name: [(float(d), s.var().item()) for d, s in found.items()] for name, found in every.items()}
    steep = {
        name: [(float(d), mean_softmax_slope(s.softmax(-1))) for d, s in found.items()] for name, found in every.items()
    }
    return LessonResult(
        said,
        [
            LineChart(
                "variance of the scores", "d", "variance", spread, points_at(spread, width), log_x=True, log_y=True
            ),
            LineChart(
                "how far a weight moves with its score",
                "d",
                "mean of w (1 - w)",
                steep,
                points_at(steep, width),
                log_x=True,
                log_y=True,
            ),
            *bars,
            Table(f"at d = {width}", ["score", "variance", "largest weight", "mean of w (1 - w)"], rows),
        ],
    )


NORMALIZERS: dict[str, Normalizer] = {
    "softmax": Softmax(),
    "sparsemax": Sparsemax(),
    "sum": SumNormalizer(),
    "hard": Hard(),
}
FORMULAS = {
    "softmax": "wᵢ = exp(sᵢ / T) / Σⱼ exp(sⱼ / T)",
    "sparsemax": "wᵢ = max(0, sᵢ / T - τ),   τ such that Σᵢ wᵢ = 1",
    "sum": "wᵢ = max(0, sᵢ) / Σⱼ max(0, sⱼ)",
    "hard": "wᵢ = 1 for the largest sᵢ, else 0",
}
MAX_SCORE, MAX_SCORE_COUNT = 100.0, 12


def parse_scores(text: str) -> list[float]:
    """The scores that the reader typed.

    >>> parse_scores("2, 1 -0.5")
    [2.0, 1.0, -0.5]
    """
    needed = f"type 1 to {MAX_SCORE_COUNT} numbers between -{MAX_SCORE:g} and {MAX_SCORE:g}, with commas between them"
    try:
        found = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise UsageError(f"'scores' is {text!r}; {needed}.") from None
    if not 1 <= len(found) <= MAX_SCORE_COUNT or not all(abs(number) <= MAX_SCORE for number in found):
        raise UsageError(f"'scores' is {text!r}; {needed}.")
    return found


def entropy_bits(weights: Tensor) -> float:
    """How many bits it takes to say which key was taken."""
    return torch.special.entr(weights).sum(-1).item() / math.log(2)


def describe_weights(weights: Tensor, temperature_value: float, kind: str) -> str:
    """The weights in words: the largest, how many are not zero, and how open the choice is."""
    count, used = len(weights), int((weights > 0).sum())
    if not used:
        return (
            "No score is positive, so sum normalization has nothing to divide: all weights are zero at any temperature."
        )
    among = f"the only weight is {weights.max().item():.0%}"
    if count > 1:
        above = f"{used} of {count} {'is' if used == 1 else 'are'} above zero"
        among = f"the largest of {count} weights is {weights.max().item():.0%}, {above}"
    said = f"At temperature {temperature_value:g} {among}, and the choice has {entropy_bits(weights):.2f} of {math.log2(count):.2f} bits."
    if kind in ("sum", "hard"):
        said += f" The temperature changes nothing here: {TEMPERATURE_NOTES[kind]}."
    return said


TEMPERATURE_NOTES = {
    "sum": "it divides every score alike and cancels in their shares",
    "hard": "it does not change which score is the largest",
}


def compute_temperature(settings: dict[str, str]) -> LessonResult:
    """Weights of a few scores at one temperature, and at all."""
    scores, heat, kind = (
        torch.tensor(parse_scores(settings["scores"])),
        float(settings["temperature"]),
        settings["weights"],
    )

    def weigh(t: float) -> Tensor:
        return NORMALIZERS[kind]((scores / t)[None], torch.zeros(1, len(scores)))[0]

    weights = weigh(heat)
    heats = [0.05 * 200 ** (i / 40) for i in range(41)]
    every = [weigh(t).tolist() for t in heats]
    names = [f"{i + 1}: {score:g}" for i, score in enumerate(scores.tolist())]
    lines = {
        name: list(zip(heats, column, strict=True))
        for name, column in zip(names, zip(*every, strict=True), strict=True)
    }
    marks = [(heat, weight) for weight in weights.tolist()]
    return LessonResult(
        describe_weights(weights, heat, kind),
        [
            BarChart(f"weights by {kind}", names, weights.tolist(), max_value=1.0),
            LineChart("weights at every temperature; dots at T", "temperature", "weight", lines, marks, log_x=True),
        ],
        formula=FORMULAS[kind],
    )


LESSONS = (
    Lesson(
        name="root",
        title="Scaled dot product: why scores are divided by √d",
        description="A dot product is a sum of d terms. If the entries of q and k have variance one, the sum has variance d, so wide "
        "vectors have large scores, and softmax of large scores gives nearly everything to one key. There it is flat: a "
        "score that moves a little moves no weight, and nothing is learned. Divided by √d, the variance is one at any "
        "width.",
        formula="Var(q·k) = d,   Var(q·k / √d) = 1,   ∂wᵢ/∂sᵢ = wᵢ (1 - wᵢ)",
        code=(Dot, ScaledDot),
        controls=(
            Control("width", "d, the width of queries and keys", "range", "64", 1, 1024, 1),
            Control("keys", "How many keys there are", "range", "8", 2, 16, 1),
        ),
        compute=compute_scaling,
    ),
    Lesson(
        name="temperature",
        title="Softmax: from scores to attention weights",
        description="Softmax makes shares of scores: none negative, and together one. Divide the scores by a temperature first, and "
        "you turn between two ends: cold, the best key takes all, as in a dictionary; hot, all keys count alike, as in a "
        "mean. Other rules make other shares: sparsemax gives exactly zero to scores that lie too far below the best, and to "
        "more of them the colder it is; sum normalization divides the positive scores by their sum; the hard choice takes the "
        "best key alone. These two do not depend on the temperature, and a choice has no gradient.",
        formula=FORMULAS["softmax"],
        code=(Softmax, Sparsemax, SumNormalizer, Hard),
        controls=(
            Control("scores", "The scores", "text", "2, 1, 0.5, -1"),
            Control("temperature", "T", "range", "1", 0.05, 10, 0.05),
            Control("weights", "How shares are made", "choice", "softmax", choices=tuple(NORMALIZERS)),
        ),
        compute=compute_temperature,
    ),
)
