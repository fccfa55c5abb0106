"""The names of what a head tells apart, and how a published config says them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.errors import ModelError

LABELED_HEADS = ("label", "tag")  # the heads whose outputs have names
MULTI_LABEL_PROBLEM_TYPE = "multi_label_classification"
MAX_LABELS = 100_000


def default_labels(count: int) -> tuple[str, ...]:
    """That many labels that nobody has named.

    >>> default_labels(2)
    ('LABEL_0', 'LABEL_1')
    """
    if not 0 < count <= MAX_LABELS:
        raise ModelError(f"A head has from 1 to {MAX_LABELS:,} labels; got {count}.")
    return tuple(f"LABEL_{number}" for number in range(count))


def resolve_labels(labels: Sequence[str] | int) -> tuple[str, ...]:
    """Labels as they were asked for: their names, or only how many."""
    if isinstance(labels, int):
        return default_labels(labels)
    if isinstance(labels, str):
        raise ModelError(f"A list of labels is needed; got one text, {labels!r}. Write [{labels!r}].")
    names = tuple(labels)
    default_labels(len(names))  # refuses none and too many
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"Labels have names of their own; {twice!r} comes twice.")
    return names


def labels_from_hf(raw: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The labels that a published config names, or two without names, as it means when it says nothing.

    Where `num_labels` is another number than that of the names, the number is right, as it is for the transformers package.
    """
    table, count = raw.get("id2label"), raw.get("num_labels")
    if count is not None and type(count) is not int:
        raise ModelError(f"{path}: num_labels = {count!r} where a whole number is needed.")
    if not table:
        return default_labels(2 if count is None else count)
    if not isinstance(table, dict) or table.keys() != {str(number) for number in range(len(table))}:
        raise ModelError(f"{path}: id2label maps the numbers from 0 on, without gaps, to names; got {str(table)[:80]}.")
    default_labels(len(table))
    if count not in (None, len(table)):
        return default_labels(count)
    return tuple(str(table[str(number)]) for number in range(len(table)))


def describe_labels(raw: Mapping[str, Any], labels: Sequence[str]) -> list[str]:
    """A line for a load report, where a config names another number of labels than it says that there are."""
    table = raw.get("id2label") or labels
    if raw.get("num_labels") != len(labels) or len(table) == len(labels):
        return []
    return [f"labels     {len(labels)} as num_labels says; id2label names {len(table)}, which are left out"]


def labels_to_hf(labels: Sequence[str], multi_label: bool) -> dict[str, Any]:
    """The same in its published form; a name that comes twice keeps its first number on the way back.

    >>> labels_to_hf(("neg", "pos"), False)
    {'id2label': {'0': 'neg', '1': 'pos'}, 'label2id': {'neg': 0, 'pos': 1}}
    """
    numbers = {name: number for number, name in reversed(list(enumerate(labels)))}
    said: dict[str, Any] = {
        "id2label": {str(number): name for number, name in enumerate(labels)},
        "label2id": dict(sorted(numbers.items(), key=lambda item: item[1])),
    }
    return said | ({"problem_type": MULTI_LABEL_PROBLEM_TYPE} if multi_label else {})
