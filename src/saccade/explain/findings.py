"""What is found out besides maps, for a page and for a picture: agreement, a word in two contexts, what heads are worth."""

from collections.abc import Sequence

import torch

from saccade.explain.ablate import Importance
from saccade.explain.agreement import Agreement
from saccade.explain.curve import curve
from saccade.explain.page import figure, pairs, prose, table
from saccade.explain.picture import Curves, Map
from saccade.explain.raster import drawing
from saccade.explain.svg import readable
from saccade.explain.word import Links, Step

Sections = list[tuple[str, str]]
WIDE = 24  # columns of a word
DEPENDS = (
    "Gradients are the rank correlation with integrated gradients; deletion is how much further the answer moves without what "
    "a map points at than without random tokens. Both are about 0 for a map that points anywhere, and at most 1."
)
WORTH = "What the score loses without a head, and where that lies with 95 % over draws of the examples; above 0 it was of use."


def agreement_section(found: Sequence[Agreement]) -> Sections:
    """Each map with how well it agrees with what the answer depends on, and a plain label."""
    if not found:
        return []
    rows = [[one.title, _number(one.gradients), _number(one.deletion), one.label] for one in found]
    return [
        ("Does the answer depend on it?", prose(DEPENDS) + table(("map", "gradients", "deletion", "evidence"), rows))
    ]


def word_sections(steps: Sequence[Step], word: str, texts: Sequence[str]) -> Sections:
    """A word in two contexts, layer by layer: how alike its vectors are, and what it looks at in each."""
    rows = [
        [str(one.layer), f"{one.alike:.3f}", f"{one.apart:.2f}", _links(one.first), _links(one.second)] for one in steps
    ]
    heads = ("layer", "cosine", "apart", "looks at in the first", "looks at in the second")
    facts = [("word", word), ("first text", texts[0]), ("second text", texts[1])]
    lines = {"cosine": [(one.layer, one.alike) for one in steps], "apart": [(one.layer, one.apart) for one in steps]}
    title = f"{readable(word, WIDE)}, its vectors in both"
    drawn = figure(curve(lines, title=title, x="after layer", y=""), name=title)
    return [("What was asked", pairs(facts)), ("Layer by layer", drawn + table(heads, rows))]


def word_panels(steps: Sequence[Step], word: str) -> list[Curves]:
    """The same as two curves."""
    lines = {
        "cosine of its two vectors": torch.tensor([one.alike for one in steps]),
        "distance by their length": torch.tensor([one.apart for one in steps]),
    }
    at = torch.tensor([float(one.layer) for one in steps])
    return [Curves(f"{readable(word, WIDE)} in two contexts", at, lines, labels=("after layer", ""))]


def worth_sections(found: Sequence[Importance]) -> Sections:
    """A picture of every kind of attention, layers by heads, and a line for each head, the most useful first."""
    drawn = []
    for one in worth_panels(found):
        assert one.names is not None, "layers and heads have numbers"
        drawn.append(
            figure(drawing(one.matrix, *one.names, title=one.title, axes=("layer ↓", "head →")), name=one.title)
        )
    rows = [
        [str(one.switch), one.metric, f"{one.score:.4g}", f"{one.loss:.4g}", f"{one.low:.4g}", f"{one.high:.4g}"]
        for one in found
    ]
    heads = ("without", "score", "is then", "loses", "at least", "at most")
    return [("Layers and heads", "".join(drawn)), ("One by one", prose(WORTH) + table(heads, rows))]


def worth_panels(found: Sequence[Importance]) -> list[Map]:
    """What the score loses without each head, a map for each side and kind; what was not asked is no number."""
    panels = []
    for side, kind in dict.fromkeys((one.switch.side, one.switch.kind) for one in found):
        some = [one for one in found if (one.switch.side, one.switch.kind) == (side, kind)]
        layers = sorted({one.switch.layer for one in some})
        heads = sorted({-1 if one.switch.head is None else one.switch.head for one in some})
        matrix = torch.full((len(layers), len(heads)), float("nan"))
        for one in some:
            head = -1 if one.switch.head is None else one.switch.head
            matrix[layers.index(one.switch.layer), heads.index(head)] = one.loss
        names = [str(layer) for layer in layers], ["all" if head < 0 else str(head) for head in heads]
        title = f"{side} {kind}: {some[0].metric} lost".strip()
        panels.append(Map(title, matrix, "layer", "head", signed=True, names=names))
    return panels


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"


def _links(links: Links) -> str:
    return ", ".join(f"{readable(name, WIDE)} {weight:.2f}" for name, weight in links)
