"""A number for each label as a setting, such as class weights or decision thresholds: spam=5,ham=1, or in Python a dictionary."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from saccade.errors import UsageError
from saccade.suggest import suggest


def format_label_values(values: Mapping[Any, Any]) -> str:
    """The setting for a dictionary; JSON if a label has a comma, which separates labels.

    >>> format_label_values({"spam": 3, "ham": 0.5}), format_label_values({"a, b": 2.0})
    ('spam=3,ham=0.5', '{"a, b": 2.0}')
    """
    labels = [str(label) for label in values]
    if any("," in label or label != label.strip() or label.startswith("{") for label in labels):
        return json.dumps(dict(zip(labels, values.values(), strict=True)), ensure_ascii=False, default=str)
    return ",".join(f"{label}={value}" for label, value in zip(labels, values.values(), strict=True))


def parse_label_values(setting: str) -> dict[str, float]:
    """The number of each label; a ValueError for a text of another form.

    >>> parse_label_values("spam=3, ham=0.5"), parse_label_values('{"a, b": 2.0}')
    ({'spam': 3.0, 'ham': 0.5}, {'a, b': 2.0})
    """
    if setting.startswith("{"):
        try:
            return {label: float(value) for label, value in json.loads(setting).items()}
        except TypeError as error:
            raise ValueError(str(error)) from None
    values: dict[str, float] = {}
    for part in setting.split(","):
        label, _, number = part.rpartition("=")
        if not label.strip():
            raise ValueError(f"{part!r} names no label")
        values[label.strip()] = float(number)
    return values


def check_labels_known(setting: str, values: Mapping[str, float], labels: Sequence[str]) -> None:
    """Raise an error for a label that the data do not have, with the nearest one; `setting` is plural, such as thresholds."""
    for label in values:
        if label not in labels:
            raise UsageError(
                f"task.{setting} has a {setting.split('_')[-1][:-1]} for {label!r}; {suggest(label, labels)}"
            )


def format_mappings(config: Any, *names: str) -> None:
    """Replace dictionaries among the settings of a frozen config by the text that the command line takes and a run stores."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, Mapping):
            object.__setattr__(config, name, format_label_values(value))
