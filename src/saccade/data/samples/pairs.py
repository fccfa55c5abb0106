"""Two sentences and whether the second follows from the first, contradicts it, or neither.

A sentence counts: how many things of a kind, a colour, a doing and a place there are. `exactly`, `at least`, `at most`, `some`
and `no` say which counts it allows, so no convention about bare numbers is needed. Kinds and places lie in one another: a
robin is a bird and a bird an animal; the kitchen is in the house. What a sentence leaves out (a colour, a doing) it leaves
open.

The gold is computed, not written. Let X be the things that the first sentence counts and Y those of the second. If the
second asks for less (X lies in Y) then |Y| is |X| or more; if it asks for more, |Y| is |X| or less; if both ask for the same,
they are equal; otherwise the two counts are free of each other. The second follows if it holds for every pair of counts that
the first allows, and contradicts it if it holds for none.
"""

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random

HYPERNYMS = {  # what lies in what
    "robin": "bird",
    "sparrow": "bird",
    "owl": "bird",
    "pony": "horse",
    "mare": "horse",
    "poodle": "dog",
    "terrier": "dog",
    "beetle": "insect",
    "ant": "insect",
    "bee": "insect",
    "bird": "animal",
    "horse": "animal",
    "dog": "animal",
    "insect": "animal",
    "animal": "",
}
PLURALS = {"pony": "ponies"}
ENCLOSING_PLACES = {
    "in the kitchen": "in the house",
    "in the hall": "in the house",
    "in the house": "in the village",
    "on the lawn": "in the garden",
    "by the pond": "in the garden",
    "in the garden": "in the village",
    "in the village": "",
    "at the station": "in the town",
    "in the market": "in the town",
    "in the town": "",
}
COLORS = ("", "red", "black", "white", "brown")
ACTIVITIES = ("", "sleep", "wait", "rest", "eat")  # nothing: they are there
NUMBER_WORDS = ("no", "one", "two", "three", "four", "five")
LABELS = ("entailment", "neutral", "contradiction")
COUNT_LIMIT = len(NUMBER_WORDS) + 3  # no sentence tells counts beyond this from each other


@dataclass(frozen=True)
class Amount:
    """Which counts a sentence allows: `some`, `no`, or exactly, at least or at most a number."""

    quantifier: str
    number: int = 0

    def allows(self, count: int) -> bool:
        checks = {
            "some": count > 0,
            "no": count == 0,
            "exactly": count == self.number,
            "at least": count >= self.number,
            "at most": count <= self.number,
        }
        return checks[self.quantifier]

    def __str__(self) -> str:
        return f"{self.quantifier} {NUMBER_WORDS[self.number]}" if self.number else self.quantifier


AMOUNTS = (
    *(Amount("some") for _ in range(3)),
    *(Amount("no") for _ in range(3)),
    *(Amount(word, number) for word in ("exactly", "at least", "at most") for number in range(1, len(NUMBER_WORDS))),
)


@dataclass(frozen=True)
class Sentence:
    """So many things of a colour and a kind, doing something somewhere."""

    amount: Amount
    kind: str
    color: str
    activity: str
    place: str

    def __str__(self) -> str:
        one = self.amount.number == 1
        kind = self.kind if one else PLURALS.get(self.kind, f"{self.kind}s")
        things = " ".join(filter(None, (str(self.amount), self.color, kind)))
        if not self.activity:
            return f"There {'is' if one else 'are'} {things} {self.place}."
        return f"{things[0].upper()}{things[1:]} {self.activity}{'s' if one else ''} {self.place}."


def is_within(inner: str, outer: str, table: dict[str, str]) -> bool:
    """Whether one kind or place is the other or lies in it.

    >>> is_within("robin", "animal", HYPERNYMS), is_within("animal", "robin", HYPERNYMS)
    (True, False)
    """
    return bool(inner) and (inner == outer or is_within(table[inner], outer, table))


def is_narrower(one: Sentence, other: Sentence) -> bool:
    """Whether all that the one counts is counted by the other."""
    return (
        is_within(one.kind, other.kind, HYPERNYMS)
        and is_within(one.place, other.place, ENCLOSING_PLACES)
        and other.color in ("", one.color)
        and other.activity in ("", one.activity)
    )


def infer_relation(first: Sentence, second: Sentence) -> str:
    """Whether the second follows from the first: one of LABELS, over all counts that can be.

    >>> birds = Sentence(Amount("exactly", 3), "robin", "red", "rest", "by the pond")
    >>> infer_relation(birds, Sentence(Amount("some"), "bird", "", "rest", "in the garden"))
    'entailment'
    """
    return _infer_relation_of_counts(
        first.amount, second.amount, is_narrower(first, second), is_narrower(second, first)
    )


@cache
def _infer_relation_of_counts(first: Amount, second: Amount, is_narrower: bool, is_wider: bool) -> str:
    counts = range(COUNT_LIMIT)
    found = {
        second.allows(y)
        for x in counts
        for y in counts
        if first.allows(x) and not (is_narrower and y < x) and not (is_wider and y > x)
    }
    return "neutral" if len(found) > 1 else "entailment" if True in found else "contradiction"


def make(count: int, seed: int) -> list[Example]:
    """Examples with a `first` and a `second` sentence and a `label`, the three labels as often as one another."""
    random = make_random("pairs", seed)
    number = iter(range(10**9))

    def draw() -> dict[str, Any]:
        wanted = LABELS[next(number) % len(LABELS)]
        while True:
            first = _draw_sentence(random)
            second = _perturb(first, random)
            if first != second and infer_relation(first, second) == wanted:
                return {"first": str(first), "second": str(second), "label": wanted}

    return draw_distinct("pairs", draw, count, key=lambda row: (row["first"], row["second"]))


def _draw_sentence(random: Random) -> Sentence:
    kind, colour, doing, place = (random.choice(list(of)) for of in (HYPERNYMS, COLORS, ACTIVITIES, ENCLOSING_PLACES))
    return Sentence(random.choice(AMOUNTS), kind, colour, doing, place)


def _perturb(first: Sentence, random: Random) -> Sentence:
    """Another amount, and one or two parts that ask for less, for more, or for something else."""
    second = replace(first, amount=random.choice(AMOUNTS))
    for name in random.sample(("kind", "color", "activity", "place"), random.choice((0, 1, 1, 2))):
        second = replace(second, **{name: _draw_replacement(name, getattr(first, name), random)})
    return second


def _draw_replacement(name: str, value: str, random: Random) -> str:
    tables = {"kind": HYPERNYMS, "place": ENCLOSING_PLACES}
    if name not in tables:
        return random.choice(COLORS if name == "color" else ACTIVITIES)
    table = tables[name]
    near = [part for part in table if is_within(part, value, table) or is_within(value, part, table)]
    return random.choice(near if random.random() < 0.7 else list(table))


SAMPLE = Sample("pairs", "sentence pairs: entailment, contradiction or neither (NLI)", ("pair",), make, 12_000)
