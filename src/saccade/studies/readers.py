"""Readers of equal size: the same job for each mechanism and for a recurrent network, with as many parameters in all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saccade.errors import UsageError
from saccade.models.new import new
from saccade.models.table import family

CLOSE = 0.02  # how far from equal two sizes may be


@dataclass(frozen=True)
class Reader:
    """One line of READERS: a family, what is said to it, and the size that is turned until the parameters are equal."""

    name: str
    family: str
    fields: Mapping[str, Any]
    turned: str  # which field
    least: int  # of it, for the sake of the reader
    step: int = 1


def _looking(name: str, mechanism: str) -> Reader:
    return Reader(name, "transformer_reader", {"width": 128, "layers": 2, "mechanism": mechanism}, "inner", 128)


READERS = (
    _looking("full", "scaled_dot"),
    _looking("windowed", "windowed"),
    _looking("bigbird", "bigbird"),
    _looking("hashed", "hashed"),
    _looking("low rank", "low_rank"),
    Reader("rnn", "rnn_reader", {"layers": 2, "cell": "lstm"}, "width", 32, 2),
)


@dataclass(frozen=True)
class Fitted:
    """A reader with its size turned: what a job is told of it, and its parameters."""

    reader: Reader
    fields: Mapping[str, Any]
    parameters: int


def sized(reader: Reader, value: int, common: Mapping[str, Any], labels: int) -> Fitted:
    """A reader with one size of its own; `common` are fields that all have where their family knows them."""
    kind = family(reader.family)
    known = kind.config.__dataclass_fields__
    fields = {name: what for name, what in common.items() if name in known} | {**reader.fields, reader.turned: value}
    model = new(kind, kind.config(**fields), head="label", labels=labels)
    return Fitted(reader, fields, sum(p.numel() for p in model.parameters()))


def equal(readers: tuple[Reader, ...], common: Mapping[str, Any], labels: int) -> list[Fitted]:
    """All readers with the parameters of the one that has most at its least size; further apart than CLOSE is an error."""
    target = max(sized(reader, reader.least, common, labels).parameters for reader in readers)
    found = [
        nearest_size(reader, target, lambda value, r=reader: sized(r, value, common, labels)) for reader in readers
    ]
    for one in found:
        if abs(one.parameters / target - 1) > CLOSE:
            raise UsageError(
                f"{one.reader.name} has {one.parameters:,} parameters with {one.reader.turned} "
                f"{one.fields[one.reader.turned]}, and the others {target:,}; no size of it is within {CLOSE:.0%}."
            )
    return found


def nearest_size(reader: Reader, target: int, make: Callable[[int], Fitted]) -> Fitted:
    """The size whose parameters are nearest to a target; they grow with the size, so halving an interval finds it."""
    low, high = reader.least, 2 * reader.least
    while make(high).parameters < target:
        low, high = high, 2 * high
    while high - low > reader.step:
        middle = low + (high - low) // (2 * reader.step) * reader.step
        low, high = (middle, high) if make(middle).parameters <= target else (low, middle)
    return min(make(low), make(high), key=lambda one: abs(one.parameters - target))
