"""Lessons on scores and normalizers: scaling of dot products by √d, and softmax with a temperature."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from saccade.attention import Dot, Hard, Mechanism, Normalizer, ScaledDot, Softmax, Sparsemax, SumNormalizer
from saccade.errors import UsageError
from saccade.lessons.base import BarChart, Control, Lesson, LessonResult, LineChart, Table, format_significant
from saccade.lessons.common import draw_normal

SCORE_MECHANISMS = {"q·k": Dot(), "q·k / √d": ScaledDot()}
MAX_ENTRIES = 2**22  # components of all keys at one width: 4,096 pairs at width 1,024
MAX_PAIRS = 2**15  # the most pairs at any width
WIDTHS = tuple(4**i for i in range(6))


@lru_cache(maxsize=1)
def draw_entries(keys: int) -> tuple[Tensor, Tensor]:
    """Normal numbers for queries and for `keys` keys per query; vectors of every width are cut from the same numbers."""
    return draw_normal(0, MAX_ENTRIES // keys), draw_normal(1, MAX_ENTRIES)


def draw_scores(d: int, keys: int, mechanism: Mechanism) -> Tensor:
    """Scores of random queries of width d, each with its own random keys, (Q, K)."""
    query_entries, key_entries = draw_entries(keys)
    count = min(MAX_ENTRIES // d, MAX_PAIRS) // keys
    q, k = query_entries[: count * d].view(count, 1, 1, d), key_entries[: count * keys * d].view(count, 1, keys, d)
    return mechanism.scores(q, k)[:, 0, 0]


def mean_softmax_slope(weights: Tensor) -> float:
    """Mean derivative of a softmax weight with respect to its own score: the diagonal of the Jacobian, w (1 - w)."""
    return (weights * (1 - weights)).mean().item()


def points_at(lines: dict[str, list[tuple[float, float]]], at: float) -> list[tuple[float, float]]:
    """The points of all lines at one x, to be marked with dots."""
    return [(x, y) for line in lines.values() for x, y in line if x == at]


def compute_scaling(settings: dict[str, str]) -> LessonResult:
    """Scores of random queries and keys by width, with and without division by √d."""
    width, keys = int(float(settings["width"])), int(float(settings["keys"]))
    widths = sorted({*WIDTHS, width})
    scores = {
        name: {d: draw_scores(d, keys, mechanism) for d in widths} for name, mechanism in SCORE_MECHANISMS.items()
    }
    names, bars, rows, largest = [f"key {i + 1}" for i in range(keys)], [], [], {}
    for name, by_width in scores.items():
        weights = by_width[width].softmax(-1)
        variance, slope = by_width[width].var().item(), mean_softmax_slope(weights)
        largest[name] = weights.amax(-1).mean().item()
        bars.append(BarChart(f"softmax of {name}, one query", names, weights[0].tolist(), max_value=1.0))
        rows.append([name, format_significant(variance, 3), f"{largest[name]:.1%}", format_significant(slope)])
    unscaled = scores["q·k"][width]
    summary = (
        f"At d = {width} the scores q·k of {unscaled.numel():,} random pairs have a variance of "
        f"{format_significant(unscaled.var().item(), 3)}, and the largest of {keys} weights is {largest['q·k']:.0%} on average; "
        f"after division by √d it is {largest['q·k / √d']:.0%}. The dots mark this width."
    )
    variances = {name: [(float(d), s.var().item()) for d, s in line.items()] for name, line in scores.items()}
    slopes = {
        name: [(float(d), mean_softmax_slope(s.softmax(-1))) for d, s in line.items()] for name, line in scores.items()
    }
    charts = (
        ("variance of the scores", "variance", variances),
        ("derivative of a weight with respect to its score", "mean of w (1 - w)", slopes),
    )
    return LessonResult(
        summary,
        [
            *(
                LineChart(title, "d", y, line, points_at(line, width), log_x=True, log_y=True)
                for title, y, line in charts
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
    """The scores in a text.

    >>> parse_scores("2, 1 -0.5")
    [2.0, 1.0, -0.5]
    """
    expected = f"type 1 to {MAX_SCORE_COUNT} numbers between -{MAX_SCORE:g} and {MAX_SCORE:g}, separated by commas"
    try:
        numbers = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise UsageError(f"'scores' is {text!r}; {expected}.") from None
    if not 1 <= len(numbers) <= MAX_SCORE_COUNT or not all(abs(number) <= MAX_SCORE for number in numbers):
        raise UsageError(f"'scores' is {text!r}; {expected}.")
    return numbers


def entropy_bits(weights: Tensor) -> float:
    """The entropy of the weights in bits."""
    return torch.special.entr(weights).sum(-1).item() / math.log(2)


def describe_weights(weights: Tensor, temperature_value: float, kind: str) -> str:
    """The weights in words: the largest, how many are above zero, and their entropy."""
    count, used = len(weights), int((weights > 0).sum())
    if not used:
        return (
            "No score is positive, so sum normalization has nothing to divide: all weights are zero at any temperature."
        )
    largest = f"the only weight is {weights.max().item():.0%}"
    if count > 1:
        above = f"{used} of {count} {'is' if used == 1 else 'are'} above zero"
        largest = f"the largest of {count} weights is {weights.max().item():.0%}, {above}"
    entropy = f"{entropy_bits(weights):.2f} of at most {math.log2(count):.2f} bits"
    summary = f"At temperature {temperature_value:g}, {largest}, and the entropy is {entropy}."
    if kind in TEMPERATURE_NOTES:
        summary += f" The temperature has no effect here: {TEMPERATURE_NOTES[kind]}."
    return summary


TEMPERATURE_NOTES = {
    "sum": "it divides all scores alike and cancels in their ratios",
    "hard": "it does not change which score is the largest",
}


def compute_temperature(settings: dict[str, str]) -> LessonResult:
    """The weights of the scores at one temperature, and by temperature."""
    scores = torch.tensor(parse_scores(settings["scores"]))
    temperature, kind = float(settings["temperature"]), settings["weights"]

    def normalize(t: float) -> Tensor:
        return NORMALIZERS[kind]((scores / t)[None], torch.zeros(1, len(scores)))[0]

    weights = normalize(temperature)
    temperatures = [0.05 * 200 ** (i / 40) for i in range(41)]
    by_score = torch.stack([normalize(t) for t in temperatures], dim=1).tolist()
    names = [f"{i + 1}: {score:g}" for i, score in enumerate(scores.tolist())]
    lines = {name: list(zip(temperatures, line, strict=True)) for name, line in zip(names, by_score, strict=True)}
    dots = [(temperature, weight) for weight in weights.tolist()]
    return LessonResult(
        describe_weights(weights, temperature, kind),
        [
            BarChart(f"weights by {kind}", names, weights.tolist(), max_value=1.0),
            LineChart("weights by temperature; dots mark T", "temperature", "weight", lines, dots, log_x=True),
        ],
        formula=FORMULAS[kind],
    )


LESSONS = (
    Lesson(
        name="root",
        title="Scaled dot product: why scores are divided by √d",
        description="A dot product is a sum of d terms. If the components of q and k are independent with mean zero and "
        "variance one, the sum has variance d: wide vectors have large scores, and softmax of large scores gives nearly all the "
        "weight to one key. There softmax saturates: a small change of a score hardly changes the weights, so the gradient "
        "vanishes and learning stops. After division by √d the variance of the scores is one at any width.",
        formula="Var(q·k) = d,   Var(q·k / √d) = 1,   ∂wᵢ/∂sᵢ = wᵢ (1 - wᵢ)",
        code=(Dot, ScaledDot),
        controls=(
            Control("width", "d, width of queries and keys", "range", "64", 1, 1024, 1),
            Control("keys", "Number of keys", "range", "8", 2, 16, 1),
        ),
        compute=compute_scaling,
    ),
    Lesson(
        name="temperature",
        title="Softmax: from scores to attention weights",
        description="Softmax turns scores into weights that are positive and sum to one. The scores can be divided by a "
        "temperature T first. At a low temperature the largest score gets nearly all the weight, as in a dictionary lookup; at "
        "a high temperature all weights are nearly equal, as in a mean. Other normalizers behave differently. Sparsemax gives a "
        "weight of exactly zero to scores far below the largest, and to more of them at a lower temperature. Sum normalization "
        "divides the positive scores by their sum. Hard attention takes the largest score alone. The last two do not depend "
        "on the temperature, and hard attention has no gradient.",
        formula=FORMULAS["softmax"],
        code=(Softmax, Sparsemax, SumNormalizer, Hard),
        controls=(
            Control("scores", "Scores", "text", "2, 1, 0.5, -1"),
            Control("temperature", "T, the temperature", "range", "1", 0.05, 10, 0.05),
            Control("weights", "Normalizer", "choice", "softmax", choices=tuple(NORMALIZERS)),
        ),
        compute=compute_temperature,
    ),
)
