"""Overrides for the config of a stored model: only dropout rates can change, since no weight depends on them.

All other fields determine the shape or meaning of the weights. They may be repeated, as in the config.toml of a run, but not
changed.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from saccade.errors import ModelError
from saccade.suggest import suggest


def overridable_fields(config: Any) -> tuple[str, ...]:
    """The dropout fields of a config or config class.

    >>> from saccade.models.families.bert import Config
    >>> overridable_fields(Config)
    ('dropout', 'attention_dropout', 'use_attention_dropout', 'classifier_dropout')
    """
    return tuple(
        item.name for item in fields(config) if item.name.endswith("dropout") or item.name == "use_attention_dropout"
    )


def override_dropout(config: Any, overrides: Mapping[str, Any], where: str) -> Any:
    """The config of a stored model with new dropout rates; other fields in `overrides` must have their stored values.

    >>> from saccade.models.families.bert import Config
    >>> override_dropout(Config(), {"dropout": 0.3, "width": 768}, "runs/minilm").dropout
    0.3

    A list, as in TOML and JSON, equals the stored tuple:

    >>> from saccade.models.families import longformer
    >>> stored = longformer.Config(attention_windows=(4, 6))
    >>> override_dropout(stored, {"attention_windows": [4, 6]}, "runs/long").attention_windows
    (4, 6)
    """
    known, changeable, changes = [item.name for item in fields(config)], overridable_fields(config), {}
    for name, value in overrides.items():
        if name not in known:
            raise ModelError(f"{where} has no setting {name!r}; {suggest(name, known)}")
        stored = getattr(config, name)
        if (tuple(value) if isinstance(value, list) else value) == stored:
            continue
        if name not in changeable:
            raise ModelError(
                f"{where} is a trained model with {name} = {stored!r}, which cannot change to {value!r}; leave it out, or train "
                f"a new model with --family FAMILY. Only {', '.join(changeable) or 'nothing'} can be set."
            )
        _check_dropout(name, value)
        changes[name] = value
    return replace(config, **changes)


def _check_dropout(name: str, value: Any) -> None:
    if name == "use_attention_dropout":
        is_valid, expected = isinstance(value, bool), "true or false"
    else:  # None is invalid, since TOML cannot express it
        is_valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
        expected = "a rate of at least 0 and below 1"
    if not is_valid:
        raise ModelError(f"{name} is {value!r}; {expected} is needed.")
