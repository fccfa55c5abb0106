"""Examples about the other group: the words of what is read are exchanged, and what is true of it stays true.

>>> from saccade.text.counterfactual_words import load_dimensions
>>> example = Example({"words": ["Mary", "met", "her"], "tags": ["B-PER", "O", "O"]})
>>> made = build_counterfactual(example, ("words",), ("tags",), load_dimensions("en")[0])
>>> made.counterfactual["words"], made.counterfactual["tags"]
(['James', 'met', 'him'], ['B-PER', 'O', 'O'])
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from saccade.data.example import Example
from saccade.text.counterfactual_words import Dimension, SwappedText

AMBIGUOUS_PRONOUNS = frozenset(
    {"his", "him", "her", "hers"}
)  # two words of one person that may become one: his and him are both her


@dataclass(frozen=True)
class Counterfactual:
    """An example and its counterpart; `side` is the one that all exchanged words came from, None where they came from both."""

    original: Example
    counterfactual: Example
    side: int | None
    swapped_texts: dict[str, SwappedText]


def build_counterfactual(
    example: Example, counterfactual_roles: Sequence[str], unchanged_roles: Sequence[str], dimension: Dimension
) -> Counterfactual | None:
    """The counterpart of an example, with the roles `reads` exchanged and `keeps` as they are; None where it has none.

    It has none where it has no word to exchange, where half a word would be, and where two texts would speak of one group
    that spoke of two, so that they are no longer to each other what they were.
    """
    values: dict[str, Any] = {role: example[role] for role in unchanged_roles if role in example}
    swaps: dict[str, SwappedText] = {}
    for role in counterfactual_roles:
        if isinstance(example[role], list):
            found = _swap_words(example, role, dimension)
            if found is None:
                return None
            values |= found[0]
            swaps[role] = found[1]
        else:
            swaps[role] = dimension.swap(example[role])
            values[role] = swaps[role].text
    edits = [edit for swapped in swaps.values() for edit in swapped.edits]
    if not edits or (len(counterfactual_roles) > 1 and _merges_words(example, swaps)):
        return None
    sides = {edit.side for edit in edits if edit.side is not None}
    return Counterfactual(
        example, Example(values, example.file, example.line), sides.pop() if len(sides) == 1 else None, swaps
    )


def _swap_words(example: Example, role: str, dimension: Dimension) -> tuple[dict[str, Any], SwappedText] | None:
    """The words after their exchanges, and where they were cut from a text, that text and their places in it."""
    words = example[role]
    cut = "offsets" in example
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    text = example["text"] if cut else " ".join(words)
    offsets = example["offsets"] if cut else [(at, at + len(word)) for at, word in zip(starts, words, strict=False)]
    swapped = dimension.swap(text)
    by_word = swapped.split_by_word(text)
    if any(edit.start < edge < edit.end for edit in by_word.edits for place in offsets for edge in place):
        return None  # a word that stands in two pieces
    places = [(by_word.map_offset(start), by_word.map_offset(end)) for start, end in offsets]
    made: dict[str, Any] = {role: [swapped.text[start:end] for start, end in places]}
    return made | ({"text": swapped.text, "offsets": places} if cut else {}), swapped


def _merges_words(example: Example, swapped_texts: dict[str, SwappedText]) -> bool:
    """Whether two different words became the same one: a Hindu and a Jew are not two Christians."""
    olds: defaultdict[str, set[str]] = defaultdict(set)
    for role, swapped in swapped_texts.items():
        for edit in swapped.edits:
            if edit.side is not None:
                olds[edit.replacement.lower()].add(example[role][edit.start : edit.end].lower())
    return any(len(old - AMBIGUOUS_PRONOUNS) > 1 for old in olds.values())
