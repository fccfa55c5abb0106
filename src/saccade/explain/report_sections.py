"""Sections and plots of further analyses: faithfulness, a word in two contexts, and head importance."""

from collections.abc import Sequence

import torch

from saccade.explain.ablate import HeadImportance
from saccade.explain.faithfulness import Faithfulness
from saccade.explain.word_contexts import LayerComparison, WeightedWords
from saccade.render.page import FactList, Figure, Paragraph, Section, Table
from saccade.render.plot import Heatmap, LineChart
from saccade.render.svg import format_token

MAX_WORD_COLUMNS = 24  # columns of a word
FAITHFULNESS_NOTE = (
    "Gradients: rank correlation of the attention weights with integrated gradients. Deletion: how much more the prediction "
    "changes when the attended tokens are removed than when random tokens are removed. Both are about 0 for a map that points at "
    "random tokens, and at most 1."
)
IMPORTANCE_NOTE = (
    "The drop of the score when a head is switched off, with a 95 % bootstrap interval. Above 0, the head is useful."
)


def make_faithfulness_section(results: Sequence[Faithfulness]) -> list[Section]:
    """How well each map agrees with what the prediction depends on, in numbers and in words."""
    if not results:
        return []
    rows = [
        [one.title, _format_number(one.gradient_correlation), _format_number(one.deletion_score), one.label]
        for one in results
    ]
    table = Table(("map", "gradients", "deletion", "evidence"), rows)
    return [Section("Does the prediction depend on it?", [Paragraph(FAITHFULNESS_NOTE), table])]


def make_word_sections(steps: Sequence[LayerComparison], word: str, texts: Sequence[str]) -> list[Section]:
    """A word in two contexts, layer by layer: the similarity of its two vectors, and what it attends to in each context."""
    rows = [
        [
            str(one.layer),
            f"{one.cosine_similarity:.3f}",
            f"{one.relative_distance:.2f}",
            _format_weighted_words(one.first_attended),
            _format_weighted_words(one.second_attended),
        ]
        for one in steps
    ]
    headers = ("layer", "cosine similarity", "relative distance", "attends to in the first", "attends to in the second")
    facts = [("word", word), ("first text", texts[0]), ("second text", texts[1])]
    charts = [Figure(chart.to_svg(), chart.title) for chart in make_word_charts(steps, word)]
    return [Section("Input", [FactList(facts)]), Section("Layer by layer", [*charts, Table(headers, rows)])]


def make_word_charts(steps: Sequence[LayerComparison], word: str) -> list[LineChart]:
    """Similarity and distance of the two vectors of a word, by layer."""
    lines = {
        "cosine similarity": torch.tensor([one.cosine_similarity for one in steps]),
        "relative distance": torch.tensor([one.relative_distance for one in steps]),
    }
    layers = torch.tensor([float(one.layer) for one in steps])
    title = f"{format_token(word, MAX_WORD_COLUMNS)} in two contexts"
    return [LineChart(title, layers, lines, axis_labels=("after layer", ""))]


def make_importance_sections(importances: Sequence[HeadImportance]) -> list[Section]:
    """A heat map for every kind of attention, layers by heads, and a row for each head, the most important first."""
    figures = [Figure(one.to_svg(), one.title) for one in make_importance_heatmaps(importances)]
    rows = [
        [
            str(one.head_ref),
            one.metric,
            f"{one.score:.4g}",
            f"{one.score_drop:.4g}",
            f"{one.low:.4g}",
            f"{one.high:.4g}",
        ]
        for one in importances
    ]
    table = Table(("head switched off", "metric", "score without it", "drop", "low", "high"), rows)
    return [
        Section("Layers and heads", figures),
        Section("Importance of each head", [Paragraph(IMPORTANCE_NOTE), table]),
    ]


def make_importance_heatmaps(importances: Sequence[HeadImportance]) -> list[Heatmap]:
    """The drop of the score without each head, a heat map for each side and kind; heads that were not measured are nan."""
    heatmaps = []
    for side, kind in dict.fromkeys((one.head_ref.side, one.head_ref.kind) for one in importances):
        group = [one for one in importances if (one.head_ref.side, one.head_ref.kind) == (side, kind)]
        layers = sorted({one.head_ref.layer for one in group})
        heads = sorted({-1 if one.head_ref.head is None else one.head_ref.head for one in group})
        matrix = torch.full((len(layers), len(heads)), float("nan"))
        for one in group:
            head = -1 if one.head_ref.head is None else one.head_ref.head
            matrix[layers.index(one.head_ref.layer), heads.index(head)] = one.score_drop
        names = [str(layer) for layer in layers], ["all" if head < 0 else str(head) for head in heads]
        title = f"{side} {kind}: drop of {group[0].metric}".strip()
        heatmaps.append(Heatmap(title, matrix, "layer", "head", signed=True, tick_labels=names))
    return heatmaps


def _format_number(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"


def _format_weighted_words(weighted_words: WeightedWords) -> str:
    return ", ".join(f"{format_token(name, MAX_WORD_COLUMNS)} {weight:.2f}" for name, weight in weighted_words)
