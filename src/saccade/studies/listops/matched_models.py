"""Encoders with equal parameter counts: one for each attention mechanism and one recurrent network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saccade.errors import UsageError
from saccade.models.build import new
from saccade.models.registry import get_family

MAX_SIZE_DIFFERENCE = 0.02  # largest relative difference of parameter counts


@dataclass(frozen=True)
class ModelSpec:
    """An entry of MODEL_SPECS: a family, its settings, and the field that is adjusted until the parameter counts are equal."""

    name: str
    family: str
    fields: Mapping[str, Any]
    sized_field: str  # the field to adjust
    min_value: int  # its smallest value, so that the model is not too weak
    value_step: int = 1


def _transformer(name: str, mechanism: str) -> ModelSpec:
    return ModelSpec(name, "transformer_encoder", {"width": 128, "layers": 2, "mechanism": mechanism}, "ffn_width", 128)


MODEL_SPECS = (
    _transformer("full", "scaled_dot"),
    _transformer("windowed", "windowed"),
    _transformer("bigbird", "bigbird"),
    _transformer("lsh", "lsh"),
    _transformer("low rank", "low_rank"),
    ModelSpec("rnn", "rnn_encoder", {"layers": 2, "cell": "lstm"}, "width", 32, 2),
)


@dataclass(frozen=True)
class MatchedModel:
    """A model with adjusted size: the settings for a job, and the parameter count."""

    spec: ModelSpec
    fields: Mapping[str, Any]
    parameters: int


def size_model(spec: ModelSpec, value: int, common: Mapping[str, Any], labels: int) -> MatchedModel:
    """A model with a given size; `common` are settings for all models whose family has them."""
    family = get_family(spec.family)
    known = family.config_class.__dataclass_fields__
    fields = {name: setting for name, setting in common.items() if name in known}
    fields |= {**spec.fields, spec.sized_field: value}
    model = new(family, family.config_class(**fields), head="label", labels=labels)
    return MatchedModel(spec, fields, sum(p.numel() for p in model.parameters()))


def match_parameters(specs: tuple[ModelSpec, ...], common: Mapping[str, Any], labels: int) -> list[MatchedModel]:
    """All models with the parameter count of the largest at its `min_value`; a larger difference than allowed is an error."""
    target = max(size_model(spec, spec.min_value, common, labels).parameters for spec in specs)
    models = [
        find_nearest_size(spec, target, lambda value, r=spec: size_model(r, value, common, labels)) for spec in specs
    ]
    for matched in models:
        if abs(matched.parameters / target - 1) > MAX_SIZE_DIFFERENCE:
            raise UsageError(
                f"{matched.spec.name} has {matched.parameters:,} parameters with {matched.spec.sized_field} "
                f"{matched.fields[matched.spec.sized_field]}, the others {target:,}; no size is within {MAX_SIZE_DIFFERENCE:.0%}."
            )
    return models


def find_nearest_size(spec: ModelSpec, target: int, make_model: Callable[[int], MatchedModel]) -> MatchedModel:
    """The size with the parameter count nearest to a target, by binary search, as the count grows with the size."""
    low, high = spec.min_value, 2 * spec.min_value
    while make_model(high).parameters < target:
        low, high = high, 2 * high
    while high - low > spec.value_step:
        middle = low + (high - low) // (2 * spec.value_step) * spec.value_step
        low, high = (middle, high) if make_model(middle).parameters <= target else (low, middle)
    return min(make_model(low), make_model(high), key=lambda matched: abs(matched.parameters - target))
