"""What may be set anew of a model that is stored: what it drops in training, on which no weight depends.

All else in its config is the shape or the meaning of its weights. It may be said again, as a run's own config.toml does, but not
otherwise.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from saccade.errors import ModelError
from saccade.suggest import suggest


def overridable_fields(config: Any) -> tuple[str, ...]:
    """The fields of a config, or of its class, that say what is dropped in training.

    >>> from saccade.models.families.bert import Config
    >>> overridable_fields(Config)
    ('dropout', 'attention_dropout', 'use_attention_dropout', 'classifier_dropout')
    """
    return tuple(
        item.name for item in fields(config) if item.name.endswith("dropout") or item.name == "use_attention_dropout"
    )


def override_dropout(config: Any, overrides: Mapping[str, Any], where: str) -> Any:
    """The config of a stored model with what is dropped as `overrides` has it; whatever else is given has to be as it is stored.

    >>> from saccade.models.families.bert import Config
    >>> override_dropout(Config(), {"dropout": 0.3, "width": 768}, "runs/minilm").dropout
    0.3

    A list, which is what TOML and JSON have, is as good as the tuple that is stored:

    >>> from saccade.models.families import longformer
    >>> stored = longformer.Config(attention_windows=(4, 6))
    >>> override_dropout(stored, {"attention_windows": [4, 6]}, "runs/long").attention_windows
    (4, 6)
    """
    known, free, anew = [item.name for item in fields(config)], overridable_fields(config), {}
    for name, value in overrides.items():
        if name not in known:
            raise ModelError(f"{where} has no setting {name!r}; {suggest(name, known)}")
        stored = getattr(config, name)
        if (tuple(value) if isinstance(value, list) else value) == stored:
            continue
        if name not in free:
            raise ModelError(
                f"{where} has its sizes already: its {name} is {stored!r}, and {value!r} is for a new model; leave it out, "
                f"or name a family with --model. Of a stored model {', '.join(free) or 'nothing'} can be set."
            )
        _check_dropout(name, value)
        anew[name] = value
    return replace(config, **anew)


def _check_dropout(name: str, value: Any) -> None:
    if name == "use_attention_dropout":
        fits, wanted = isinstance(value, bool), "true or false"
    else:  # nothing at all is no share: config.toml could not say it
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
        wanted = "a share from 0 up to, but not including, 1"
    if not fits:
        raise ModelError(f"{name} is {value!r}; {wanted} is needed.")
