"""What is found out besides maps, for a page and for a picture: agreement, a word in two contexts, what heads are worth."""

from collections.abc import Sequence

import torch

from saccade.explain.ablate import HeadImportance
from saccade.explain.faithfulness import Faithfulness
from saccade.explain.word_contexts import LayerComparison, WeightedWords
from saccade.render.charts import render_line_chart
from saccade.render.page import render_definition_list, render_figure, render_paragraph, render_table
from saccade.render.plot import Heatmap, LineChart
from saccade.render.raster import render_heatmap
from saccade.render.svg import format_token

HtmlSections = list[tuple[str, str]]
MAX_WORD_COLUMNS = 24  # columns of a word
FAITHFULNESS_NOTE = (
    "Gradients are the rank correlation with integrated gradients; deletion is how much further the answer moves without what "
    "a map points at than without random tokens. Both are about 0 for a map that points anywhere, and at most 1."
)
IMPORTANCE_NOTE = "What the score loses without a head, and where that lies with 95 % over draws of the examples; above 0 it was of use."


def make_faithfulness_section(results: Sequence[Faithfulness]) -> HtmlSections:
    """Each map with how well it agrees with what the answer depends on, and a plain label."""
    if not results:
        return []
    rows = [
        [one.title, _format_number(one.gradient_correlation), _format_number(one.deletion_score), one.label]
        for one in results
    ]
    return [
        (
            "Does the answer depend on it?",
            render_paragraph(FAITHFULNESS_NOTE) + render_table(("map", "gradients", "deletion", "evidence"), rows),
        )
    ]


def make_word_sections(steps: Sequence[LayerComparison], word: str, texts: Sequence[str]) -> HtmlSections:
    """A word in two contexts, layer by layer: how alike its vectors are, and what it looks at in each."""
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
    heads = ("layer", "cosine", "apart", "looks at in the first", "looks at in the second")
    facts = [("word", word), ("first text", texts[0]), ("second text", texts[1])]
    lines = {
        "cosine": [(one.layer, one.cosine_similarity) for one in steps],
        "apart": [(one.layer, one.relative_distance) for one in steps],
    }
    title = f"{format_token(word, MAX_WORD_COLUMNS)}, its vectors in both"
    drawn = render_figure(render_line_chart(lines, title=title, x="after layer", y=""), name=title)
    return [("What was asked", render_definition_list(facts)), ("Layer by layer", drawn + render_table(heads, rows))]


def make_word_panels(steps: Sequence[LayerComparison], word: str) -> list[LineChart]:
    """The same as two curves."""
    lines = {
        "cosine of its two vectors": torch.tensor([one.cosine_similarity for one in steps]),
        "distance by their length": torch.tensor([one.relative_distance for one in steps]),
    }
    at = torch.tensor([float(one.layer) for one in steps])
    return [
        LineChart(f"{format_token(word, MAX_WORD_COLUMNS)} in two contexts", at, lines, axis_labels=("after layer", ""))
    ]


def make_importance_sections(importances: Sequence[HeadImportance]) -> HtmlSections:
    """A picture of every kind of attention, layers by heads, and a line for each head, the most useful first."""
    drawn = []
    for one in make_importance_panels(importances):
        assert one.tick_labels is not None, "layers and heads have numbers"
        drawn.append(
            render_figure(
                render_heatmap(one.matrix, *one.tick_labels, title=one.title, axes=("layer ↓", "head →")),
                name=one.title,
            )
        )
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
    heads = ("without", "score", "is then", "loses", "at least", "at most")
    return [
        ("Layers and heads", "".join(drawn)),
        ("One by one", render_paragraph(IMPORTANCE_NOTE) + render_table(heads, rows)),
    ]


def make_importance_panels(importances: Sequence[HeadImportance]) -> list[Heatmap]:
    """What the score loses without each head, a map for each side and kind; what was not asked is no number."""
    panels = []
    for side, kind in dict.fromkeys((one.head_ref.side, one.head_ref.kind) for one in importances):
        some = [one for one in importances if (one.head_ref.side, one.head_ref.kind) == (side, kind)]
        layers = sorted({one.head_ref.layer for one in some})
        heads = sorted({-1 if one.head_ref.head is None else one.head_ref.head for one in some})
        matrix = torch.full((len(layers), len(heads)), float("nan"))
        for one in some:
            head = -1 if one.head_ref.head is None else one.head_ref.head
            matrix[layers.index(one.head_ref.layer), heads.index(head)] = one.score_drop
        names = [str(layer) for layer in layers], ["all" if head < 0 else str(head) for head in heads]
        title = f"{side} {kind}: {some[0].metric} lost".strip()
        panels.append(Heatmap(title, matrix, "layer", "head", signed=True, tick_labels=names))
    return panels


def _format_number(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"


def _format_weighted_words(weighted_words: WeightedWords) -> str:
    return ", ".join(f"{format_token(name, MAX_WORD_COLUMNS)} {weight:.2f}" for name, weight in weighted_words)
