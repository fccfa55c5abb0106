"""Label names of classification and tagging heads, and their published form (`id2label`, `num_labels`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.errors import ModelError

LABELED_HEADS = ("label", "tag")  # the heads whose outputs have label names
MULTI_LABEL_PROBLEM_TYPE = "multi_label_classification"
THRESHOLDS_KEY = "label_thresholds"  # decision thresholds in config.json, which other programs ignore
MAX_LABELS = 100_000


def default_labels(count: int) -> tuple[str, ...]:
    """Return default label names, LABEL_0 and so on.

    >>> default_labels(2)
    ('LABEL_0', 'LABEL_1')
    """
    if not 0 < count <= MAX_LABELS:
        raise ModelError(f"The number of labels must be from 1 to {MAX_LABELS:,}; got {count}.")
    return tuple(f"LABEL_{index}" for index in range(count))


def resolve_labels(labels: Sequence[str] | int) -> tuple[str, ...]:
    """Return label names from a list of names or from their number."""
    if isinstance(labels, int):
        return default_labels(labels)
    if isinstance(labels, str):
        raise ModelError(f"A list of labels is needed; got a single string. Write [{labels!r}].")
    names = tuple(labels)
    default_labels(len(names))  # raises if there are none or too many
    if len(set(names)) != len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"Label names must be unique; {duplicate!r} occurs more than once.")
    return names


def labels_from_hf(raw: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The label names of a published config; without `id2label` and `num_labels`, two default names.

    If `num_labels` disagrees with `id2label`, `num_labels` wins, as in the transformers package.
    """
    table, count = raw.get("id2label"), raw.get("num_labels")
    if count is not None and type(count) is not int:
        raise ModelError(f"{path}: num_labels = {count!r}; a whole number is needed.")
    if not table:
        return default_labels(2 if count is None else count)
    if not isinstance(table, dict) or table.keys() != {str(index) for index in range(len(table))}:
        raise ModelError(f"{path}: id2label must map 0, 1, 2, ... without gaps to names; got {str(table)[:80]}.")
    default_labels(len(table))
    if count not in (None, len(table)):
        return default_labels(count)
    return tuple(str(table[str(index)]) for index in range(len(table)))


def thresholds_from_config(raw: Mapping[str, Any], labels: Sequence[str], path: Path) -> dict[str, float]:
    """The decision thresholds in a config.json; empty if it has none."""
    table = raw.get(THRESHOLDS_KEY, {})
    if not isinstance(table, dict) or not all(type(value) is float and 0 < value < 1 for value in table.values()):
        raise ModelError(
            f"{path}: {THRESHOLDS_KEY} must map labels to probabilities between 0 and 1; got {str(table)[:80]}."
        )
    return {label: table[label] for label in labels if label in table}


def describe_labels(raw: Mapping[str, Any], labels: Sequence[str]) -> list[str]:
    """A note for the load report if the number of names in `id2label` is not `num_labels`."""
    table = raw.get("id2label") or labels
    if raw.get("num_labels") != len(labels) or len(table) == len(labels):
        return []
    return [f"labels     {len(labels)}, by num_labels; the {len(table)} names in id2label are ignored"]


def labels_to_hf(labels: Sequence[str], multi_label: bool) -> dict[str, Any]:
    """Label names in their published form; in `label2id` a duplicate name has its first index.

    >>> labels_to_hf(("neg", "pos"), False)
    {'id2label': {'0': 'neg', '1': 'pos'}, 'label2id': {'neg': 0, 'pos': 1}}
    """
    indices = {name: index for index, name in reversed(list(enumerate(labels)))}
    keys: dict[str, Any] = {
        "id2label": {str(index): name for index, name in enumerate(labels)},
        "label2id": dict(sorted(indices.items(), key=lambda item: item[1])),
    }
    return keys | ({"problem_type": MULTI_LABEL_PROBLEM_TYPE} if multi_label else {})
