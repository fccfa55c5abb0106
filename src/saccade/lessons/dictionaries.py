"""Lessons on attention as lookup: a soft dictionary, similarity of words by dot product, and kernel regression."""

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
    """The kind of lookup, by the weights of the entries: exact, nearest, tie, mean or soft."""
    first, second = weights.topk(2).values.tolist()
    if first > 0.99 and query in AGES:
        return "an exact lookup, because the dictionary contains this key"
    if first > 0.99:
        return f"the value of the nearest key; the dictionary has no key {query:g}, so an exact lookup would fail"
    if first - second < 1e-3:
        low, high = sorted(AGES[i] for i in weights.topk(2).indices.tolist())
        return f"a tie, because {low:g} and {high:g} are equally near"
    if (weights - 1 / len(AGES)).abs().max() < 0.1:
        return f"close to the mean of all values, {sum(PAY) / len(PAY):.2f}"
    return "a soft lookup, a mean in which near keys have larger weights"


def compute_dictionary(settings: dict[str, str]) -> LessonResult:
    """A soft lookup in a dictionary with four entries."""
    query, width = float(settings["query"]), float(settings["width"])
    keys, values = torch.tensor(AGES)[:, None], torch.tensor(PAY)[:, None]
    pool = AttentionPool(Kernel(bandwidth=width).requires_grad_(False))
    output, weights = pool(torch.tensor([[query]]), keys, values)
    queries = torch.linspace(15, 65, 201)
    outputs, _ = pool(queries[:, None], keys, values)
    weight, best = weights[0].max(0)
    summary = (
        f"For the query {query:g}, the key {AGES[best]:g} gets {weight:.0%} of the attention, and the output is "
        f"{output.item():.2f}: {describe_lookup(query, weights[0])}."
    )
    entries = list(zip(AGES, PAY, strict=True))
    names = [f"age {key:g} → salary {value:g}" for key, value in entries]
    lines = {
        "output": list(zip(queries.tolist(), outputs[:, 0].tolist(), strict=True)),
        "query": [(query, 0.0), (query, output.item())],
    }
    return LessonResult(
        summary,
        [
            BarChart("attention weight of each entry", names, weights[0].tolist()),
            LineChart("output for every query", "age (key)", "salary (value)", lines, entries),
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
    "cosine": "; the cosine is 1 for the same direction, 0 for a right angle and -1 for opposite directions",
    "distance": "; the score is minus half the squared distance: 0 for the word itself and negative for all others",
}


def describe_self_match(word: str, scores: dict[str, float]) -> str:
    """The score of a word with itself, which is not always the highest for a dot product."""
    own, best = scores[word], max(scores, key=lambda name: scores[name])
    if scores[best] - own < 1e-4:
        return f" Its score with itself is {own:.2f}, and no word scores higher."
    return (
        f" Its score with itself is only {own:.2f}: a dot product grows with the norms of both vectors, so {best!r}, a longer "
        "vector in nearly the same direction, scores higher than the word itself. This does not happen with cosine and distance."
    )


def compute_words(settings: dict[str, str]) -> LessonResult:
    """The scores of one word with all words, by the chosen score function."""
    word, score = settings["word"], settings["score"]
    names, vectors = list(WORD_VECTORS), torch.tensor(list(WORD_VECTORS.values()))
    scores = SCORE_MECHANISMS[score].scores(vectors[None, None], vectors[None, None])[0, 0]
    row = scores[names.index(word)] + 0.0  # turns -0 into 0
    by_name = dict(zip(names, row.tolist(), strict=True))
    others = sorted((name for name in names if name != word), key=lambda name: -by_name[name])
    near, far = others[0], others[-1]
    weights = scores.softmax(-1)
    summary = (
        f"By {score}, {word!r} has its highest score among the other words with {near!r} ({by_name[near]:.2f}) and its lowest "
        f"with {far!r} ({by_name[far]:.2f}){SCORE_NOTES[score]}.{describe_self_match(word, by_name)} The softmax of its scores "
        f"gives {weights[names.index(word), names.index(near)].item():.0%} to {near!r}."
    )
    analogy = vectors[names.index("king")] - vectors[names.index("man")] + vectors[names.index("woman")]
    cosines = SCORE_MECHANISMS["cosine"].scores(analogy[None, None, None], vectors[None, None])[0, 0, 0]
    nearest = cosines.argsort(descending=True).tolist()[:3]
    rows = [[names[i], f"{cosines[i].item():.3f}"] for i in nearest]
    return LessonResult(
        summary,
        [
            Heatmap("word vectors, set by hand", vectors.tolist(), names, list(FEATURE_NAMES)),
            BarChart(f"score of {word!r} with each word", names, row.tolist()),
            Heatmap("softmax of the scores: one row per query", weights.tolist(), names, names),
            Table("nearest words to king - man + woman", ["word", "cosine"], rows),
        ],
        formula=FORMULAS[score],
    )


KERNEL_WIDTHS = [0.05 * 60 ** (i / 14) for i in range(15)]


def compute_regression(settings: dict[str, str]) -> LessonResult:
    """Kernel regression on noisy points of a curve: the prediction at each query is their weighted mean."""
    shape, width = settings["kernel"], float(settings["width"])
    data = sorted((row["x"][0], row["y"]) for row in points.make_curve(int(float(settings["points"])), seed=0))
    x, y = torch.tensor(data).split(1, dim=1)
    model = NadarayaWatson(shape, width).fit(x, y)
    queries = torch.linspace(0, 5, 101)
    output, weights = model.predict_with_weights(queries[:, None])
    truth = torch.tensor([points.evaluate_curve(query) for query in queries.tolist()])
    is_undefined = weights.sum(-1) == 0  # no data point within the kernel
    error = (output[:, 0] - truth)[~is_undefined].square().mean().sqrt().item()
    errors = [(w, NadarayaWatson(shape, w).fit(x, y).leave_one_out_error()) for w in KERNEL_WIDTHS]
    best = min(errors, key=lambda point: point[1])[0]
    advice = f"of the widths in the chart, {best:.2g} has the lowest leave-one-out error"
    if shape == "constant":
        advice = "the constant kernel has no width and predicts the mean of all points"
    summary = (
        f"The noise of the data has a standard deviation of {points.CURVE_NOISE:g}. At width {width:g} the root mean squared "
        f"error of the curve is {error:.2f}; {advice}."
    )
    if is_undefined.any():
        summary += f" At {int(is_undefined.sum())} of {len(queries)} queries no data point is within the kernel: no prediction."
    predictions = torch.where(is_undefined, torch.nan, output[:, 0]).tolist()
    lines = {
        "true curve": list(zip(queries.tolist(), truth.tolist(), strict=True)),
        "prediction": list(zip(queries.tolist(), predictions, strict=True)),
    }
    every_fourth = slice(None, None, 4)
    chosen = (width, NadarayaWatson(shape, width).fit(x, y).leave_one_out_error())
    title = "leave-one-out error; the dot marks the chosen width"
    return LessonResult(
        summary,
        [
            LineChart("kernel regression", "x", "y", lines, data),
            LineChart(title, "width", "mean squared error", {"error": errors}, [chosen], log_x=True),
            Heatmap(
                "attention weights: one row per query, one column per data point",
                weights[every_fourth].tolist(),
                [f"{query:.1f}" for query in queries[every_fourth].tolist()],
                [f"{key:.2f}" for key, _ in data],
            ),
        ],
    )


LESSONS = (
    Lesson(
        name="dictionary",
        title="Attention as a soft dictionary lookup",
        description="A dictionary stores keys and values, and returns a value only for a key that it contains. Attention is a "
        "dictionary that can be queried with anything: each key gets a weight by how well it matches the query, the weights "
        "sum to one, and the output is the weighted mean of the values. The four keys here are ages in years, and the values "
        "are salaries in thousands per month. With a small kernel width the output is the value of the nearest key, as in "
        "the exact lookup of a dictionary; with a large width it is the mean of all values.",
        formula="output = Σᵢ a(q, kᵢ) vᵢ,   a(q, kᵢ) = exp(-½ (q - kᵢ)² / width²) / Σⱼ exp(-½ (q - kⱼ)² / width²)",
        code=(AttentionPool, Kernel),
        controls=(
            Control("query", "Query, an age", "range", "32", 15, 65, 0.5),
            Control("width", "Kernel width", "range", "4", 0.2, 40, 0.2),
        ),
        compute=compute_dictionary,
    ),
    Lesson(
        name="words",
        title="Similarity as a dot product",
        description="How similar are two words? Represent each word by a vector: the dot product of two vectors is large if they "
        "have large components of the same sign, and negative if their components have opposite signs. For queen and king it "
        "is positive, for queen and colorless negative. Here each component has a name and was set by hand; a model learns "
        "its components, and they have no names.",
        formula=FORMULAS["dot product"],
        code=(Dot, Cosine, Distance),
        controls=(
            Control("word", "Query word", "choice", "queen", choices=tuple(WORD_VECTORS)),
            Control("score", "Score function", "choice", "dot product", choices=tuple(SCORE_MECHANISMS)),
        ),
        compute=compute_words,
    ),
    Lesson(
        name="regression",
        title="Kernel regression: attention without training",
        description="Nadaraya and Watson (1964) estimated y at a point x between measurements by a weighted mean of all measured "
        "points, in which near points have larger weights: this is attention with the x as keys and the y as values. The "
        "kernel width is its only parameter. If it is too small, the curve follows the noise of every point; if it is too "
        "large, the curve is flat.",
        formula="f(x) = Σᵢ K(|x - xᵢ| / width) yᵢ / Σⱼ K(|x - xⱼ| / width)",
        code=(NadarayaWatson, Kernel),
        controls=(
            Control("kernel", "Kernel", "choice", "gaussian", choices=tuple(KERNELS)),
            Control("width", "Kernel width", "range", "0.3", 0.05, 3, 0.05),
            Control("points", "Number of data points", "range", "50", 5, 100, 1),
        ),
        compute=compute_regression,
    ),
)
