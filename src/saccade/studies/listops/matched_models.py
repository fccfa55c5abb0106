"""Readers of equal size: the same job for each mechanism and for a recurrent network, with as many parameters in all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saccade.errors import UsageError
from saccade.models.build import new
from saccade.models.registry import get_family

MAX_SIZE_DIFFERENCE = 0.02  # how far from equal two sizes may be


@dataclass(frozen=True)
class ModelSpec:
    """One line of MODEL_SPECS: a family, what is said to it, and the size that is turned until the parameters are equal."""

    name: str
    family: str
    fields: Mapping[str, Any]
    sized_field: str  # which field
    min_value: int  # of it, for the sake of the reader
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
    """A reader with its size turned: what a job is told of it, and its parameters."""

    spec: ModelSpec
    fields: Mapping[str, Any]
    parameters: int


def size_model(spec: ModelSpec, value: int, common: Mapping[str, Any], labels: int) -> MatchedModel:
    """A reader with one size of its own; `common` are fields that all have where their family knows them."""
    kind = get_family(spec.family)
    known = kind.config_class.__dataclass_fields__
    fields = {name: what for name, what in common.items() if name in known} | {**spec.fields, spec.sized_field: value}
    model = new(kind, kind.config_class(**fields), head="label", labels=labels)
    return MatchedModel(spec, fields, sum(p.numel() for p in model.parameters()))


def match_parameters(specs: tuple[ModelSpec, ...], common: Mapping[str, Any], labels: int) -> list[MatchedModel]:
    """All readers with the parameters of the one that has most at its least size; further apart than MAX_SIZE_DIFFERENCE is an error."""
    target = max(size_model(reader, reader.min_value, common, labels).parameters for reader in specs)
    found = [
        find_nearest_size(reader, target, lambda value, r=reader: size_model(r, value, common, labels))
        for reader in specs
    ]
    for one in found:
        if abs(one.parameters / target - 1) > MAX_SIZE_DIFFERENCE:
            raise UsageError(
                f"{one.spec.name} has {one.parameters:,} parameters with {one.spec.sized_field} "
                f"{one.fields[one.spec.sized_field]}, and the others {target:,}; no size of it is within {MAX_SIZE_DIFFERENCE:.0%}."
            )
    return found


def find_nearest_size(spec: ModelSpec, target: int, make_model: Callable[[int], MatchedModel]) -> MatchedModel:
    """The size whose parameters are nearest to a target; they grow with the size, so halving an interval finds it."""
    low, high = spec.min_value, 2 * spec.min_value
    while make_model(high).parameters < target:
        low, high = high, 2 * high
    while high - low > spec.value_step:
        middle = low + (high - low) // (2 * spec.value_step) * spec.value_step
        low, high = (middle, high) if make_model(middle).parameters <= target else (low, middle)
    return min(make_model(low), make_model(high), key=lambda one: abs(one.parameters - target))
