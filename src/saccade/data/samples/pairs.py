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

from saccade.data.item import Example
from saccade.data.samples.seeded import Sample, distinct, source

KINDS = {  # what lies in what
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
PLACES = {
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
COLOURS = ("", "red", "black", "white", "brown")
DOINGS = ("", "sleep", "wait", "rest", "eat")  # nothing: they are there
NUMBERS = ("no", "one", "two", "three", "four", "five")
LABELS = ("entailment", "neutral", "contradiction")
MOST = len(NUMBERS) + 3  # no sentence tells counts beyond this from each other


@dataclass(frozen=True)
class Amount:
    """Which counts a sentence allows: `some`, `no`, or exactly, at least or at most a number."""

    word: str
    number: int = 0

    def allows(self, count: int) -> bool:
        checks = {
            "some": count > 0,
            "no": count == 0,
            "exactly": count == self.number,
            "at least": count >= self.number,
            "at most": count <= self.number,
        }
        return checks[self.word]

    def __str__(self) -> str:
        return f"{self.word} {NUMBERS[self.number]}" if self.number else self.word


AMOUNTS = (
    *(Amount("some") for _ in range(3)),
    *(Amount("no") for _ in range(3)),
    *(Amount(word, number) for word in ("exactly", "at least", "at most") for number in range(1, len(NUMBERS))),
)


@dataclass(frozen=True)
class Sentence:
    """So many things of a colour and a kind, doing something somewhere."""

    amount: Amount
    kind: str
    colour: str
    doing: str
    place: str

    def __str__(self) -> str:
        one = self.amount.number == 1
        kind = self.kind if one else PLURALS.get(self.kind, f"{self.kind}s")
        things = " ".join(filter(None, (str(self.amount), self.colour, kind)))
        if not self.doing:
            return f"There {'is' if one else 'are'} {things} {self.place}."
        return f"{things[0].upper()}{things[1:]} {self.doing}{'s' if one else ''} {self.place}."


def within(part: str, whole: str, table: dict[str, str]) -> bool:
    """Whether one kind or place is the other or lies in it.

    >>> within("robin", "animal", KINDS), within("animal", "robin", KINDS)
    (True, False)
    """
    return bool(part) and (part == whole or within(table[part], whole, table))


def narrower(one: Sentence, other: Sentence) -> bool:
    """Whether all that the one counts is counted by the other."""
    return (
        within(one.kind, other.kind, KINDS)
        and within(one.place, other.place, PLACES)
        and other.colour in ("", one.colour)
        and other.doing in ("", one.doing)
    )


def relation(first: Sentence, second: Sentence) -> str:
    """Whether the second follows from the first: one of LABELS, over all counts that can be.

    >>> birds = Sentence(Amount("exactly", 3), "robin", "red", "rest", "by the pond")
    >>> relation(birds, Sentence(Amount("some"), "bird", "", "rest", "in the garden"))
    'entailment'
    """
    return _relation(first.amount, second.amount, narrower(first, second), narrower(second, first))


@cache
def _relation(first: Amount, second: Amount, less: bool, more: bool) -> str:
    counts = range(MOST)
    found = {
        second.allows(y)
        for x in counts
        for y in counts
        if first.allows(x) and not (less and y < x) and not (more and y > x)
    }
    return "neutral" if len(found) > 1 else "entailment" if True in found else "contradiction"


def make(count: int, seed: int) -> list[Example]:
    """Examples with a `first` and a `second` sentence and a `label`, the three labels as often as one another."""
    random = source("pairs", seed)
    number = iter(range(10**9))

    def draw() -> dict[str, Any]:
        wanted = LABELS[next(number) % len(LABELS)]
        while True:
            first = _sentence(random)
            second = _changed(first, random)
            if first != second and relation(first, second) == wanted:
                return {"first": str(first), "second": str(second), "label": wanted}

    return distinct("pairs", draw, count, key=lambda row: (row["first"], row["second"]))


def _sentence(random: Random) -> Sentence:
    kind, colour, doing, place = (random.choice(list(of)) for of in (KINDS, COLOURS, DOINGS, PLACES))
    return Sentence(random.choice(AMOUNTS), kind, colour, doing, place)


def _changed(first: Sentence, random: Random) -> Sentence:
    """Another amount, and one or two parts that ask for less, for more, or for something else."""
    second = replace(first, amount=random.choice(AMOUNTS))
    for name in random.sample(("kind", "colour", "doing", "place"), random.choice((0, 1, 1, 2))):
        second = replace(second, **{name: _other(name, getattr(first, name), random)})
    return second


def _other(name: str, value: str, random: Random) -> str:
    tables = {"kind": KINDS, "place": PLACES}
    if name not in tables:
        return random.choice(COLOURS if name == "colour" else DOINGS)
    table = tables[name]
    near = [part for part in table if within(part, value, table) or within(value, part, table)]
    return random.choice(near if random.random() < 0.7 else list(table))


SAMPLE = Sample("pairs", "two sentences: does the second follow, contradict, or neither", ("pair",), make, 12_000)
