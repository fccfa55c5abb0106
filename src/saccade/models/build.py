"""Models from nothing: a family and a config become a `Model` with new weights, ready to be trained."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from saccade.errors import ModelError, UsageError
from saccade.models.family import Family
from saccade.models.label_names import LABELED_HEADS, resolve_labels
from saccade.models.model import Model
from saccade.models.registry import get_family as family_of
from saccade.suggest import suggest


def new(
    family: Family | str,
    config: Any = None,
    *,
    head: str | None = None,
    labels: Sequence[str] | int = (),
    **settings: Any,
) -> Model:
    """A new, untrained model: a family with a config, or with the settings of one; the same seed gives the same weights.

    >>> model = new("bert", vocab=11, width=4, layers=1, heads=2, ffn_width=8, head="label", labels=("neg", "pos"))
    >>> model.labels, model.config.width
    (('neg', 'pos'), 4)
    """
    kind = family_of(family) if isinstance(family, str) else family
    if settings:
        config = _override(kind, config, settings)
    config = kind.config_class() if config is None else config
    if not isinstance(config, kind.config_class):
        raise ModelError(f"{kind.name} is built from its own Config; got {type(config).__name__}: {config!r}.")
    try:
        body = kind.new_body(config)
    except ValueError as error:  # the parts tell a programmer of a wrong argument; here it is a setting
        raise UsageError(f"{kind.name} cannot be built with these settings: {error}") from error
    if head is None:
        model = Model(kind, config, body)
    else:
        names = resolve_labels(labels or 2) if head in LABELED_HEADS else ()
        model = Model(kind, config, body, kind.get_head(head).build(config, body, len(names)), head, labels=names)
    if kind.init_weights is not None:
        kind.init_weights(model, config)
    return model


def _override(kind: Family, config: Any, settings: Mapping[str, Any]) -> Any:
    """The config of a family with some fields set; a name that it does not have is answered with the nearest."""
    known = [item.name for item in fields(kind.config_class)]
    for name in settings:
        if name not in known:
            raise UsageError(f"{kind.name} has no setting {name!r}; {suggest(name, known)}")
    return kind.config_class(**settings) if config is None else replace(config, **settings)
