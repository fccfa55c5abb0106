"""Models from nothing: a family and a config become a `Model` with new weights, ready to be trained."""

from collections.abc import Sequence
from typing import Any

from saccade.errors import ModelError, UsageError
from saccade.models.family import Family
from saccade.models.label_names import LABELED_HEADS, resolve_labels
from saccade.models.model import Model
from saccade.models.registry import get_family as family_of


def new(
    family: Family | str, config: Any = None, *, head: str | None = None, labels: Sequence[str] | int = ()
) -> Model:
    """A model with weights as its family draws them, the same under the same seed.

    >>> from saccade.models.families.bert import Config
    >>> new("bert", Config(vocab=11, width=4, layers=1, heads=2, ffn_width=8), head="label", labels=("neg", "pos")).labels
    ('neg', 'pos')
    """
    kind = family_of(family) if isinstance(family, str) else family
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
