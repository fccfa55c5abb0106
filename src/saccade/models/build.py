"""Build a new, untrained model from a family and a config, with randomly initialized weights."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from saccade.errors import KeywordError, ModelError, UsageError
from saccade.models.family import Family
from saccade.models.label_names import LABELED_HEADS, resolve_labels
from saccade.models.model import Model
from saccade.models.registry import get_family as family_of
from saccade.setting_synonyms import find_equivalent
from saccade.suggest import suggest


def new(
    family: Family | str,
    config: Any = None,
    *,
    head: str | None = None,
    labels: Sequence[str] | int = (),
    **settings: Any,
) -> Model:
    """Build an untrained model of a family, from a config or from single settings; the same seed gives the same weights.

    The default number of heads follows the width if it does not divide it.

    >>> model = new("bert", vocab=11, width=4, layers=1, heads=2, ffn_width=8, head="label", labels=("neg", "pos"))
    >>> model.labels, model.config.width
    (('neg', 'pos'), 4)
    """
    kind = family_of(family) if isinstance(family, str) else family
    if settings:
        config = _override(kind, config, settings)
    config = kind.config_class() if config is None else config
    if not isinstance(config, kind.config_class):
        raise ModelError(
            f"{kind.name} needs a config of type {kind.config_class.__module__}.{kind.config_class.__name__}; got "
            f"{type(config).__name__}: {config!r}."
        )
    try:
        body = kind.new_body(config)
    except ValueError as error:  # an invalid argument of a module is an invalid setting here
        raise UsageError(f"{kind.name} cannot be built with these settings: {error}") from error
    if head is None:
        model = Model(kind, config, body)
    else:
        label_names = resolve_labels(labels or 2) if head in LABELED_HEADS else ()
        head_module = kind.get_head(head).build(config, body, len(label_names))
        model = Model(kind, config, body, head_module, head, labels=label_names)
    if kind.init_weights is not None:
        kind.init_weights(model, config)
    return model


def _override(kind: Family, config: Any, settings: Mapping[str, Any]) -> Any:
    """Set fields of a family's config; the error for an unknown field suggests the nearest one."""
    known = [item.name for item in fields(kind.config_class)]
    for name in settings:
        if name not in known:
            equivalent = find_equivalent(name, "model")
            theirs = kind.config_keys.get(name) or (equivalent if equivalent in known else "")
            hint = f"use {theirs!r}." if theirs else suggest(name, known)
            raise KeywordError(f"{kind.name} has no setting {name!r}; {hint}")
    if config is not None:
        return replace(config, **settings)
    return kind.config_class(**(_default_heads(kind, settings) | dict(settings)))


def _default_heads(kind: Family, settings: Mapping[str, Any]) -> dict[str, int]:
    """A number of heads for a width that the default number does not divide; the heads are about as wide as by default."""
    defaults = {item.name: item.default for item in fields(kind.config_class)}
    width, heads, default_width = settings.get("width"), defaults.get("heads"), defaults.get("width")
    if not (isinstance(width, int) and isinstance(heads, int) and isinstance(default_width, int)):
        return {}
    if "heads" in settings or width % heads == 0 or defaults.get("head_width"):
        return {}
    largest = max(1, round(heads * width / default_width))
    return {"heads": next(count for count in range(largest, 0, -1) if width % count == 0)}
