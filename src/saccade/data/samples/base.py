"""What a sample is, and how its examples are drawn from a seed."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from saccade.data.example import Example
from saccade.errors import UsageError

MAX_DUPLICATE_DRAWS = 1000  # fruitless draws in a row after which there is nothing new to be found


@dataclass(frozen=True)
class Sample:
    """Data that comes with the package: what it is, which tasks it suits, and how it is made.

    `make(count, seed)` gives the same examples for the same two numbers. Another count may give other examples, not
    the beginning of a longer list; another seed gives other examples, of which some may be the same.
    """

    name: str
    description: str
    tasks: tuple[str, ...]
    make: Callable[[int, int], list[Example]]
    default_count: int  # how many there are when nobody says


def make_random(name: str, seed: int) -> Random:
    """The chances of one sample: another name or another seed, and they fall otherwise."""
    return Random(f"{name}:{seed}")


def make_examples(name: str, rows: Iterable[Mapping[str, Any]]) -> list[Example]:
    """Rows as examples that know where they stand."""
    return [Example(row, f"sample:{name}", line) for line, row in enumerate(rows, 1)]


def draw_distinct(
    name: str,
    draw: Callable[[], Mapping[str, Any]],
    count: int,
    key: Callable[[Mapping[str, Any]], Hashable] = lambda row: row["source"],
) -> list[Example]:
    """Draw until there are enough rows, of which no two have the same key."""
    check_count(name, count)
    found: dict[Hashable, Mapping[str, Any]] = {}
    fruitless = 0
    while len(found) < count:
        row = draw()
        before = len(found)
        found.setdefault(key(row), row)
        fruitless = 0 if len(found) > before else fruitless + 1
        if fruitless == MAX_DUPLICATE_DRAWS:
            raise UsageError(
                f"The sample {name} has about {before:,} different examples, not {count:,}; ask for fewer."
            )
    return make_examples(name, found.values())


def check_count(name: str, count: int, max_count: int | None = None) -> None:
    """Refuse a count that cannot be had."""
    if count < 0:
        raise UsageError(f"{count} examples of the sample {name} were requested; ask for 0 or more.")
    if max_count is not None and count > max_count:
        raise UsageError(f"The sample {name} has {max_count:,} examples, not {count:,}; ask for fewer.")
