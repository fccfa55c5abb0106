"""Counterfactual examples: words of one group are swapped for those of the other in the inputs, and the gold stays.

>>> from saccade.text.counterfactual_words import load_dimensions
>>> example = Example({"words": ["Mary", "met", "her"], "tags": ["B-PER", "O", "O"]})
>>> pair = build_counterfactual(example, ("words",), ("tags",), load_dimensions("en")[0])
>>> pair.counterfactual["words"], pair.counterfactual["tags"]
(['James', 'met', 'him'], ['B-PER', 'O', 'O'])
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from saccade.data.example import Example
from saccade.text.counterfactual_words import Dimension, SwappedText

# swapped pronouns of one person may coincide: his and him both become her
AMBIGUOUS_PRONOUNS = frozenset({"his", "him", "her", "hers"})


@dataclass(frozen=True)
class Counterfactual:
    """An example and its counterfactual; `side` is the group that all swapped words are from, None if they are from both."""

    original: Example
    counterfactual: Example
    side: int | None
    swapped_texts: dict[str, SwappedText]


def build_counterfactual(
    example: Example, counterfactual_roles: Sequence[str], unchanged_roles: Sequence[str], dimension: Dimension
) -> Counterfactual | None:
    """The counterfactual of an example: words are swapped in `counterfactual_roles`, `unchanged_roles` are copied.

    None if there is no word to swap, if a swap would change only a part of a tagged word, or if two texts about two groups would
    become texts about a single group, so that the gold label of the pair might no longer be true.
    """
    values: dict[str, Any] = {role: example[role] for role in unchanged_roles if role in example}
    swaps: dict[str, SwappedText] = {}
    for role in counterfactual_roles:
        if isinstance(example[role], list):
            swapped_words = _swap_words(example, role, dimension)
            if swapped_words is None:
                return None
            values |= swapped_words[0]
            swaps[role] = swapped_words[1]
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
    """The words after the swap; for words that were split from a text, also that text and their offsets in it."""
    words = example[role]
    has_text = "offsets" in example
    if has_text:
        text, offsets = example["text"], example["offsets"]
    else:
        starts = accumulate((len(word) + 1 for word in words), initial=0)
        text, offsets = " ".join(words), [(at, at + len(word)) for at, word in zip(starts, words, strict=False)]
    swapped = dimension.swap(text)
    by_word = swapped.split_by_word(text)
    if any(edit.start < edge < edit.end for edit in by_word.edits for span in offsets for edge in span):
        return None  # the swapped word spans two of the tagged words
    new_offsets = [(by_word.map_offset(start), by_word.map_offset(end)) for start, end in offsets]
    values: dict[str, Any] = {role: [swapped.text[start:end] for start, end in new_offsets]}
    return values | ({"text": swapped.text, "offsets": new_offsets} if has_text else {}), swapped


def _merges_words(example: Example, swapped_texts: dict[str, SwappedText]) -> bool:
    """Whether two different words were swapped for the same one, as if a Hindu and a Jew became two Christians."""
    originals: defaultdict[str, set[str]] = defaultdict(set)
    for role, swapped in swapped_texts.items():
        for edit in swapped.edits:
            if edit.side is not None:
                originals[edit.replacement.lower()].add(example[role][edit.start : edit.end].lower())
    return any(len(words - AMBIGUOUS_PRONOUNS) > 1 for words in originals.values())
