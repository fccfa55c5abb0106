"""Lessons on looking things up: a dictionary that answers between its keys, words by dot product, kernel regression."""

import torch
from torch import Tensor

from saccade.attention import (
    KERNELS,
    AttentionPool,
    Cosine,
    Distance,
    Dot,
    Kernel,
    Mechanism,
    NadarayaWatson,
    ScaledDot,
)
from saccade.data.samples import points
from saccade.lessons.base import BarChart, Control, Heatmap, Lesson, LessonResult, LineChart, Table

AGES, PAY = (20.0, 30.0, 40.0, 60.0), (2.0, 3.0, 5.0, 4.0)


def describe_lookup(query: float, weights: Tensor) -> str:
    """What became of a question, by the weights of the entries: one key, two at the same distance, all, or a mixture."""
    first, second = weights.topk(2).values.tolist()
    if first > 0.99 and query in AGES:
        return "an exact look-up, since the store has this key"
    if first > 0.99:
        return f"the entry of the nearest key; the store has no key {query:g}, so an exact look-up would find nothing"
    if first - second < 1e-3:
        one, other = sorted(AGES[i] for i in weights.topk(2).indices.tolist())
        return f"a tie, since {one:g} and {other:g} are equally near"
    if (weights - 1 / len(AGES)).abs().max() < 0.1:
        return f"nearly the mean of all entries, {sum(PAY) / len(PAY):.2f}"
    return "a soft look-up, a mean in which near keys count more"


def compute_dictionary(settings: dict[str, str]) -> LessonResult:
    """A store of four entries, asked for any key."""
    query, width = float(settings["query"]), float(settings["width"])
    keys, values = torch.tensor(AGES)[:, None], torch.tensor(PAY)[:, None]
    pool = AttentionPool(Kernel(bandwidth=width).requires_grad_(False))
    answer, weights = pool(torch.tensor([[query]]), keys, values)
    ask = torch.linspace(15, 65, 201)
    line, _ = pool(ask[:, None], keys, values)
    share, best = weights[0].max(0)
    said = (
        f"Asked for the age {query:g}, the store gives {share:.0%} of its attention to the key {AGES[best]:g} and answers "
        f"{answer.item():.2f}: {describe_lookup(query, weights[0])}."
    )
    names = [f"age {key:g} → pay {value:g}" for key, value in zip(AGES, PAY, strict=True)]
    asked = [(query, 0.0), (query, answer.item())]
    lines = {"answer": list(zip(ask.tolist(), line[:, 0].tolist(), strict=True)), "asked": asked}
    entries = list(zip(AGES, PAY, strict=True))
    return LessonResult(
        said,
        [
            BarChart("weight of each entry", names, weights[0].tolist()),
            LineChart("the answer to every question", "age, the key", "pay, the value", lines, entries),
        ],
    )


FEATURE_NAMES = ("royal", "female", "person", "animal", "color", "idea")
WORD_VECTORS = {
    "king": (1.0, -0.9, 1.0, 0.0, 0.0, 0.0),
    "queen": (1.0, 0.9, 1.0, 0.0, 0.0, 0.0),
    "princess": (0.8, 1.0, 0.8, 0.0, 0.0, 0.0),
    "man": (0.0, -0.9, 1.0, 0.1, 0.0, 0.0),
    "woman": (0.0, 0.9, 1.0, 0.1, 0.0, 0.0),
    "dog": (0.0, -0.1, 0.3, 1.0, 0.0, 0.0),
    "green": (0.0, 0.0, 0.0, 0.0, 1.0, 0.1),
    "colorless": (0.0, 0.0, -0.2, 0.0, -1.0, 0.3),
    "idea": (0.0, 0.0, -0.1, -0.2, 0.0, 1.0),
}
SCORE_MECHANISMS: dict[str, Mechanism] = {
    "dot product": Dot(),
    "scaled dot product": ScaledDot(),
    "cosine": Cosine(sharpness=1.0).requires_grad_(False),
    "distance": Distance(),
}


FORMULAS = {
    "dot product": "score(q, k) = q·k = Σⱼ qⱼ kⱼ",
    "scaled dot product": "score(q, k) = q·k / √d",
    "cosine": "score(q, k) = q·k / (‖q‖ ‖k‖)",
    "distance": "score(q, k) = -½ ‖q - k‖² = q·k - ½ ‖k‖² - ½ ‖q‖²",
}
SCORE_NOTES = {
    "dot product": "",
    "scaled dot product": f"; d is {len(FEATURE_NAMES)} here",
    "cosine": "; a cosine is 1 for the same direction, 0 for a right angle and -1 for opposite directions",
    "distance": "; a score is minus half the squared distance, so that 0 is the word itself and all else is negative",
}


def describe_self_match(word: str, scores: dict[str, float]) -> str:
    """How well a word matches itself, which by a dot product is not always best."""
    own, best = scores[word], max(scores, key=lambda name: scores[name])
    if scores[best] - own < 1e-4:
        return f" With itself it has {own:.2f}, and no word has more."
    return (
        f" With itself it has only {own:.2f}: a dot product grows with the length of both vectors, so a longer vector in nearly "
        f"the same direction, {best!r}, scores higher than the word itself. Cosine and distance do not."
    )


def compute_words(settings: dict[str, str]) -> LessonResult:
    """One word against all, by a score of the reader's choice."""
    word, score = settings["word"], settings["score"]
    names, vectors = list(WORD_VECTORS), torch.tensor(list(WORD_VECTORS.values()))
    scores = SCORE_MECHANISMS[score].scores(vectors[None, None], vectors[None, None])[0, 0]
    mine = scores[names.index(word)] + 0.0  # no -0
    at = dict(zip(names, mine.tolist(), strict=True))
    others = sorted((name for name in names if name != word), key=lambda name: -at[name])
    near, far = others[0], others[-1]
    weights = scores.softmax(-1)
    said = (
        f"By {score}, {word!r} has its highest score among the other words with {near!r} ({at[near]:.2f}) and its lowest with "
        f"{far!r} ({at[far]:.2f}){SCORE_NOTES[score]}.{describe_self_match(word, at)} The softmax of its scores gives "
        f"{weights[names.index(word), names.index(near)].item():.0%} to {near!r}."
    )
    moved = vectors[names.index("king")] - vectors[names.index("man")] + vectors[names.index("woman")]
    sums = SCORE_MECHANISMS["cosine"].scores(moved[None, None, None], vectors[None, None])[0, 0, 0]
    order = sums.argsort(descending=True).tolist()[:3]
    rows = [[names[i], f"{sums[i].item():.3f}"] for i in order]
    return LessonResult(
        said,
        [
            Heatmap("the vectors, made by hand", vectors.tolist(), names, list(FEATURE_NAMES)),
            BarChart(f"score of {word!r} with each word", names, mine.tolist()),
            Heatmap("softmax of all scores: a row for each query", weights.tolist(), names, names),
            Table("king - man + woman is nearest to", ["word", "cosine"], rows),
        ],
        formula=FORMULAS[score],
    )


KERNEL_WIDTHS = [0.05 * 60 ** (i / 14) for i in range(15)]


def compute_regression(settings: dict[str, str]) -> LessonResult:
    """Noisy points of a curve, and their weighted mean at every question."""
    shape, width = settings["kernel"], float(settings["width"])
    rows = sorted((row["x"][0], row["y"]) for row in points.make_curve(int(float(settings["points"])), seed=0))
    x, y = torch.tensor(rows).split(1, dim=1)
    model = NadarayaWatson(shape, width).fit(x, y)
    ask = torch.linspace(0, 5, 101)
    answer, weights = model.predict_with_weights(ask[:, None])
    truth = torch.tensor([points.evaluate_curve(q) for q in ask.tolist()])
    blind = weights.sum(-1) == 0  # no point inside the kernel: there is no answer
    error = (answer[:, 0] - truth)[~blind].square().mean().sqrt().item()
    left_out = [(w, NadarayaWatson(shape, w).fit(x, y).leave_one_out_error()) for w in KERNEL_WIDTHS]
    best = min(left_out, key=lambda point: point[1])[0]
    advice = f"of the widths tried, {best:.2g} predicts each point best from the others"
    if shape == "constant":
        advice = "this kernel has no width: it is the mean of all points"
    said = (
        f"The points have noise of deviation {points.CURVE_NOISE:g}. At width {width:g} the curve is off by {error:.2f} (root mean "
        f"square); {advice}."
    )
    if blind.any():
        said += f" {int(blind.sum())} of {len(ask)} questions have no point inside the kernel and get no answer."
    answers = torch.where(blind, torch.nan, answer[:, 0]).tolist()
    lines = {
        "truth": list(zip(ask.tolist(), truth.tolist(), strict=True)),
        "answer": list(zip(ask.tolist(), answers, strict=True)),
    }
    every = slice(None, None, 4)
    return LessonResult(
        said,
        [
            LineChart("regression by attention", "x", "y", lines, rows),
            LineChart(
                "each point predicted from the others; the dot is the width that is set",
                "width",
                "mean squared error",
                {"error": left_out},
                [(width, NadarayaWatson(shape, width).fit(x, y).leave_one_out_error())],
                log_x=True,
            ),
            Heatmap(
                "who looks at whom: a row for each question, a column for each point",
                weights[every].tolist(),
                [f"{q:.1f}" for q in ask[every].tolist()],
                [f"{key:.2f}" for key, _ in rows],
            ),
        ],
    )


LESSONS = (
    Lesson(
        name="dictionary",
        title="Attention as a soft dictionary lookup",
        description="A dictionary holds keys and values, and answers only for keys that it has. Attention is a dictionary that "
        "answers any question: each key gets a weight for how well it matches, the weights sum to one, and the answer is "
        "the mean of the values under these weights. The store here has four keys, which are ages in years, and their "
        "values, which are pay in thousands a month. Make the width small and the nearest key gives the answer, which is "
        "the look-up of a dictionary wherever the key is in it; make it large and the answer is the mean of everything.",
        formula="answer = Σᵢ a(q, kᵢ) vᵢ,   a(q, kᵢ) = exp(-½ (q - kᵢ)² / width²) / Σⱼ exp(-½ (q - kⱼ)² / width²)",
        code=(AttentionPool, Kernel),
        controls=(
            Control("query", "The age that is asked for", "range", "32", 15, 65, 0.5),
            Control("width", "How far a key is heard", "range", "4", 0.2, 40, 0.2),
        ),
        compute=compute_dictionary,
    ),
    Lesson(
        name="words",
        title="Similarity as a dot product",
        description="How well does one word match another? Give each word a vector, and the dot product of two vectors is large where "
        "both have much of the same and negative where one has what the other denies: queen and king agree, queen and "
        "colorless do not. Here each number has a name, and was set by hand; a model learns its own, and gives them none.",
        formula=FORMULAS["dot product"],
        code=(Dot, Cosine, Distance),
        controls=(
            Control("word", "The word that asks", "choice", "queen", choices=tuple(WORD_VECTORS)),
            Control("score", "How two vectors are compared", "choice", "dot product", choices=tuple(SCORE_MECHANISMS)),
        ),
        compute=compute_words,
    ),
    Lesson(
        name="regression",
        title="Kernel regression: attention without training",
        description="Nadaraya and Watson asked in 1964 what y belongs to an x between the points that were measured, and took the "
        "mean of all points, the nearer the more: attention with the x as keys and the y as values. Nothing is learned "
        "but the width. Too narrow, and the curve runs after every point; too wide, and it is flat.",
        formula="f(x) = Σᵢ K(|x - xᵢ| / width) yᵢ / Σⱼ K(|x - xⱼ| / width)",
        code=(NadarayaWatson, Kernel),
        controls=(
            Control("kernel", "The shape of the kernel", "choice", "gaussian", choices=tuple(KERNELS)),
            Control("width", "Its width", "range", "0.3", 0.05, 3, 0.05),
            Control("points", "How many points were measured", "range", "50", 5, 100, 1),
        ),
        compute=compute_regression,
    ),
)
